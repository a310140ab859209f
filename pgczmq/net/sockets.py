"""Every socket of the program is made here, with every option set.

Defaults that would hurt (field-notes X4, X6, X10, X11): LINGER waits for ever, HWM counts a thousand messages of
any size, ROUTER drops silently, DEALER queues for a master that is not there, nobody notices a dead peer.
"""

import asyncio
import errno
import ipaddress
import logging
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from pgczmq.errors import ConfigError
from pgczmq.net.auth import (
    PLAIN,
    ZAP_DOMAIN,
    ZAP_ENDPOINT,
    CurveClient,
    CurveServer,
    Gate,
    Handshakes,
    Security,
    public_of,
)
from pgczmq.net.limits import (
    CONTROL_BYTES_AT_MOST,
    CONTROL_QUEUED_AT_MOST,
    SUBSCRIPTION_BYTES_AT_MOST,
)
from pgczmq.net.line import Line
from pgczmq.net.wire import HEADER_BYTES_AT_MOST

log = logging.getLogger("pgczmq")

Raw = zmq.Socket[bytes]

BROADCAST_BYTES = 64 * 2**20
"""A broadcast socket queues about this much for each subscriber."""
QUEUED_BYTES = 2**20
"""So much waits in another socket, or four messages; headers beside it are not counted."""
VIEWER_BYTES = 256 * 2**10
"""So much the system keeps for a viewer that takes nothing, at either end."""
LOOPBACK_SENT, LOOPBACK_RECEIVED = 2**18, 2**20
"""So much the system keeps at a loopback address: what waits there was copied, and leaves the cache.

A step of 12 x 46.8 MB each way takes .81 of the time that it takes with the system's own measure, up to 4 and 32 MB.
Over a network that is wanted: an answer of the other side is a long time away.
"""
_RECEIVED_AT_MOST = Path("/proc/sys/net/core/rmem_max")
CURVE_BYTES = 33
"""By so much a frame grows when it is encrypted (RFC 26: 8 for the command, 8 nonce, 16 to check it, 1 for flags)."""

# ZeroMQ aborts a process (an assertion in stream_engine_base.cpp) when its next ping is due to a peer that went while
# the queue of messages received from it was full: any peer could end a master that pings, and a killed master a worker
# that was stopped. So nobody pings but a worker on its control socket, and asks the master there to notice its silence.
_HEARTBEAT = {zmq.HEARTBEAT_IVL: 2_000, zmq.HEARTBEAT_TIMEOUT: 10_000, zmq.HEARTBEAT_TTL: 10_000}
# To ZeroMQ a peer is silent until a whole message is through, and a large one takes minutes on a slow link. So on all
# other sockets TCP sees to it that something is acknowledged, what was sent or its own probes.
_ACKNOWLEDGED = {zmq.TCP_KEEPALIVE_IDLE: 10, zmq.TCP_KEEPALIVE_INTVL: 5, zmq.TCP_MAXRT: 20_000}
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
_HANDSHAKES = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)
_OF_WORKERS = sum(_HANDSHAKES, zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED)
GIVEN_UP_SECONDS = 1.0
"""Whoever connects again says so at once, with a retry."""


def threads_for(message_bytes: int, cores: int) -> int:
    """How many should send and receive at a master whose messages have this size.

    With two, one of 12 workers on 2 cores still sends parameters while gradients come in: 320 ms for 12 x 46.8 MB each
    way over loopback, 350 to 430 with one. For 4 kB they are more to wake up: 2.1 ms, 2.0 with one; over TCP 2.7, 2.4.
    """
    return 1 if message_bytes < QUEUED_BYTES else min(4, cores)


