"""Every socket of the program is made here, with every option set.

Defaults that would hurt (field-notes X4, X6, X10, X11): LINGER waits for ever, HWM counts a thousand messages of
any size, ROUTER drops silently, DEALER queues for a master that is not there, nobody notices a dead peer.
"""

import asyncio
import errno
from collections.abc import Sequence
from types import TracebackType
from typing import Any, cast

import zmq
import zmq.asyncio

from pgczmq.errors import ConfigError

CONTROL_BYTES_AT_MOST = 8 * 2**20
BROADCAST_BYTES = 64 * 2**20
"""A broadcast socket queues about this much for each subscriber."""

_HEARTBEAT = {zmq.HEARTBEAT_IVL: 2_000, zmq.HEARTBEAT_TIMEOUT: 10_000, zmq.HEARTBEAT_TTL: 10_000}
# A peer counts as silent until a whole message is through, and a large one takes minutes on a slow link.
_BULK_HEARTBEAT = {zmq.HEARTBEAT_IVL: 10_000, zmq.HEARTBEAT_TIMEOUT: 300_000, zmq.HEARTBEAT_TTL: 600_000}
_COMMON = {
    zmq.LINGER: 0,
    zmq.IPV6: 1,
    zmq.HANDSHAKE_IVL: 10_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 5_000,
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 6,
}
_ROUTER = {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 1}


class Sockets:
    """The ZeroMQ context of a process and all its sockets; closing it closes them, within ``farewell`` seconds.

    Args:
        threads: that send and receive. With two, a master of 12 workers still sends parameters while gradients come
            in: 320 ms for 12 x 46.8 MB each way over loopback, 350 to 430 with one; workers gain nothing.
    """

    def __init__(self, threads: int = 1) -> None:
        self._context = zmq.asyncio.Context(io_threads=threads)
        self._context.linger = 0
        self._sockets: list[zmq.asyncio.Socket] = []
        self.farewell = 0.0

    def __enter__(self) -> "Sockets":
        """Nothing to open yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every socket, giving last messages a moment to leave."""
        for socket in self._sockets:
            socket.close(linger=int(self.farewell * 1000))
        self._context.term()

    def control_router(self, bind: str, port: int) -> tuple[zmq.asyncio.Socket, int]:
        """Small messages of all workers; returns the socket and the port it is bound to."""
        socket = self._make(zmq.ROUTER, _ROUTER | _HEARTBEAT, high_water_mark=1000)
        socket.setsockopt(zmq.MAXMSGSIZE, CONTROL_BYTES_AT_MOST)
        return socket, _bind(socket, bind, port)

    def bulk_router(self, bind: str, port: int, message_bytes: int) -> tuple[zmq.asyncio.Socket, int]:
        """Gradients of all workers and parameters on request."""
        socket = self._make(zmq.ROUTER, _ROUTER | _BULK_HEARTBEAT, high_water_mark=4)
        socket.setsockopt(zmq.MAXMSGSIZE, message_bytes + CONTROL_BYTES_AT_MOST)
        return socket, _bind(socket, bind, port)

    def broadcast(self, bind: str, port: int, message_bytes: int) -> tuple[zmq.asyncio.Socket, int]:
        """Parameters, or metrics, to all who subscribe."""
        # At least 2, so that a beacon in the queue never costs anybody the parameters behind it.
        mark = max(2, min(1000, BROADCAST_BYTES // max(1, message_bytes)))
        socket = self._make(zmq.PUB, _BULK_HEARTBEAT, high_water_mark=mark)
        return socket, _bind(socket, bind, port)

    def local_broadcast(self, name: str, port: int) -> zmq.asyncio.Socket:
        """Headers alone to workers on this host."""
        socket = self._make(zmq.PUB, {}, high_water_mark=1000)
        listen_here(socket, name, port)
        return socket

    def control_dealer(self, endpoint: str, identity: str) -> zmq.asyncio.Socket:
        """A worker's end of the control socket."""
        socket = self._make(zmq.DEALER, _HEARTBEAT | {zmq.IMMEDIATE: 1}, high_water_mark=1000)
        socket.setsockopt(zmq.MAXMSGSIZE, CONTROL_BYTES_AT_MOST)
        return _connect(socket, endpoint, identity)

    def bulk_dealer(self, endpoint: str, identity: str, message_bytes: int) -> zmq.asyncio.Socket:
        """A worker's end of the gradients socket."""
        # All workers answer at once; what the system would let a dozen queue is more than a switch can hold.
        options = _BULK_HEARTBEAT | {zmq.IMMEDIATE: 1, zmq.SNDBUF: 2**20}
        socket = self._make(zmq.DEALER, options, high_water_mark=4)
        socket.setsockopt(zmq.MAXMSGSIZE, message_bytes + CONTROL_BYTES_AT_MOST)
        return _connect(socket, endpoint, identity)

    def subscriber(self, endpoint: str, message_bytes: int) -> zmq.asyncio.Socket:
        """A worker's or viewer's end of a broadcast."""
        socket = self._make(zmq.SUB, _BULK_HEARTBEAT, high_water_mark=4)
        socket.setsockopt(zmq.MAXMSGSIZE, message_bytes + CONTROL_BYTES_AT_MOST)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        return socket

    def _make(self, kind: int, options: dict[zmq.SocketOption, int], *, high_water_mark: int) -> zmq.asyncio.Socket:
        socket: zmq.asyncio.Socket = self._context.socket(kind)
        self._sockets.append(socket)
        for option, value in (_COMMON | options).items():
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.SNDHWM, high_water_mark)
        socket.setsockopt(zmq.RCVHWM, high_water_mark)
        return socket


def send_now(socket: zmq.asyncio.Socket, frames: Sequence[Any]) -> BaseException | None:
    """Send without waiting, large frames without copying; returns what went wrong instead of raising it.

    zmq.Again is a peer whose queue is full, EHOSTUNREACH one that is gone.
    """
    future = cast("asyncio.Future[Any]", socket.send_multipart(frames, flags=zmq.DONTWAIT, copy=False))
    return future.exception()


def listen_here(socket: zmq.asyncio.Socket, name: str, port: int) -> None:
    """Listen at a name of this host, too."""
    socket.bind(endpoint(name, port))


def endpoint(host: str, port: int) -> str:
    """tcp://host:port, with brackets round an IPv6 address; where the host is ipc://@name, that name and the port."""
    if host.startswith("ipc://"):
        return f"{host}-{port}"
    host = host.strip("[]")
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _bind(socket: zmq.asyncio.Socket, host: str, port: int) -> int:
    try:
        socket.bind(endpoint(host, port))
    except zmq.ZMQError as error:
        advice = "net.bind must be an address of this machine, for example 127.0.0.1 or 0.0.0.0."
        if error.errno in {zmq.EADDRINUSE, errno.EACCES}:
            advice = (
                "Another master may be running: stop it, choose another net.port (the four from there are used), "
                "or net.port=0 for free ones."
            )
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}. {advice}") from None
    last = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return port or int(last.rpartition(":")[2])


def _connect(socket: zmq.asyncio.Socket, address: str, identity: str) -> zmq.asyncio.Socket:
    socket.setsockopt(zmq.ROUTING_ID, identity.encode())
    socket.connect(address)
    return socket
