"""Who may connect to a master: keys, who checks them, and what a worker is told when it is not let in.

CURVE (ZeroMQ RFC 26): both ends have a pair of keys, and a worker knows the master's public one beforehand. Whether a
worker's public key is known is for the master to say, through ZAP (RFC 27); ZeroMQ lets in everybody if nobody says.
Keys are text, 40 characters of Z85; they are in no log, error or ``repr``.
"""

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import parse_monitor_message
from zmq.utils.z85 import encode

from pgczmq.errors import AuthenticationFailed

log = logging.getLogger("pgczmq.master")

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"pgczmq"
QUIET_SECONDS = 60.0
"""Peers that are turned away are named at most so often, and counted otherwise."""
SURE_AFTER = 5
"""Handshakes in a row that a master must break off before a worker takes its key for the wrong one."""
PROBE_SECONDS = 1.0

_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)
_OTHER_MECHANISM = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
_WRONG_KEY = 0x11000001  # ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


@dataclass(frozen=True)
class Plain:
    """Neither encrypted nor authenticated: whoever reaches a socket is in."""


@dataclass(frozen=True)
class CurveServer:
    """A master's end.

    Args:
        secret: its secret key.
        name_of: of the worker with a public key; None when nobody with this key may come in. Called on a thread of
            its own for every new connection.
    """

    secret: str = field(repr=False)
    name_of: Callable[[str], str | None]


@dataclass(frozen=True)
class CurveClient:
    """A worker's end.

    Args:
        server: the master's public key.
        secret: the worker's own secret key.
    """

    server: str
    secret: str = field(repr=False)


Security = Plain | CurveServer | CurveClient
PLAIN = Plain()


def new_pair() -> tuple[str, str]:
    """A new public and secret key."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def public_of(secret: str) -> str:
    """The public key that belongs to a secret one.

    Raises:
        ValueError: it is no key.
    """
    try:
        return str(zmq.curve_public(secret.encode()).decode())
    except (ValueError, zmq.ZMQError):
        raise ValueError("a key is 40 characters long, as pgc keygen writes it") from None


def is_key(text: str) -> bool:
    """Whether a text can be a key, public or secret."""
    try:
        return bool(public_of(text))
    except ValueError:
        return False


def is_available() -> bool:
    """Whether this machine's ZeroMQ was built with CURVE."""
    return bool(zmq.has("curve"))


# ---------------------------------------------------------------- a master's side


class Gate:
    """Answers who may come in, and says who was turned away.

    ``answer`` and ``watch`` are for threads of their own, so that a busy event loop keeps nobody waiting; they end
    with the sockets' context. Nobody at all comes in while nobody answers.
    """

    def __init__(self, name_of: Callable[[str], str | None]) -> None:
        self._name_of = name_of
        self._welcomed: set[tuple[str, str]] = set()
        self._said: dict[str, tuple[float, int]] = {}  # when, and how often since, by kind

    def answer(self, request: list[bytes]) -> list[bytes]:
        """The reply to a ZAP request: 200 for those on the list, 400 for all others."""
        _, number, _, address, _, mechanism, *credentials = request
        name = self._who(mechanism, credentials)
        where = address.decode(errors="replace").removeprefix("::ffff:")
        if name is None:
            self._turned_away("key", f"a peer at {where} whose key is not on the list")
            return [b"1.0", number, b"400", b"this key is not on the list", b"", b""]
        if (name, where) not in self._welcomed:
            self._welcomed.add((name, where))
            log.info("let in the key of %s from %s", name, where)
        return [b"1.0", number, b"200", b"OK", name.encode(), b""]

    def _who(self, mechanism: bytes, credentials: list[bytes]) -> str | None:
        if mechanism != b"CURVE" or len(credentials) != 1:
            return None
        try:
            return self._name_of(encode(credentials[0]).decode())
        except Exception:  # whoever looks names up must not keep others out, nor let anybody in
            log.exception("cannot look up who a key belongs to")
            return None

    def watch(self, event: list[bytes]) -> None:
        """What a socket's monitor says about a handshake that failed for another reason than the list."""
        kind = parse_monitor_message(event)["value"]
        what = {
            _OTHER_MECHANISM: "a peer that came without encryption",
            _WRONG_KEY: "a peer that expects another master, by its key",
        }
        self._turned_away(str(kind), what.get(kind, "a peer that does not speak this protocol"))

    def _turned_away(self, kind: str, what: str) -> None:
        now = time.monotonic()
        said_at, since = self._said.get(kind, (-QUIET_SECONDS, 0))
        if now - said_at < QUIET_SECONDS:
            self._said[kind] = (said_at, since + 1)
            return
        self._said[kind] = (now, 0)
        log.warning("turned away %s%s", what, f"; and {since} of the kind before it" if since else "")