class Sockets:
    """The ZeroMQ context of a process and all its sockets; closing it closes them, within ``farewell`` seconds.

    Args:
        threads: that send and receive; see ``threads_for``. Workers gain nothing by a second one.
        security: of every one of the sockets, those for this host alone too.
    """

    def __init__(self, threads: int = 1, security: Security = PLAIN) -> None:
        self._context = zmq.Context[Raw](io_threads=threads)
        self._context.linger = 0
        self._lines: list[Line] = []
        self._monitors: dict[Line, Line] = {}
        self._security = security
        self._gate = self._open_gate(security) if isinstance(security, CurveServer) else None
        self.farewell = 0.0

    def __enter__(self) -> "Sockets":
        """Nothing to open yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every socket, giving last messages a moment to leave."""
        for line in (*self._lines, *self._monitors.values()):
            line.close(linger=int(self.farewell * 1000))
        self._context.term()

    @property
    def security(self) -> Security:
        """What keeps strangers out."""
        return self._security

    def drop(self, line: Line) -> None:
        """Close one socket now: what it has not sent yet is not sent."""
        self._lines.remove(line)
        line.close(linger=0)
        if line in self._monitors:
            self._monitors.pop(line).close(linger=0)

    def control_router(self, bind: str, port: int) -> tuple[Line, int]:
        """Small messages of all workers; returns the socket and the port it is bound to."""
        line = self._make(zmq.ROUTER, _ROUTER, high_water_mark=1000)
        line.socket.setsockopt(zmq.RCVHWM, CONTROL_QUEUED_AT_MOST)
        self._bound(line, CONTROL_BYTES_AT_MOST)
        return line, _bind(line, bind, port)

    def bulk_router(self, bind: str, port: int, message_bytes: int) -> tuple[Line, int]:
        """Gradients of all workers and parameters on request."""
        options = _ROUTER | _ACKNOWLEDGED | _buffers(bind)
        line = self._make(zmq.ROUTER, options, high_water_mark=_mark(message_bytes, 16))
        self._bound(line, max(message_bytes, HEADER_BYTES_AT_MOST))
        return line, _bind(line, bind, port)

    def broadcast(self, bind: str, port: int, message_bytes: int) -> tuple[Line, int]:
        """Parameters to all who subscribe."""
        # At least 2, so that a beacon in the queue never costs anybody the parameters behind it.
        mark = max(2, min(1000, BROADCAST_BYTES // max(1, message_bytes)))
        line = self._make(zmq.PUB, _ACKNOWLEDGED | _buffers(bind), high_water_mark=mark)
        self._bound(line, SUBSCRIPTION_BYTES_AT_MOST)
        return line, _bind(line, bind, port)

    def showing(self, bind: str, port: int) -> tuple[Line, int]:
        """Pictures to all who watch, and word of whoever begins and of the last one who ceases.

        Two wait for a viewer that does not keep up.
        """
        options = _ACKNOWLEDGED | {zmq.SNDBUF: VIEWER_BYTES, zmq.XPUB_VERBOSE: 1}
        line = self._make(zmq.XPUB, options, high_water_mark=2)
        self._bound(line, SUBSCRIPTION_BYTES_AT_MOST)
        return line, _bind(line, bind, port)

    def local_broadcast(self, name: str, port: int) -> Line:
        """Headers alone to workers on this host."""
        line = self._make(zmq.PUB, {}, high_water_mark=1000)
        listen_here(line, name, port)
        return line

    def control_dealer(self, endpoint: str, identity: str) -> Line:
        """A worker's end of the control socket."""
        line = self._make(zmq.DEALER, _HEARTBEAT | {zmq.IMMEDIATE: 1}, high_water_mark=1000)
        line.socket.setsockopt(zmq.RCVHWM, CONTROL_QUEUED_AT_MOST)
        self._bound(line, HEADER_BYTES_AT_MOST)  # a welcome has the whole configuration
        return self._connect(line, endpoint, identity)

    def bulk_dealer(self, endpoint: str, identity: str, message_bytes: int) -> Line:
        """A worker's end of the gradients socket."""
        # All workers answer at once; what the system would let a dozen queue is more than a switch can hold.
        options = _ACKNOWLEDGED | {zmq.IMMEDIATE: 1, zmq.SNDBUF: 2**20} | _buffers(_host(endpoint))
        line = self._make(zmq.DEALER, options, high_water_mark=_mark(message_bytes, 64))
        self._bound(line, max(message_bytes, HEADER_BYTES_AT_MOST))
        return self._connect(line, endpoint, identity)

    def subscriber(self, endpoint: str, message_bytes: int) -> Line:
        """A worker's end of a broadcast."""
        options = _ACKNOWLEDGED | _buffers(_host(endpoint))
        line = self._make(zmq.SUB, options, high_water_mark=_mark(message_bytes, 64))
        self._bound(line, max(message_bytes, HEADER_BYTES_AT_MOST))
        line.socket.setsockopt(zmq.SUBSCRIBE, b"")
        return self._connect(line, endpoint)

    def viewer(self, endpoint: str) -> Line:
        """A viewer's end."""
        line = self._make(zmq.SUB, _ACKNOWLEDGED | {zmq.RCVBUF: VIEWER_BYTES}, high_water_mark=2)
        self._bound(line, HEADER_BYTES_AT_MOST)
        line.socket.setsockopt(zmq.SUBSCRIBE, b"")
        return self._connect(line, endpoint)

    async def watch(self, line: Line, handshakes: Handshakes) -> None:
        """See to it that a socket of a worker is connected, for ever; there must be one watch for each.

        Raises:
            AuthenticationFailed: the master will never let this worker in.
        """
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[list[zmq.Frame] | Exception] = asyncio.Queue()
        monitor = self._monitors[line]
        monitor.listen(heard.put_nowait, heard.put_nowait)
        given_up: asyncio.TimerHandle | None = None
        try:
            while True:
                said = await heard.get()
                if isinstance(said, Exception):
                    raise said
                event = [frame.bytes for frame in said]
                if given_up is not None:
                    given_up.cancel()
                kind = parse_monitor_message(event)["event"]
                if kind == zmq.EVENT_DISCONNECTED:  # after a frame that is too large ZeroMQ tries no more, silently
                    given_up = loop.call_later(GIVEN_UP_SECONDS, _connect_anew, line)
                elif kind in _HANDSHAKES and await loop.run_in_executor(None, handshakes.take, event):
                    _connect_anew(line)
        finally:
            monitor.ignore()
            if given_up is not None:
                given_up.cancel()

    def _make(self, kind: int, options: dict[zmq.SocketOption, int], *, high_water_mark: int) -> Line:
        socket = self._context.socket(kind)
        line = Line(socket)
        self._lines.append(line)
        for option, value in (_COMMON | options | _secured(self._security)).items():
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.SNDHWM, high_water_mark)
        socket.setsockopt(zmq.RCVHWM, high_water_mark)
        if self._gate is not None:
            monitor = self._context.socket(zmq.PAIR)
            _tell(socket, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, monitor)
            _listen(monitor, self._gate.watch)
        return line

    def _bound(self, line: Line, nbytes: int) -> None:
        """No frame of more bytes comes in; encrypted ones are a little longer than what is in them."""
        line.socket.setsockopt(zmq.MAXMSGSIZE, nbytes if self._security == PLAIN else nbytes + CURVE_BYTES)

    def _connect(self, line: Line, address: str, identity: str = "") -> Line:
        if identity:
            line.socket.setsockopt(zmq.ROUTING_ID, identity.encode())
        # Before it is connected: ZeroMQ tells of a key that is not on the list once, and then tries no more.
        monitor = self._context.socket(zmq.PAIR)
        _tell(line.socket, _OF_WORKERS, monitor)
        self._monitors[line] = Line(monitor)
        line.socket.connect(address)
        return line

    def _open_gate(self, server: CurveServer) -> Gate:
        gate = Gate(server.name_of)
        asked = self._context.socket(zmq.ROUTER)  # a REP would be stuck after a request without an answer
        asked.bind(ZAP_ENDPOINT)
        _listen(asked, lambda request: asked.send_multipart([*request[:2], *gate.answer(request[2:])]))
        return gate


def at_loopback(host: str) -> bool:
    """Whether only this machine can reach a numeric address; ValueError of any other."""
    return ipaddress.ip_address(host.strip("[]")).is_loopback


def _buffers(host: str) -> dict[zmq.SocketOption, int]:
    """For a socket at this numeric address; none where the system does not grant as much to receive.

    Linux grants net.core.rmem_max: 212,992 bytes in many distributions.
    """
    try:
        granted = int(_RECEIVED_AT_MOST.read_text(encoding="ascii")) if at_loopback(host) else 0
    except (OSError, ValueError):
        return {}
    return {zmq.SNDBUF: LOOPBACK_SENT, zmq.RCVBUF: LOOPBACK_RECEIVED} if granted >= LOOPBACK_RECEIVED else {}


def _mark(message_bytes: int, at_most: int) -> int:
    """How many messages wait. Whenever half of them were read ZeroMQ wakes up whoever writes them.

    With marks of 4 and small messages a step of 12 workers has ten more switches between threads: 62, and 52 without.
    """
    return max(4, min(at_most, QUEUED_BYTES // max(1, message_bytes)))


def _connect_anew(line: Line) -> None:
    """Where it was connected before, which ZeroMQ has given up."""
    endpoint = line.socket.getsockopt_string(zmq.LAST_ENDPOINT)
    line.socket.disconnect(endpoint)
    line.socket.connect(endpoint)
    line.look()


def listen_here(line: Line, name: str, port: int) -> None:
    """Listen at a name of this host, too."""
    line.socket.bind(endpoint(name, port))


def endpoint(host: str, port: int) -> str:
    """tcp://host:port, with brackets round an IPv6 address; where the host is ipc://@name, that name and the port."""
    if host.startswith("ipc://"):
        return f"{host}-{port}"
    host = host.strip("[]")
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _host(endpoint: str) -> str:
    """The host of a tcp:// endpoint; no address at all of an ipc:// one."""
    return endpoint.removeprefix("tcp://").rpartition(":")[0]


def _bind(line: Line, host: str, port: int) -> int:
    try:
        line.socket.bind(endpoint(host, port))
    except zmq.ZMQError as error:
        advice = "net.bind must be an address of this machine, for example 127.0.0.1 or 0.0.0.0."
        if error.errno in {zmq.EADDRINUSE, errno.EACCES}:
            advice = (
                "Another master may be running: stop it, choose another net.port (the four from there are used), "
                "or net.port=0 for free ones."
            )
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}. {advice}") from None
    last = line.socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return port or int(last.rpartition(":")[2])


def _tell(socket: Raw, events: int, monitor: Raw) -> None:
    """From now on the monitor hears of these events of a socket."""
    name = f"inproc://monitor-{uuid.uuid4().hex}"
    socket.monitor(name, events)
    monitor.setsockopt(zmq.RCVHWM, 0)  # else whoever does not read it would hold up the threads of all sockets
    monitor.connect(name)


def _secured(security: Security) -> dict[zmq.SocketOption, int | bytes]:
    """The options that encrypt a socket and name its peers."""
    match security:
        case CurveServer(secret=secret):
            # Enforced: without it ZeroMQ lets in everybody when nobody answers for the domain.
            answered: dict[zmq.SocketOption, int | bytes] = {zmq.ZAP_DOMAIN: ZAP_DOMAIN, zmq.ZAP_ENFORCE_DOMAIN: 1}
            return answered | {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: secret.encode()}
        case CurveClient(server=server, secret=secret):
            pair = {zmq.CURVE_PUBLICKEY: public_of(secret).encode(), zmq.CURVE_SECRETKEY: secret.encode()}
            return {zmq.CURVE_SERVERKEY: server.encode(), **pair}
        case _:
            return {}


def _listen(source: Raw, take: Callable[[list[bytes]], Any]) -> None:
    """Give every message to ``take``, on a thread of its own, which closes the socket at the end of its context."""

    def listen() -> None:
        while True:
            try:
                message = source.recv_multipart()
            except zmq.ZMQError:  # the context has ended
                source.close()
                return
            try:
                take(message)
            except Exception:  # nobody comes in by it, and the next one is looked at
                log.exception("a handshake could not be looked at")

    threading.Thread(target=listen, name="handshakes", daemon=True).start()
