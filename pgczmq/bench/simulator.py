"""How fast virtual time goes: steps a second without gradients, and what a gradient run adds to its gradients."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgczmq import config as configs
from pgczmq.app import build, simulate
from pgczmq.config import RunConfig
from pgczmq.core.schemes import SCHEMES

SIZES = ((12, 3, 4000), (64, 1, 800), (256, 1, 200))
"""(workers, stragglers, steps) of the rows."""
REPEATS = 3
GRADIENT_STEPS = 400


@dataclass(frozen=True)
class Speed:
    """One row: the best of REPEATS runs by CPU time, as other processes can only make one slower."""

    scheme: str
    workers: int
    stragglers: int
    steps: int
    steps_per_second: float


@dataclass(frozen=True)
class GradientCost:
    """A gradient run of dgd on the digits CNN, everything included, over its evaluations alone; CPU seconds."""

    steps: int
    run_seconds: float
    gradient_seconds: float
    ratio: float


def speeds(names: Sequence[str] = tuple(SCHEMES), sizes: Sequence[tuple[int, int, int]] = SIZES) -> Iterator[Speed]:
    """Timing-only runs of each scheme at each size, under exponential delays, without records."""
    for name in names:
        for workers, stragglers, steps in sizes:
            config = _timing(name, workers, stragglers, steps)
            best = min(_seconds(config) for _ in range(REPEATS))
            yield Speed(name, workers, stragglers, steps, steps / best)


def gradient_cost(steps: int = GRADIENT_STEPS) -> GradientCost:
    """The cost of everything in a gradient run that is no gradient: training, messages, decisions, records."""
    config = configs.parse({"steps": steps, "scheme": {"name": "dgd"}, "eval": {"every": 0}})
    runs, gradients = [], []
    for _ in range(REPEATS):
        runs.append(_run_cpu_seconds(config))
        gradients.append(_gradient_cpu_seconds(config))
    return GradientCost(steps, min(runs), min(gradients), min(runs) / min(gradients))


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


def _run_cpu_seconds(config: RunConfig) -> float:
    model = simulate.model_of(config)
    with tempfile.TemporaryDirectory() as root:
        begun = time.process_time()
        simulate.run(config, model=model, sink=lambda record: None, root=Path(root))
        return time.process_time() - begun


def _gradient_cpu_seconds(config: RunConfig) -> float:
    """The same partitions and steps, evaluated at the initial parameters."""
    gradient = simulate.model_of(config).gradient
    begun = time.process_time()
    for step in range(config.steps):
        for partition in range(config.workers):
            gradient.evaluate(step, partition, out=gradient.empty())
    return time.process_time() - begun
