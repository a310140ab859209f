"""Ends connections that would cost a master more than any worker's may: too many strangers', and messages without end.

ZeroMQ limits the bytes of a frame and the messages that wait, but neither the frames of one message, all of which it
collects before anybody sees the first, nor the number of peers. So somebody looks from outside: at what each connection
has received, as the kernel tells, and at what of it has come out of the socket. Only where there is /proc (Linux).
"""

import asyncio
import contextlib
import logging
import math
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pgczmq.net.limits import (
    STRANGERS_CONNECTED_AT_MOST,
    SUBSCRIPTIONS_BYTES_AT_MOST,
    WAITING_BYTES_AT_MOST,
    Blame,
)

log = logging.getLogger("pgczmq.master")

LOOK_SECONDS = 0.5
FRAME_BYTES = 64
"""At most so many bytes go with a frame over the connection."""
QUIET_CONTROL, QUIET_BULK = 45, 9
"""Bytes a second that ZeroMQ's own heartbeats take where nothing else is said, encrypted: 41 and 8.2 were counted."""
BUSY_AT_MOST = 0.05
"""Of the time is spent on looking: each of thousands of connections costs 30 us."""
_Stream = socket.socket
_OPEN_FILES = Path("/proc/self/fd")
_RECEIVED = struct.Struct("<128xQ")  # tcpi_bytes_received in struct tcp_info


@dataclass(frozen=True)
class Limit:
    """What connections to one port may cost.

    Args:
        waiting: bytes that one of them has received and that have not come out of the socket.
        strangers: of them that are not known to be a worker's.
        quiet: bytes a second that never come out of it: heartbeats.
    """

    waiting: int
    strangers: int
    quiet: int


Address: TypeAlias = tuple[str, int, int]
"""Address and port of the other end, and the port here: one port there may be connected to several of ours."""
NOBODY: Address = ("somebody who is gone", 0, 0)


@dataclass
class _Open:
    """A connection as it is found: its port here, its descriptors and one more that is only for the look.

    Who else looks at this process's connections may have duplicates of a descriptor just then.
    """

    port: int
    stream: socket.socket
    descriptors: list[int]


