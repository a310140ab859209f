"""Each worker's way to the master, as connections that can be watched, held up, cut and spoilt.

A worker finds the master at an address of this host that only its own link listens on. Every connection of a link is a
thread for each direction that copies bytes; it knows where messages begin, so that what is slipped in between two of
them reaches the peer as a message.
"""

import contextlib
import socket
import threading
from dataclasses import dataclass, field

from pgczmq.bench.torture.machine import Doors

CHUNK = 2**16
GREETING = 64
"""Bytes before the first frame of a connection."""
NONSENSE = b"\x00\x08\x93nonsens"
"""A message of ZeroMQ that is none of this program's."""
BEYOND_ALL_BOUNDS = b"\x02" + (2**62).to_bytes(8)
"""The head of a frame that is larger than anybody accepts: the connection ends with it."""
TAIL = 64
"""What is kept of earlier bytes, since what a trap waits for may come in two pieces."""
_MORE, _LONG = 1, 2


class Frames:
    """Follows the frames of one direction of a connection, to know where a message ends."""

    def __init__(self) -> None:
        self._ahead = GREETING  # bytes that belong to what has begun
        self._head = b""
        self._more = False

    def take(self, data: bytes) -> None:
        """These bytes go by."""
        while data:
            if self._ahead:
                skipped = min(self._ahead, len(data))
                self._ahead -= skipped
                data = data[skipped:]
                continue
            self._head, data = self._head + data[:1], data[1:]
            flags = self._head[0]
            if len(self._head) == (9 if flags & _LONG else 2):
                self._ahead, self._head = int.from_bytes(self._head[1:]), b""
                self._more = bool(flags & _MORE)

    @property
    def between(self) -> bool:
        """Whether a message could begin here."""
        return not (self._ahead or self._head or self._more)


@dataclass(frozen=True)
class Way:
    """One direction of all connections to one port: ``port`` counts from control, ``out`` is towards the master."""

    port: int
    out: bool


@dataclass
class Trap:
    """Springs when bytes go by for the so-many-th time; holds up a way from then on.

    Args:
        way: where they go by.
        pattern: the bytes.
        count: how often they are let pass before.
        holds: what is held up; half of what the pattern came with has gone already if it is ``way`` itself.
    """

    way: Way
    pattern: bytes
    count: int = 0
    holds: Way | None = None
    sprung: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Flow:
    """One direction of one connection."""

    way: Way
    source: socket.socket
    sink: socket.socket
    frames: Frames = field(default_factory=Frames)
    slipped: bytes = b""  # goes in after the message that is under way
    writing: threading.Lock = field(default_factory=threading.Lock)
    tail: bytes = b""

    def write(self, data: bytes) -> None:
        with self.writing:
            self.sink.sendall(data)
            self.frames.take(data)
            self._slip_in()

    def slip(self, data: bytes) -> None:
        with self.writing:
            self.slipped = data
            self._slip_in()

    def _slip_in(self) -> None:
        if self.slipped and self.frames.between:
            data, self.slipped = self.slipped, b""
            self.sink.sendall(data)

    def close(self) -> None:
        for end in (self.source, self.sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Link:
    """One worker's connections; use as a context manager.

    Args:
        host: where the worker finds the master, such as 127.0.0.2.
        port: control port, here and of the master; the three after it are led on, too.
    """

    def __init__(self, host: str, port: int) -> None:
        self._port = port
        self._change = threading.Condition()
        self._cut = False
        self._held: set[Way] = set()
        self._traps: list[Trap] = []
        self._flows: list[_Flow] = []
        self.refused = 0
        """Connections of the worker's that the master was not there for."""
        self._doors = Doors(host, port, self._welcome)

    def __enter__(self) -> "Link":
        """Already open."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close everything; its threads end with that."""
        self._doors.close()
        with self._change:
            flows, self._flows = self._flows, []
        for flow in flows:
            flow.close()
        self.release()
        self.mend()

    # ------------------------------------------------------------ what can be done to it

    def set(self, trap: Trap) -> Trap:
        """Wait for it with ``sprung``."""
        with self._change:
            self._traps.append(trap)
        return trap

    def cut(self) -> None:
        """Nothing goes either way any more and nobody is told; what is under way comes after ``mend``."""
        with self._change:
            self._cut = True

    def mend(self) -> None:
        """Undo ``cut``."""
        with self._change:
            self._cut = False
            self._change.notify_all()

    def release(self) -> None:
        """Let go what traps hold up, and take them away."""
        with self._change:
            self._held.clear()
            self._traps.clear()
            self._change.notify_all()

    def spoil(self, *, out: bool) -> None:
        """Slip garbage in between two messages of every connection, towards the master or towards the worker."""
        with self._change:
            flows = [flow for flow in self._flows if flow.way.out is out]
        for flow in flows:
            with contextlib.suppress(OSError):
                flow.slip(NONSENSE + BEYOND_ALL_BOUNDS)

    # ------------------------------------------------------------ threads

    def _welcome(self, offset: int, worker: socket.socket) -> None:
        self._wait_until_whole()
        try:
            master = socket.create_connection(("127.0.0.1", self._port + offset))
        except OSError:
            self.refused += 1
            worker.close()
            return
        for end in (worker, master):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flows = [_Flow(Way(offset, True), worker, master), _Flow(Way(offset, False), master, worker)]
        with self._change:
            self._flows += flows
        for flow in flows:
            threading.Thread(target=self._copy, args=(flow,), daemon=True).start()

    def _wait_until_whole(self) -> None:
        with self._change:
            self._change.wait_for(lambda: not self._cut)

    def _copy(self, flow: _Flow) -> None:
        with contextlib.suppress(OSError):
            while data := flow.source.recv(CHUNK):
                gone = len(data) // 2 if self._springs(flow, data) else 0
                flow.write(data[:gone])
                self._wait_for(flow.way)
                flow.write(data[gone:])
        with self._change:
            if flow in self._flows:
                self._flows.remove(flow)
        flow.close()

    def _springs(self, flow: _Flow, data: bytes) -> bool:
        """Spring the traps that are set for these bytes; tells whether one holds up the way that they are on."""
        with self._change:
            tail, flow.tail = flow.tail, (flow.tail + data)[-TAIL:]
            for trap in self._traps:
                if trap.way != flow.way or trap.sprung.is_set():
                    continue
                trap.count -= (tail + data).count(trap.pattern) - tail.count(trap.pattern)
                if trap.count < 0:
                    if trap.holds is not None:
                        self._held.add(trap.holds)
                    trap.sprung.set()
                    return trap.holds == flow.way
            return False

    def _wait_for(self, way: Way) -> None:
        with self._change:
            self._change.wait_for(lambda: not self._cut and way not in self._held)
