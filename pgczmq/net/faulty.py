"""A plan of faults carried out in the worker's process: messages lost and spoiled, the process killed or stopped.

Nothing here is gentle: a killed worker says no goodbye, a cut one hears nothing, a spoiled message is really sent.
"""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from pgczmq.core.faults import OF_MESSAGES, Fault, FaultPlan
from pgczmq.net import wire
from pgczmq.net.compute import Memory
from pgczmq.net.conditions import Conditions
from pgczmq.net.line import Line, Sending

log = logging.getLogger("pgczmq.worker")

MANNERS = ("header", "payload", "number", "step")
"""What is wrong with a corrupt answer: garbage for a header, its payload cut short or not where it should be, something
that is no number in it, or a step that nobody asked for."""
NOT_A_STEP = 10**6
"""That is added to a step."""
_KILLED = re.compile(r"fault: kill at step \d+(?:, ([\d.e+-]+) s)?$", re.MULTILINE)
# At the other end of its standard input is the stopped process, which closes it when it runs again, or by its death.
_WAKE = """
import os, select, signal, sys
seconds = float(sys.argv[2])
while not select.select([0], [], [], seconds)[0]:
    os.write(1, b".")
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    seconds = 0.1
"""


@dataclass(frozen=True)
class _Held:
    """A message that waits for another one to overtake it."""

    line: Line
    frames: Sequence[Any]


class Faulty(Conditions):
    """What one worker's process works under while the plan is carried out.

    Each fault strikes once in the life of the process, and a kill spares the first step that it begins: a step that
    waits for this worker gets its answer from the life after.

    Args:
        plan: of the run.
        worker: its number.
    """

    def __init__(self, plan: FaultPlan, worker: int) -> None:
        self._plan = plan
        self._worker = worker
        if "slow" in plan.kinds(worker):
            self.evaluating = ""  # what sleeps does not do so on the event loop
        self._begun = self._encoded = self._answered = -1  # steps
        self._cut_until = 0.0
        self._held: _Held | None = None
        self.struck: list[tuple[str, int]] = []

    # ------------------------------------------------------------ what befalls the worker

    def begins(self, step: int) -> None:
        """Killed, stopped, cut off or slow."""
        is_first, is_new = self._begun == -1, step > self._begun
        self._begun = max(self._begun, step)
        for fault in self._planned(step):
            if fault.kind == "slow":
                self._say(fault, step)
                time.sleep(fault.seconds or 0.0)
            elif is_new and not (is_first and fault.kind == "kill"):
                self._befall(fault, step)

    def _befall(self, fault: Fault, step: int) -> None:
        match fault.kind:
            case "kill":
                self._say(fault, step)
                kill()
            case "stop":
                self._say(fault, step)
                stop(fault.seconds or 0.0)
            case "partition":
                self._say(fault, step)
                self._cut_until = time.monotonic() + (fault.seconds or 0.0)

    # ------------------------------------------------------------ what befalls its messages

    def hears(self) -> bool:
        """Nothing gets through while it is cut off."""
        return not self._is_cut()

    def send_control(self, line: Line, frames: Sequence[Any]) -> bool:
        """Send a small message, if it gets through; what is lost seems to be sent."""
        return self._is_cut() or super().send_control(line, frames)

    def send(self, line: Line, frames: Sequence[Any]) -> Sending:
        """Send; an answer that is sent for the first time as planned. What is lost seems to be sent."""
        if self._is_cut():
            return _seems_sent()
        held, self._held = self._held, None
        sending = self._send_answer(line, frames)
        if held is not None:
            _send_if_open(held)
        return sending

    def _send_answer(self, line: Line, frames: Sequence[Any]) -> Sending:
        message = wire.to_master(frames[0])
        if not isinstance(message, wire.Gradient) or message.step <= self._answered:
            return super().send(line, frames)
        step = self._answered = message.step
        way: Fault | None = None  # that it goes; of several the first
        for fault in self._planned(step):
            if fault.kind == "corrupt":
                frames = _spoiled(message, frames, _manner(fault))
            elif fault.kind in OF_MESSAGES and way is None:
                way = fault
            else:
                continue
            self._say(fault, step)
        return super().send(line, frames) if way is None else self._send_another_way(_Held(line, frames), way)

    def _send_another_way(self, answer: _Held, way: Fault) -> Sending:
        match way.kind:
            case "delay":
                asyncio.get_running_loop().call_later(way.seconds or 0.0, _send_if_open, answer)
            case "reorder":
                self._held = answer
            case "duplicate":
                _send_if_open(answer)
                return super().send(answer.line, answer.frames)
        return _seems_sent()

    def encoded(self, step: int, vector: Memory) -> None:
        """Something that is no number, as float32 and as bfloat16."""
        if step <= self._encoded:
            return
        self._encoded = step
        if any(fault.kind == "corrupt" and _manner(fault) == "number" for fault in self._planned(step)):
            vector[:4] = 0xFF

    # ------------------------------------------------------------ both

    def _planned(self, step: int) -> tuple[Fault, ...]:
        return self._plan.of(self._worker, step)

    def _is_cut(self) -> bool:
        return time.monotonic() < self._cut_until

    def _say(self, fault: Fault, step: int) -> None:
        """To the log before it happens: afterwards may be too late."""
        how = f" ({_manner(fault)})" if fault.kind == "corrupt" else ""
        lasting = "" if fault.seconds is None else f", {fault.seconds:g} s"
        log.warning("fault: %s%s at step %d%s", fault.kind, how, step, lasting)
        self.struck.append((fault.kind, step))