class Doorman:
    """Looks after the connections to a master's ports.

    Args:
        control, gradients: ports of the sockets that messages come out of.
        params, metrics: ports of those that only subscriptions come to.
        workers: of the run.
        message_bytes: of a gradient's payload.
    """

    def __init__(
        self, *, control: int, gradients: int, params: int, metrics: int, workers: int, message_bytes: int
    ) -> None:
        strangers = STRANGERS_CONNECTED_AT_MOST + 2 * workers
        self._broadcasts = {params, metrics}
        subscribers = strangers + 2 * workers
        self._limits = {params: Limit(SUBSCRIPTIONS_BYTES_AT_MOST, subscribers, QUIET_BULK)}
        self._limits[metrics] = Limit(SUBSCRIPTIONS_BYTES_AT_MOST, subscribers, 0)
        self._limits[control] = Limit(WAITING_BYTES_AT_MOST, strangers, QUIET_CONTROL)
        self._limits[gradients] = Limit(WAITING_BYTES_AT_MOST + 8 * message_bytes, strangers, QUIET_BULK)
        self._looked_at: float | None = None
        self._out_before: dict[int, int] = {}  # when it was looked last
        self._seen: dict[Address, int] = {}  # what had come out of a connection's descriptors before it; oldest first
        self._owners: dict[int, Address] = {}  # of descriptors, at the last look
        self._out: dict[int, int] = {}
        self._workers: set[int] = set()
        self._change = threading.Lock()

    def came_out(self, descriptor: int, nbytes: int) -> None:
        """So much of a connection has been received by the application."""
        with self._change:
            self._out[descriptor] = self._out.get(descriptor, 0) + nbytes

    def is_workers(self, descriptor: int) -> None:
        """A connection is of an admitted worker."""
        self._workers.add(descriptor)

    async def keep(self, blame: Blame) -> None:
        """Look again and again, for ever; whoever is too much is named once."""
        loop = asyncio.get_running_loop()
        took = 0.0
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, took / BUSY_AT_MOST))
            at = loop.time()
            for peer, reason in await loop.run_in_executor(None, self.look, at):
                if blame.count(peer.encode()):
                    log.warning("ended a connection from %s: it %s; more of its kind are only counted", peer, reason)
            took = loop.time() - at

    def look(self, at: float) -> list[tuple[str, str]]:
        """End what is too much; returns the address of each, and what is wrong with it. One call at a time.

        Args:
            at: seconds on a clock that does not go back.
        """
        found = _connections(self._limits)
        try:
            self._recognise(found)
            self._excuse(found, at)
            return [*self._end_endless(found), *self._end_strangers(found)]
        finally:
            for each in found.values():
                each.stream.close()

    def _recognise(self, found: Mapping[Address, _Open]) -> None:
        """Descriptors are used again: what was known of one that is another connection's now is forgotten."""
        owners = {descriptor: peer for peer, each in found.items() for descriptor in each.descriptors}
        with self._change:
            for descriptor, before in self._owners.items():
                if owners.get(descriptor) != before:
                    self._workers.discard(descriptor)
            for descriptor in self._out.keys() - owners.keys():
                del self._out[descriptor]
            for gone in self._seen.keys() - found.keys():
                del self._seen[gone]
            for peer, each in found.items():
                # What has come out since the last look is a new connection's own.
                self._seen.setdefault(peer, sum(self._out_before.get(descriptor, 0) for descriptor in each.descriptors))
            self._out_before = dict(self._out)
        self._owners = owners

    def _excuse(self, found: Mapping[Address, _Open], at: float) -> None:
        """Heartbeats do not come out: else whoever is connected for weeks would have sent too much."""
        elapsed = 0.0 if self._looked_at is None else at - self._looked_at
        self._looked_at = at
        for peer, each in found.items():
            if each.port in self._broadcasts or not self._workers.isdisjoint(each.descriptors):
                self._seen[peer] -= math.ceil(elapsed * self._limits[each.port].quiet)

    def _out_of(self, each: _Open) -> int:
        return sum(self._out.get(descriptor, 0) for descriptor in each.descriptors)

    def _end_endless(self, found: dict[Address, _Open]) -> Iterator[tuple[str, str]]:
        for peer, each in [*found.items()]:
            received = _received(each.stream)
            with self._change:
                waiting = received - (self._out_of(each) - self._seen[peer])
            if waiting < 0:  # less than FRAME_BYTES went with its frames
                self._seen[peer] -= waiting
            if waiting > self._limits[each.port].waiting:
                _shut(found.pop(peer).stream)
                each.stream.close()
                yield peer[0], f"has sent {waiting:,} bytes that are no whole message"

    def _end_strangers(self, found: Mapping[Address, _Open]) -> Iterator[tuple[str, str]]:
        for port, limit in self._limits.items():
            here = [peer for peer in self._seen if peer in found and found[peer].port == port]
            strangers = [peer for peer in here if self._workers.isdisjoint(found[peer].descriptors)]
            # Whoever has said nothing for longest; where nothing is said the last to come, since workers came before.
            first = max(0, len(strangers) - limit.strangers)
            for peer in strangers[limit.strangers :] if port in self._broadcasts else strangers[:first]:
                _shut(found[peer].stream)
                yield peer[0], f"is one of over {limit.strangers} that are no worker's"


def _connections(ports: Mapping[int, Limit]) -> dict[Address, _Open]:
    """This process's connections at these ports, by their other ends."""
    found: dict[Address, _Open] = {}
    descriptors = sorted(int(entry.name) for entry in _OPEN_FILES.iterdir()) if _OPEN_FILES.is_dir() else []
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # it is closed by now
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            stream = _Stream(fileno=os.dup(descriptor))
            port = _port(stream)
            peer = _peer(stream, port) if port in ports else NOBODY
            if port in ports and peer not in found:
                found[peer] = _Open(port, stream, [descriptor])
                continue
            stream.close()
            if port in ports and descriptor not in {each.stream.fileno() for each in found.values()}:
                found[peer].descriptors.append(descriptor)
    return found


def _port(stream: socket.socket) -> int:
    """Where it is connected here; -1 for whatever is not a connection over TCP."""
    try:
        stream.getpeername()
        here = stream.getsockname()
    except OSError:
        return -1
    return here[1] if stream.family in (socket.AF_INET, socket.AF_INET6) else -1


def _peer(stream: socket.socket, here: int) -> Address:
    """Who is at the other end of a connection to a port of ours."""
    try:
        host, port, *_ = stream.getpeername()
    except OSError:
        return NOBODY
    return host.removeprefix("::ffff:"), port, here


def _received(stream: socket.socket) -> int:
    """Bytes since it was connected; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError, struct.error):
        received: int = _RECEIVED.unpack_from(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))[0]
        return received
    return 0


def _shut(stream: socket.socket) -> None:
    """ZeroMQ sees the end of it, and gives back what it has collected."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
