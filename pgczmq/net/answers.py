"""A worker's way out: sends its answers, and sees to it that the last one arrives.

It is kept until its step closes. When the master does not list it, the master is asked; when it says that it lacks it,
the answer is sent again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgczmq.net import wire
from pgczmq.net.conditions import Conditions
from pgczmq.net.line import Line, Sending

log = logging.getLogger("pgczmq.worker")

BEATS_BEFORE_QUERY = 2
SENDINGS_AT_MOST = 3
"""Of an answer that the master refuses each time."""


@dataclass
class _Sent:
    """The last answer, kept to be sent again.

    Args:
        sending: how many times it has been sent.
        last: it, or the last query about it, on its way.
        beats: that have come since then and did not list it.
    """

    step: int
    frames: Sequence[Any]
    sending: int
    last: Sending
    beats: int = 0


class Answers:
    """What one worker sends for its steps.

    Args:
        gradients: the socket.
        mine: what all its messages carry: run, master, worker, incarnation.
        conditions: that it works under.
    """

    def __init__(self, gradients: Line, mine: dict[str, Any], conditions: Conditions) -> None:
        self._gradients = gradients
        self._mine = mine
        self._conditions = conditions
        self._sent: _Sent | None = None

    def send(self, frames: Sequence[Any]) -> Sending:
        """Send now, or as soon as the master can be reached."""
        return self._conditions.send(self._gradients, frames)

    def send_answer(self, step: int, frames: Sequence[Any], sending: int = 1) -> None:
        """Send an answer, for the ``sending``-th time, and keep it in place of the one before."""
        self._sent = _Sent(step, frames, sending, self.send(frames))

    def take_beat(self, beat: wire.Beat) -> None:
        """An answer that has left this process and is not listed two beats later is lost, or still on its way.

        A slow link keeps many megabytes for that long, so it is asked for behind the answer before it is sent again.
        """
        sent = self._sent
        if sent is not None and sent.step < beat.open_step:
            self._sent = None
        if sent is None or sent.step != beat.open_step or self._mine["worker"] in beat.arrived:
            return
        if sent.last.has_left:
            sent.beats += 1
        if sent.beats >= BEATS_BEFORE_QUERY:
            query = wire.Query(step=sent.step, sending=sent.sending, **self._mine)
            sent.last, sent.beats = self.send([wire.pack(query)]), 0

    def take_refusal(self, message: wire.Refused) -> None:
        """The master did not take an answer: spoiled on its way, or, when that happens too often, wrong in itself."""
        log.warning("the master refused the answer to step %d: %s", message.step, message.reason)
        sent = self._sent
        if sent is not None and sent.step == message.step and sent.sending >= SENDINGS_AT_MOST:
            self._sent = None

    def take_again(self, message: wire.Again) -> None:
        """The master lacks an answer; unless that was about an earlier sending of it, this one is lost."""
        sent = self._sent
        if sent is not None and (sent.step, sent.sending) == (message.step, message.sending):
            log.info("sending the answer to step %d again", sent.step)
            self.send_answer(sent.step, sent.frames, sent.sending + 1)
