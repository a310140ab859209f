"""One cell of the matrix: a process in a state, something happens to it, and the run must come to its end.

It comes to its end when a supervisor does no more than start again whatever has ended.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgczmq.bench.torture.matrix.faults import FAULTS, Fault
from pgczmq.bench.torture.matrix.stage import Hang, Program, Stage
from pgczmq.bench.torture.matrix.states import STATES, State
from pgczmq.errors import ConfigError
from pgczmq.train import gates


@dataclass(frozen=True)
class Times:
    """How long things take; seconds.

    Args:
        away: that a process is stopped, or its link cut: at least several heartbeats, after which the other side counts
            it as gone. Connections of ZeroMQ end after 10 s.
        patience: without what is waited for that count as a hang.
    """

    away: float = 1.5
    patience: float = 60.0


OF_A_WORKER = frozenset({0, 73, 75})
"""Exit codes of a worker to which nothing happens: the run is over, its master was away for longer than it looks for
one or could not tell it that the run is over, or was interrupted."""


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Args:
        state, fault, end: which it is.
        wrong: what is wrong, as a sentence; "" when nothing is.
        codes: exit codes of the process that it happened to, in order.
        gone: seconds from the signal to its end; None when it was not to end.
        progress: seconds from when the fault was over to the next step, or to the end of the run.
        steps: that were recorded in the end.
    """

    state: str
    fault: str
    end: str
    wrong: str
    codes: tuple[int, ...]
    gone: float | None
    progress: float | None
    steps: int


def chosen(states: str, faults: str) -> list[tuple[State, Fault]]:
    """The cells that lists such as "idle,open" and "cut" name; all for "".

    Raises:
        ConfigError: there is no such state or fault.
    """
    return [(STATES[state], FAULTS[fault]) for state in _names(states, STATES) for fault in _names(faults, FAULTS)]


def _names(text: str, known: dict[str, Any]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()] or list(known)
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {name} in the matrix. There are: {', '.join(known)}.")
    return names


def run_all(cells: Sequence[tuple[State, Fault]], *, jobs: int, times: Times) -> Iterator[Outcome]:
    """The outcomes in the order of the cells, ``jobs`` at a time; whoever stops asking ends all that is going on."""
    given_up = threading.Event()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from threads.map(lambda cell: run(*cell, times=times, given_up=given_up), cells)
        finally:
            given_up.set()
            threads.shutdown(cancel_futures=True)


def run(
    state: State,
    fault: Fault,
    *,
    times: Times = Times(),
    given_up: threading.Event | None = None,
) -> Outcome:
    """One cell, in a directory that is gone afterwards.

    Args:
        times: how long things take.
        given_up: nobody wants to know any more.
    """
    with tempfile.TemporaryDirectory(prefix="pgc-matrix-") as name:
        settings = {**fault.settings, **state.settings}
        with Stage(Path(name).resolve(), settings, patience=times.patience, given_up=given_up) as stage:
            cell = _Cell(stage, state, fault, times.away)
            wrong = cell.wrong()
            return Outcome(
                state.name,
                fault.name,
                state.end,
                wrong,
                tuple(cell.struck.codes),
                cell.gone,
                cell.progress,
                len(stage.records("steps")),
            )


class _Wrong(Exception):
    """What is wrong, as a sentence."""


class _Cell:
    """A cell while it is played."""

    def __init__(self, stage: Stage, state: State, fault: Fault, away: float) -> None:
        self.stage = stage
        self.state = state
        self.fault = fault
        self.away = away
        self.struck = state.struck(stage)
        self.gone: float | None = None
        self.progress: float | None = None

    def wrong(self) -> str:
        """Play it; returns what goes wrong."""
        try:
            self.state.reach(self.stage)
        except Hang as error:
            return f"the state is not reached: {error}"
        try:
            self._strike()
            self._go_on()
        except Hang as error:
            return f"HANG: {error}"
        except _Wrong as error:
            return str(error)
        return ""

    def _strike(self) -> None:
        stage, struck, begun = self.stage, self.struck, time.monotonic()
        self.fault.strike(stage, struck)
        if not self.fault.ends:
            stage.set_free()
            stage.pause(self.away)
            self.fault.mend(stage, struck)
            return
        if self.state.finishes:
            gates.open_again(stage.gates, self.state.finishes)
        stage.until(lambda: not struck.lives, f"the end of {struck.name}")
        self.gone = time.monotonic() - begun
        self._check_code(struck, self.fault.codes[self.state.end] | ({0} if self.state.last else set()))
        stage.set_free()

    def _go_on(self) -> None:
        """The fault is over."""
        begun, before = time.monotonic(), self._newest_step()
        over = False

        def is_over() -> bool:
            nonlocal over
            over = self._look_after_all(over)
            if self.progress is None and (over or self._newest_step() > before):
                self.progress = time.monotonic() - begun
            return over and not any(program.process for program in self.stage.programs)

        self.stage.until(is_over, "the end of the run and of everybody")
        self._check_records()

    def _look_after_all(self, over: bool) -> bool:
        """What a supervisor does; returns whether the run is over."""
        for worker in self.stage.workers:
            self._check_code(worker, OF_A_WORKER)
        self._check_code(self.stage.master, {0})
        master = self.stage.master
        if over or 0 in master.codes:
            return True
        for program in self.stage.programs:
            done = program.codes[-1:] == [0]  # and the master may still be writing its last checkpoint
            if program.process is None and not done:
                self.stage.start_again(program)
        return False

    def _check_code(self, program: Program, allowed: AbstractSet[int]) -> None:
        code = program.collect()
        if code is not None and code not in allowed:
            raise _Wrong(f"{program.name} ended with code {code}, not {' or '.join(map(str, sorted(allowed)))}")

    def _newest_step(self) -> int:
        return max((step["step"] for step in self.stage.records("steps")), default=-1)

    def _check_records(self) -> None:
        steps = [step["step"] for step in self.stage.records("steps")]
        if steps != list(range(self.stage.steps)):
            raise _Wrong(f"recorded steps are not one after the other: {steps}")
        for program in self.stage.programs:
            if "Traceback" in program.said():
                raise _Wrong(f"there is a traceback in the log of {program.name}: {program.said()[-1500:]}")
        self.stage.until(lambda: not self.stage.leftovers(), "the end of all that was left")
