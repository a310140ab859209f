"""How fast virtual time goes: steps a second without gradients, and what a gradient run adds to its gradients."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pgczmq import config as configs
from pgczmq.app import build, simulate
from pgczmq.config import RunConfig
from pgczmq.core.schemes import SCHEMES
from pgczmq.runlog import Record, StepRecord

SIZES = ((12, 3, 4000), (64, 1, 800), (256, 1, 400))
"""(workers, stragglers, steps) of the rows."""
REPEATS = 3
GRADIENT_STEPS = 200
ROUNDS = 5
TURN = 10
"""Steps after which a gradient run and the bare gradients take turns."""

SMALL, LARGE = 12, 256
AT_LEAST = {"dgd": 5000.0, "is-sgd": 5000.0, "pgc-fr": 5000.0, "pgc-cr": 5000.0, "gc-cr": 2000.0, "is-gc-cr": 2000.0}
"""Steps a second that are asked for with SMALL workers."""
LARGE_AT_LEAST = 10_000 / 60
"""The same with LARGE workers, for every scheme: 10,000 steps in a minute."""
RATIO_AT_MOST = 1.15


@dataclass(frozen=True)
class Speed:
    """One row: the best of REPEATS runs by CPU time, as other processes can only make one slower.

    Args:
        worker_microseconds: the time of a step over the number of workers: the same for any number if linear.
        at_least: steps a second that are asked for; None when nothing is.
    """

    scheme: str
    workers: int
    stragglers: int
    steps: int
    steps_per_second: float
    worker_microseconds: float
    at_least: float | None


@dataclass(frozen=True)
class GradientCost:
    """A gradient run of dgd on the digits CNN, everything included, over its evaluations alone; CPU seconds.

    Args:
        run_seconds, gradient_seconds: of all rounds.
        ratio: the median of the rounds'.
        lowest, highest: of the rounds' ratios.
    """

    steps: int
    run_seconds: float
    gradient_seconds: float
    ratio: float
    lowest: float
    highest: float


def speeds(names: Sequence[str] = tuple(SCHEMES), sizes: Sequence[tuple[int, int, int]] = SIZES) -> Iterator[Speed]:
    """Timing-only runs of each scheme at each size, under exponential delays, without records."""
    for name in names:
        for workers, stragglers, steps in sizes:
            config = _timing(name, workers, stragglers, steps)
            second = min(_seconds(config) for _ in range(REPEATS)) / steps
            yield Speed(name, workers, stragglers, steps, 1 / second, 1e6 * second / workers, _at_least(name, workers))


def gradient_cost(steps: int = GRADIENT_STEPS, rounds: int = ROUNDS) -> GradientCost:
    """The cost of everything in a gradient run that is no gradient: training, messages, decisions, records.

    The first round, in which torch makes itself at home, does not count.

    Args:
        steps: of a round; a multiple of TURN.
        rounds: how many count.
    """
    config = configs.parse({"steps": steps, "scheme": {"name": "dgd"}, "eval": {"every": 0}})
    taken = [_run_and_gradient_seconds(config) for _ in range(rounds + 1)][1:]
    runs, gradients = zip(*taken, strict=True)
    ratios = [run / gradient for run, gradient in taken]
    return GradientCost(steps, sum(runs), sum(gradients), median(ratios), min(ratios), max(ratios))


def _at_least(name: str, workers: int) -> float | None:
    return LARGE_AT_LEAST if workers == LARGE else AT_LEAST.get(name) if workers == SMALL else None


def _timing(name: str, workers: int, stragglers: int, steps: int) -> RunConfig:
    table: dict[str, Any] = {"workers": workers, "steps": steps, "eval": {"every": 0}}
    table["scheme"] = {"name": name, "stragglers": stragglers}
    return configs.parse(table | {"delay": {"model": "exponential", "mean": 1.0}})


def _seconds(config: RunConfig) -> float:
    """CPU seconds of the whole simulation, one thread; building the scheme is not counted."""
    scheme = build.scheme_of(config)
    begun = time.process_time()
    simulate.time_only(config, scheme)
    return time.process_time() - begun


def _run_and_gradient_seconds(config: RunConfig) -> tuple[float, float]:
    """CPU seconds of a run, and of the same partitions and steps evaluated at the initial parameters.

    They take turns, a few steps at a time, so that a machine that slows down does so for both.
    """
    model, gradient = simulate.model_of(config), simulate.model_of(config).gradient
    turns: list[float] = []

    def take_turn(record: Record) -> None:
        if isinstance(record, StepRecord) and (record.step + 1) % TURN == 0:
            begun = time.process_time()
            for step in range(record.step + 1 - TURN, record.step + 1):
                for partition in range(config.workers):
                    gradient.evaluate(step, partition, out=gradient.empty())
            turns.append(time.process_time() - begun)

    with tempfile.TemporaryDirectory() as root:
        begun = time.process_time()
        simulate.run(config, model=model, sink=take_turn, root=Path(root))
        return time.process_time() - begun - sum(turns), sum(turns)
