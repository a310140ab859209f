"""The views bench: runs that nobody looks at, runs with a dashboard and runs with viewers take turns.

A turn is a run of its own, real processes on this machine, dashboards and viewers on terminals of their own. Its steps
count from when everybody who looks has drawn, and the run is ended when enough of them have.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import numpy as np

from pgczmq.bench.torture.machine import free_port
from pgczmq.bench.views.compare import Interval, ratio
from pgczmq.bench.views.terminal import OnTerminal
from pgczmq.errors import PgcError
from pgczmq.runlog import StepRecord, read

Kind = Literal["nobody", "dashboard", "viewers"]
KINDS: tuple[Kind, ...] = ("nobody", "dashboard", "viewers")
VIEWERS = 3
WARM_UP = 20
"""Steps of a turn that do not count, after everybody has drawn."""
DELAY_SECONDS = 0.02
"""Injected where a task takes no time of its own, so that a step is one of tens of milliseconds."""
DRAWN_BYTES = 2000
"""Whoever has written so much to a terminal has drawn a screen."""
LOOK_SECONDS = 0.05
LIMIT_SECONDS = 120.0
RATIO_AT_MOST = 1.02
SHARE_AT_MOST = 0.02
"""What is asked for: of the interval's lower end, and of a core for a dashboard."""


@dataclass(frozen=True)
class Work:
    """What is run.

    Args:
        steps: of each turn that count.
    """

    task: str
    workers: int
    steps: int

    def settings(self, kind: Kind, port: int) -> dict[str, object]:
        """Of the run of a turn."""
        delay = {"delay.model": "constant", "delay.mean": DELAY_SECONDS} if self.task == "soak" else {}
        return {
            "name": "run",
            "task.name": self.task,
            "workers": self.workers,
            "steps": 10**6,
            "threads": 1,
            "eval.every": 0,
            "checkpoint.every": 0,
            "net.port": port,
            "ui.mode": "live" if kind == "dashboard" else "none",
        } | delay


@dataclass(frozen=True)
class Turn:
    """One run.

    Args:
        seconds: of each step that counts, from its publication to the next one.
        master: part of a core that the master took meanwhile, with its dashboard if it has one.
        viewers: part of a core that each viewer took.
    """

    seconds: tuple[float, ...]
    master: float
    viewers: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """A way of looking, over all rounds.

    Args:
        median_ratio, mean_ratio: of a step's time over that in runs that nobody looks at; None for these.
        share: of a core that a dashboard, or each viewer, took; None where there is none.
    """

    kind: Kind
    median_ms: float
    mean_ms: float
    median_ratio: Interval | None
    mean_ratio: Interval | None
    share: float | None


Take = Callable[[Kind, Work], Turn]


def measure(work: Work, rounds: int, said: Callable[[str], None], take: Take | None = None) -> list[Row]:
    """Every way of looking once a round, each round in another order; tells of each turn when it is over.

    Raises:
        PgcError: a run or a viewer failed.
    """
    turns: dict[Kind, list[Turn]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for place in range(len(KINDS)):
            kind = KINDS[(number + place) % len(KINDS)]
            turns[kind].append((take or take_turn)(kind, work))
            said(kind)
    return [row(kind, turns) for kind in KINDS]


def row(kind: Kind, turns: Mapping[Kind, Sequence[Turn]]) -> Row:
    """What came out for one way of looking."""
    mine, nobody = ([turn.seconds for turn in turns[each]] for each in (kind, "nobody"))
    every = [seconds for turn in mine for seconds in turn]
    shares = {
        "nobody": None,
        "dashboard": median(a.master - b.master for a, b in zip(turns["dashboard"], turns["nobody"], strict=True)),
        "viewers": median([share for turn in turns["viewers"] for share in turn.viewers]),
    }
    watched = kind != "nobody"
    return Row(
        kind,
        1e3 * median(every),
        1e3 * fmean(every),
        ratio(mine, nobody, np.median) if watched else None,
        ratio(mine, nobody, np.mean) if watched else None,
        shares[kind],
    )


# ---------------------------------------------------------------- a turn


def take_turn(kind: Kind, work: Work) -> Turn:
    """One run, and whoever looks at it.

    Raises:
        PgcError: something of it failed, or takes far too long.
    """
    with tempfile.TemporaryDirectory(prefix="pgc-bench-") as scratch, ExitStack() as stack:
        port, directory = free_port(), Path(scratch) / "runs" / "run"
        settings = [f"--set={key}={value}" for key, value in work.settings(kind, port).items()]
        run = stack.enter_context(OnTerminal(["local", *settings], Path(scratch)))
        _until(lambda: _steps(directory) > 0, [run])
        address = f"tcp://127.0.0.1:{port}"
        viewers = [stack.enter_context(OnTerminal(["top", address], Path(scratch))) for _ in range(VIEWERS)] * (
            kind == "viewers"
        )
        _until(lambda: all(one.drawn > DRAWN_BYTES for one in viewers), [run, *viewers])
        first = _steps(directory) + WARM_UP
        _until(lambda: _steps(directory) >= first, [run, *viewers])
        began_at, before = time.monotonic(), [one.processor for one in (run, *viewers)]
        _until(lambda: _steps(directory) > first + work.steps, [run, *viewers])
        passed = time.monotonic() - began_at
        master, *others = ((one.processor - then) / passed for one, then in zip((run, *viewers), before, strict=True))
        return Turn(tuple(_seconds(directory, first, work.steps)), master, tuple(others))


def _until(condition: Callable[[], bool], programs: Sequence[OnTerminal]) -> None:
    """Raises PgcError: one of the programs has ended before, or it takes far too long."""
    due = time.monotonic() + LIMIT_SECONDS
    while not condition():
        for program in programs:
            program.check()
        if time.monotonic() > due:
            raise PgcError(f"a turn of the views bench has hung for {LIMIT_SECONDS:g} s.")
        time.sleep(LOOK_SECONDS)


def _steps(directory: Path) -> int:
    """Steps on record."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / "steps.jsonl").read_bytes().count(b"\n")
    return 0


def _seconds(directory: Path, first: int, count: int) -> Iterator[float]:
    steps: list[StepRecord] = list(read(directory, StepRecord))[first : first + count + 1]
    return (after.published_at - step.published_at for step, after in pairwise(steps))
