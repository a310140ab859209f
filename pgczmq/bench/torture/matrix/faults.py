"""What can happen to a process in the middle of something."""

import contextlib
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgczmq.bench.torture.machine import PORTS
from pgczmq.bench.torture.matrix.links import BEYOND_ALL_BOUNDS, GREETING, NONSENSE
from pgczmq.bench.torture.matrix.stage import Program, Stage
from pgczmq.bench.torture.matrix.states import End

Blow = Callable[[Stage, Program], None]


@dataclass(frozen=True)
class Fault:
    """One of them.

    Args:
        name: for the command line.
        strike: it begins.
        mend: it is over; what the process itself cannot undo.
        codes: with which the process may end of it, by whose it is; none if it must live.
        settings: keys of the run that it takes.
    """

    name: str
    strike: Blow
    mend: Blow = lambda stage, struck: None
    codes: Mapping[End, frozenset[int]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        """Whether the process ends of it."""
        return bool(self.codes)


def _signal(number: signal.Signals) -> Blow:
    return lambda stage, struck: struck.send(number)


def _cut(stage: Stage, struck: Program) -> None:
    for link in stage.links_of(struck):
        link.cut()


def _mend(stage: Stage, struck: Program) -> None:
    for link in stage.links_of(struck):
        link.mend()


def _garble(stage: Stage, struck: Program) -> None:
    """Over every connection of the process itself, and for a master from strangers, too."""
    for link in stage.links_of(struck):
        link.spoil(out=struck is stage.master)
    if struck is stage.master:
        for offset in range(PORTS):
            for noise in (bytes(range(256)) * 16, _stranger(NONSENSE), _stranger(BEYOND_ALL_BOUNDS)):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", stage.port + offset)) as end:
                    end.sendall(noise)


def _stranger(frames: bytes) -> bytes:
    """All that a peer of ZeroMQ's without keys says, up to these frames."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL"
    ready = b"\x05READY\x0bSocket-Type" + len(b"DEALER").to_bytes(4) + b"DEALER"
    return greeting.ljust(GREETING, b"\0") + bytes([4, len(ready)]) + ready + frames


def _same(code: int) -> dict[End, frozenset[int]]:
    return {"worker": frozenset({code}), "master": frozenset({code})}


OVER_LINKS = {"net.payload": "tcp"}
"""Else most of it goes through this host's memory."""

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("SIGKILL", _signal(signal.SIGKILL), codes=_same(-signal.SIGKILL)),
        Fault("SIGTERM", _signal(signal.SIGTERM), codes={"worker": frozenset({143}), "master": frozenset({75})}),
        Fault("SIGINT", _signal(signal.SIGINT), codes={"worker": frozenset({130}), "master": frozenset({75})}),
        Fault("SIGSTOP", _signal(signal.SIGSTOP), _signal(signal.SIGCONT)),
        Fault("cut", _cut, _mend, settings=OVER_LINKS),
        Fault("garbage", _garble, settings=OVER_LINKS),
    )
}