# ---------------------------------------------------------------- a worker's side


class Handshakes:
    """Judges how a worker's handshakes with its master go.

    A connection that breaks may be anybody's fault; a master that greets with other means than the worker's, or breaks
    off one handshake after the other after a proper greeting, will never let it in.

    Args:
        host, port: of the master's control socket.
        security: the worker's.
        who: it is, in errors.
    """

    def __init__(self, host: str, port: int, security: Security, who: str = "this worker") -> None:
        self._who = who
        self._host = host
        self._port = port
        self._mine = "CURVE" if isinstance(security, CurveClient) else "NULL"
        self._broken_off = 0

    def take(self, event: list[bytes]) -> bool:
        """Learn from what the monitor of a socket says; may take ``PROBE_SECONDS``, so not on an event loop.

        Returns:
            Whether the socket must be connected anew, since ZeroMQ has given up.

        Raises:
            AuthenticationFailed: it is certain that the master will not let this worker in.
        """
        kind = parse_monitor_message(event)["event"]
        if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._broken_off = 0
            return False
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise AuthenticationFailed(
                f"the master at {self._host} port {self._port} does not know {self._who}'s key. Its list of keys must "
                "have it: pgc keygen --worker NAME there adds one, with a connection file for this machine."
            )
        self._compare(mechanism_of(self._host, self._port, mine=self._mine))
        return bool(kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)

    def _compare(self, theirs: str) -> None:
        where = f"the master at {self._host} port {self._port}"
        self._broken_off = self._broken_off + 1 if theirs == self._mine == "CURVE" else 0
        if theirs == "CURVE" and self._mine == "NULL":
            raise AuthenticationFailed(
                f"{where} wants a key, and {self._who} has none. Put the connection file that pgc keygen wrote there, "
                "pgc-connect.json, into this directory, or name it in PGC_CONNECT."
            )
        if theirs == "NULL" and self._mine == "CURVE":
            raise AuthenticationFailed(
                f"{where} uses no keys, and {self._who} would send nothing in the clear, since its connection file "
                "holds keys. Either is wrong: the address, or how the master was started."
            )
        if self._broken_off >= SURE_AFTER:
            raise AuthenticationFailed(
                f"{where} has another key than the one {self._who} was given. Either the connection file is older "
                "than the master's keys, or this is not the master that it is for."
            )


def mechanism_of(host: str, port: int, *, mine: str) -> str:
    """How a ZeroMQ socket greets: NULL, CURVE or PLAIN; empty when nothing there greets in time.

    Version 3 of the protocol (RFC 23): each side sends 64 bytes before anything else, and has the mechanism in them.
    Those of the other side come after our signature and version already. Ours follow, so that the master learns who
    was here, and its log with it: a socket of ZeroMQ's may leave before it has said how it came.
    """
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + mine.encode().ljust(20, b"\0")
    greeting = greeting.ljust(_GREETING_BYTES, b"\0")
    theirs = b""
    try:
        with socket.create_connection((host, port), timeout=PROBE_SECONDS) as stream:
            stream.sendall(greeting[: _MECHANISM.start])
            while len(theirs) < _GREETING_BYTES and (more := stream.recv(_GREETING_BYTES - len(theirs))):
                theirs += more
            stream.sendall(greeting[_MECHANISM.start :])
    except OSError:
        return ""
    if len(theirs) < _GREETING_BYTES or theirs[:1] != b"\xff":
        return ""
    return theirs[_MECHANISM].rstrip(b"\0").decode(errors="replace")
