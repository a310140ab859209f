"""ZeroMQ's own protocol by hand, over a plain socket: for peers that ZeroMQ would never be.

Greeting and handshake without security, version 3.0, then frames. Source: rfc.zeromq.org/spec/23.
"""

import contextlib
import socket
from collections.abc import Iterator, Sequence

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
WAIT_SECONDS = 20.0
"""For a peer that reads slowly; longer than a busy machine keeps it from running."""
CHUNK = 2**16
_MORE, _LONG, _COMMAND = 1, 2, 4


def ready(kind: str, identity: bytes) -> bytes:
    """The command that ends the handshake."""
    body = b"\x05READY" + _named(b"Socket-Type", kind.encode()) + _named(b"Identity", identity)
    return bytes([_COMMAND | _LONG]) + len(body).to_bytes(8) + body


def _named(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4) + value


def framed(frames: Sequence[bytes]) -> bytes:
    """A whole message as it goes over the connection."""
    pieces = []
    for place, frame in enumerate(frames):
        more = _MORE if place + 1 < len(frames) else 0
        if len(frame) < 256:
            pieces.append(bytes([more, len(frame)]))
        else:
            pieces.append(bytes([more | _LONG]) + len(frame).to_bytes(8))
        pieces.append(frame)
    return b"".join(pieces)


class Parser:
    """Takes what comes over a connection apart into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._greeted = False
        self._frames: list[bytes] = []
        self.commands = 0

    def take(self, data: bytes) -> Iterator[list[bytes]]:
        """The messages that are whole with these bytes."""
        self._buffer += data
        if not self._greeted:
            if len(self._buffer) < len(GREETING):
                return
            del self._buffer[: len(GREETING)]
            self._greeted = True
        while (frame := self._next()) is not None:
            flags, body = frame
            if flags & _COMMAND:
                self.commands += 1
                continue
            self._frames.append(body)
            if not flags & _MORE:
                message, self._frames = self._frames, []
                yield message

    def _next(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        head = 9 if buffer and buffer[0] & _LONG else 2
        if len(buffer) < head:
            return None
        end = head + int.from_bytes(buffer[1:head])
        if len(buffer) < end:
            return None
        flags, body = buffer[0], bytes(buffer[head:end])
        del buffer[:end]
        return flags, body


class Peer:
    """One end of a connection; use as a context manager.

    Args:
        stream: connected.
        kind: what socket it says it is.
        identity: its routing identity.

    Raises:
        OSError: the other end does not shake hands.
    """

    def __init__(self, stream: socket.socket, kind: str, identity: bytes = b"") -> None:
        self._stream = stream
        self._parser = Parser()
        self._early: list[list[bytes]] = []
        stream.settimeout(WAIT_SECONDS)
        try:
            stream.sendall(GREETING + ready(kind, identity))
            while not self._parser.commands:  # a message before the other end is ready would be a fault
                self._early += self._received()
        except OSError:
            stream.close()
            raise

    @classmethod
    def of(cls, host: str, port: int, identity: bytes) -> "Peer":
        """A DEALER that connects."""
        return cls(socket.create_connection((host, port), WAIT_SECONDS), "DEALER", identity)

    @classmethod
    def subscriber(cls, host: str, port: int) -> "Peer":
        """A SUB that wants everything."""
        made = cls(socket.create_connection((host, port), WAIT_SECONDS), "SUB")
        made.send([b"\x01"])
        return made

    def __enter__(self) -> "Peer":
        """Connected."""
        return self

    def __exit__(self, *error: object) -> None:
        """Gone without a word."""
        self._stream.close()

    def send(self, *messages: Sequence[bytes]) -> None:
        """All of them at once.

        Raises:
            OSError: the other end is gone, or does not read.
        """
        self.send_raw(b"".join(map(framed, messages)))

    def send_raw(self, data: bytes) -> None:
        """Bytes, whatever they mean; errors as ``send``."""
        self._stream.sendall(data)

    def receive(self) -> list[list[bytes]]:
        """Messages that have come, waiting for the first bytes.

        Raises:
            OSError: nothing comes, or the other end is gone.
        """
        early, self._early = self._early, []
        return early or self._received()

    def _received(self) -> list[list[bytes]]:
        data = self._stream.recv(CHUNK)
        if not data:
            raise ConnectionResetError("the other end has closed")
        return list(self._parser.take(data))

    def drain(self) -> list[list[bytes]]:
        """Messages that are there already."""
        found, self._early = self._early, []
        self._stream.setblocking(False)
        with contextlib.suppress(OSError):
            while data := self._stream.recv(CHUNK):
                found += self._parser.take(data)
        self._stream.settimeout(WAIT_SECONDS)
        return found
