"""What strangers may cost a master: every bound on what comes in, in one place, and who is named for what.

Unless a run has keys, anybody who reaches its ports may send whatever they like. None of it may end the run, and
neither memory nor the log may grow with it:

===========================  ==========================================================================================
what                         bound
===========================  ==========================================================================================
a control message            CONTROL_BYTES_AT_MOST; CONTROL_QUEUED_AT_MOST of one connection wait to be read
a gradient message           its payload and a header; four of one connection wait to be read, or 16 that are
                             small
frames of a message          FRAMES_AT_MOST are looked at, the others are read and dropped
a header                     wire.HEADER_BYTES_AT_MOST
a subscription               SUBSCRIPTION_BYTES_AT_MOST
strangers remembered         STRANGERS_AT_MOST; the one heard longest ago is forgotten first, never an admitted worker
joins                        JOINS_A_SECOND are admitted, after a burst of as many and two for each worker
answers to strangers         ANSWERS_A_SECOND, after a burst of as many and two for each worker
peers named                  PEERS_NAMED_AT_MOST in the log and the events, each once; what more they do is counted
late answers told            core.received.LATE_TOLD_AT_MOST, between two steps
connections                  STRANGERS_CONNECTED_AT_MOST and two for each worker that are no worker's, to either
                             ROUTER; to a broadcast, where nobody can tell, as many and two more for each worker
a viewer                     two pictures wait for it, and sockets.VIEWER_BYTES in the system's buffers
a message without end        WAITING_BYTES_AT_MOST and eight payloads; subscriptions of one connection
                             SUBSCRIPTIONS_BYTES_AT_MOST, beside ZeroMQ's heartbeats; looked at every
                             ``doorman.LOOK_SECONDS``, more rarely with thousands of connections, on Linux
===========================  ==========================================================================================
"""

import logging
from dataclasses import dataclass, field

log = logging.getLogger("pgczmq.master")

CONTROL_BYTES_AT_MOST = 64 * 2**10
"""Of a message to the master; its longest is a worker's reason for leaving."""
CONTROL_QUEUED_AT_MOST = 100
SUBSCRIPTION_BYTES_AT_MOST = 1024
FRAMES_AT_MOST = 4
"""An identity, a header and a payload, and one more that is wrong."""
WAITING_BYTES_AT_MOST = 16 * 2**20
"""Received of one connection, beside eight payloads, and in no message that could be read."""
SUBSCRIPTIONS_BYTES_AT_MOST = 2**20
STRANGERS_CONNECTED_AT_MOST = 100
STRANGERS_AT_MOST = 1000
JOINS_A_SECOND = 20.0
ANSWERS_A_SECOND = 100.0
PEERS_NAMED_AT_MOST = 1000
WORDS_AT_MOST = 300


class Allowance:
    """So much a second, and a burst of it; what is not used is not saved beyond that.

    Args:
        rate: a second.
        burst: at once, after a pause.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = self._left = burst
        self._at = 0.0

    def is_left(self, at: float) -> bool:
        """Whether there is one at this time, seconds on a clock that does not go back."""
        self._left = min(self._burst, self._left + self._rate * max(0.0, at - self._at))
        self._at = at
        return self._left >= 1

    def take(self, at: float) -> bool:
        """Use one, if there is one."""
        if not self.is_left(at):
            return False
        self._left -= 1
        return True


@dataclass
class Blame:
    """Who sent what could not be taken: each is named once, as long as there are not too many, and all is counted.

    Attributes:
        refused: messages, of anybody.
        peers: messages of each peer that was named.
    """

    refused: int = 0
    peers: dict[bytes, int] = field(default_factory=dict)

    def count(self, identity: bytes) -> bool:
        """One more message of this peer was refused; tells whether the peer is to be named for it."""
        self.refused += 1
        known = self.peers.get(identity, 0)
        if not known and len(self.peers) >= PEERS_NAMED_AT_MOST:
            return False
        self.peers[identity] = known + 1
        if len(self.peers) == PEERS_NAMED_AT_MOST and not known:
            log.warning("refused messages of %d peers: others are only counted", PEERS_NAMED_AT_MOST)
        return not known


def words(text: str) -> str:
    """What a peer says, fit for a log and a terminal: one line of printable characters, of bounded length."""
    cut = text[:WORDS_AT_MOST]
    shown = "".join(letter if letter.isprintable() else "?" for letter in cut)
    return shown if len(text) <= WORDS_AT_MOST else f"{shown}..."