def conditions_of(plan: FaultPlan, worker: int) -> Conditions:
    """What this worker works under: nothing out of the common where nothing is planned for it."""
    return Faulty(plan, worker) if plan.kinds(worker) else Conditions()


def _manner(fault: Fault) -> str:
    return MANNERS[int(fault.manner * len(MANNERS))]


def _spoiled(message: wire.Gradient, frames: Sequence[Any], manner: str) -> Sequence[Any]:
    """The answer as it is sent; what is kept to be sent again stays as it is."""
    header, *payload = frames
    match manner:
        case "header":
            return [bytes(byte ^ 0xFF for byte in header), *payload]
        case "payload" if payload:
            return [header, payload[0][: len(payload[0]) // 2]]
        case "payload":
            return [wire.pack(msgspec.structs.replace(message, block=-1))]
        case "step":
            return [wire.pack(msgspec.structs.replace(message, step=message.step + NOT_A_STEP)), *payload]
        case _:
            return frames


def _seems_sent() -> Sending:
    """As after a message that has left the process."""
    sending = Sending()
    sending.tracker = zmq.MessageTracker()
    return sending


def _send_if_open(held: _Held) -> None:
    """Now or not at all: what a life of this worker left behind has nowhere to go in the next one."""
    if not held.line.closed:
        held.line.send_now(held.frames)


def kill() -> None:
    """End this process as a lost machine ends: at once, and nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop(seconds: float) -> None:
    """Stop this whole process for so many seconds; who wakes it goes when this process does, whatever happens."""
    command = [sys.executable, "-I", "-S", "-c", _WAKE, str(os.getpid()), repr(seconds)]
    # Ctrl+C must not reach it: nobody would wake this process then.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as waker:
        os.kill(os.getpid(), signal.SIGSTOP)
        # The system may give the signal to another thread, and this one goes on for a moment: not to the waker's end.
        assert waker.stdout is not None
        waker.stdout.read(1)


def again_after(said: str) -> float | None:
    """Seconds until a worker is to be started again, by what it said before a fault killed it; None for never."""
    *_, seconds = _KILLED.findall(said) or [""]
    return float(seconds) if seconds else None
