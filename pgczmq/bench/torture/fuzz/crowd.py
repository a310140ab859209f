"""Many strangers at once: connections that come, send hostile messages, and go; and others that hold on to a port."""

import contextlib
import random
import socket
from collections import Counter, deque

from pgczmq.bench.torture.fuzz.hostile import Hostile
from pgczmq.bench.torture.fuzz.zmtp import GREETING, Peer, ready

HOST = "127.0.0.1"
PEERS = 20
"""That are connected at a time."""
HELD = 60
"""Connections that never get as far as a message, and stay until others take their place."""
BURSTS = (1, 20, 200)
CONTROL, GRADIENTS, PARAMS, METRICS = range(4)
"""Ports, counted from the control port."""
_BEYOND = b"\x02" + (2**62).to_bytes(8) + bytes(1000)
_ENDLESS = (b"\x03" + (60_000).to_bytes(8) + bytes(60_000)) * 8
"""Frames of which each says that others follow."""
_SCANS = (
    b"GET / HTTP/1.1\r\nHost: master\r\n\r\n",
    bytes.fromhex("16030100c8010000c40303") + bytes(200),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\xff" + bytes(8) + b"\x7f",
    GREETING[:40],
    GREETING,
    GREETING.replace(b"NULL", b"NONE"),
    GREETING + b"\x04\xff" + bytes(10),
    GREETING + ready("PUB", b"x"),
    GREETING + ready("DEALER", b"x" * 70_000),
    b"",
)


class Crowd:
    """Strangers before one master.

    Args:
        port: its control port.
        hostile: what they say.
        seed: of who says what to whom.

    Attributes:
        sent: messages and connections, by kind.
    """

    def __init__(self, port: int, hostile: Hostile, seed: int) -> None:
        self._port = port
        self._hostile = hostile
        self._draw = random.Random(seed)
        self._peers: deque[tuple[int, Peer]] = deque()
        self._held: deque[socket.socket] = deque()
        self.sent: Counter[str] = Counter()

    def burst(self) -> int:
        """Some messages of one of them; returns how many there were."""
        if len(self._peers) < PEERS or self._draw.random() < 0.05:
            self._come()
        offset, peer = self._draw.choice(self._peers)
        kinds, messages = self._made(offset, self._draw.choice(BURSTS))
        last = self._draw.choices(("", "larger than anybody takes", "without an end"), (48, 1, 1))[0]
        try:
            peer.send(*messages)
            if last:
                kinds.append(last)
                peer.send_raw(_ENDLESS if last == "without an end" else _BEYOND)
            if self._draw.random() < 0.5:  # the others never read an answer
                peer.drain()
        except OSError:  # the master has closed it
            last = "gone"
        if last:
            self._peers.remove((offset, peer))
            peer.__exit__()
        self.sent.update(kinds)
        if self._draw.random() < 0.1:
            self._scan()
        return len(kinds)

    def leave(self) -> None:
        """Nobody is connected any more."""
        for _, peer in self._peers:
            peer.__exit__()
        for held in self._held:
            held.close()
        self._peers.clear()
        self._held.clear()

    def _come(self) -> None:
        offset = self._draw.choices((CONTROL, GRADIENTS, PARAMS, METRICS), (8, 8, 1, 1))[0]
        kind = "DEALER" if offset in (CONTROL, GRADIENTS) else "SUB"
        stream = socket.create_connection((HOST, self._port + offset), 20.0)
        self._peers.append((offset, Peer(stream, kind, self._hostile.identity())))
        if len(self._peers) > PEERS:
            self._peers.popleft()[1].__exit__()

    def _made(self, offset: int, count: int) -> tuple[list[str], list[list[bytes]]]:
        if offset in (PARAMS, METRICS):
            topics = [self._draw.choice((b"\x01", b"\x00", b"")) + self._draw.randbytes(8) for _ in range(count)]
            return ["subscriptions"] * count, [[topic] for topic in topics]
        made = [self._hostile.message("control" if offset == CONTROL else "gradients") for _ in range(count)]
        return [kind for kind, _ in made], [frames for _, frames in made]

    def _scan(self) -> None:
        """What finds the port by chance, or holds it open for nothing."""
        with contextlib.suppress(OSError):
            stream = socket.create_connection((HOST, self._port + self._draw.randrange(4)), 20.0)
            self._held.append(stream)
            self.sent["connections without a message"] += 1
            stream.sendall(self._draw.choice(_SCANS))
        if len(self._held) > HELD:
            self._held.popleft().close()
