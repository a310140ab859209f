"""A run's records as arrays: what pictures and tables of a run that has been are made from.

Memory is bounded by steps x workers numbers of 5 bytes; records are read one after the other and let go.

S steps, N workers, E evaluations.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pgczmq.errors import ConfigError
from pgczmq.runlog import FILES, EvalRecord, EventRecord, LatencyRecord, StepRecord, read

Array = NDArray[np.float64]
MISSING, LATE, SPARE, USED = range(4)
"""What became of a worker at a step. MISSING: no answer of it ever came."""
MOST_WORKERS = 65_536
"""More are a record of something else."""

COLUMNS = (
    "published_S",
    "closed_S",
    "applied_S",
    "loss_S",
    "k_S",
    "batch_fraction_S",
    "recovered_S",
    "mean_age_S",
    "max_age_S",
)

_Row = tuple[NDArray[np.float32], NDArray[np.uint8]]
Left = TypeVar("Left", StepRecord, EvalRecord, EventRecord, LatencyRecord)


@dataclass(frozen=True)
class Past:
    """The records of one run, the times in seconds since its first step was published.

    Args:
        step_S: numbers of the steps.
        published_S, closed_S, applied_S: when.
        loss_S: training loss, NaN where there was none.
        mean_age_S, max_age_S: of the gradients used, in steps; NaN where nothing was used.
        latency_SN: float32; seconds from publishing a step to a worker's answer, NaN where none came.
        fate_SN: uint8; MISSING, LATE, SPARE or USED.
        eval_steps_E, eval_loss_E, metric_E: held out, after so many steps; the metric is NaN where there is none.
        events: all but those that say who was late.
    """

    step_S: NDArray[np.int64]
    published_S: Array
    closed_S: Array
    applied_S: Array
    loss_S: Array
    k_S: Array
    batch_fraction_S: Array
    recovered_S: Array
    mean_age_S: Array
    max_age_S: Array
    latency_SN: NDArray[np.float32]
    fate_SN: NDArray[np.uint8]
    eval_steps_E: NDArray[np.int64]
    eval_loss_E: Array
    metric_E: Array
    events: tuple[EventRecord, ...]

    @property
    def workers(self) -> int:
        """N."""
        return int(self.latency_SN.shape[1])

    @cached_property
    def period_S(self) -> Array:
        """Seconds from applying the step before to applying this one."""
        return np.diff(self.applied_S, prepend=self.published_S[0])

    @cached_property
    def eval_at_E(self) -> Array:
        """When the steps that were evaluated had been applied."""
        places = np.searchsorted(self.step_S, self.eval_steps_E - 1)
        return self.applied_S[np.clip(places, 0, max(0, self.applied_S.size - 1))]


def read_past(directory: Path) -> Past:
    """What a run left in its directory, finished or not.

    Raises:
        ConfigError: it holds no step, or something that is no record.
    """
    try:
        numbers, rows = _read_steps(directory)
        if not numbers.size:
            raise ConfigError(f"{directory} holds no step: its run has not closed one. Try again later.")
        origin = numbers[0, 1]
        numbers[:, 1:4] -= origin
        latency_SN, fate_SN = _matrices(rows)
        events = tuple(_add_late(left(directory, EventRecord), numbers, origin, latency_SN, fate_SN))
        evals = [(one.step, one.loss, _number(one.metric)) for one in left(directory, EvalRecord)]
        evals_3E = np.array(evals, np.float64).reshape(-1, 3).T
    except (TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise ConfigError(f"the records in {directory} cannot be those of a run: {error}.") from None
    columns = dict(zip(COLUMNS, numbers[:, 1:].T, strict=True))
    return Past(
        step_S=numbers[:, 0].astype(np.int64),
        **columns,
        latency_SN=latency_SN,
        fate_SN=fate_SN,
        eval_steps_E=evals_3E[0].astype(np.int64),
        eval_loss_E=evals_3E[1],
        metric_E=evals_3E[2],
        events=events,
    )


def _read_steps(directory: Path) -> tuple[Array, list[_Row]]:
    """Step, times, loss, k, batch fraction, recovered, mean and largest age of each step; and who answered it."""
    numbers, rows, last = array("d"), list[_Row](), -1
    for step in read(directory, StepRecord):
        if step.step <= last:
            raise ValueError(f"step {step.step} follows step {last}")
        last = step.step
        ages = [age for parts in step.ages for age in parts]
        mean, most = (sum(ages) / len(ages), max(ages)) if ages else (math.nan, math.nan)
        numbers.extend((step.step, step.published_at, step.closed_at, step.applied_at, step.loss))
        numbers.extend((step.k, step.batch_fraction, step.recovered, mean, most))
        rows.append(_row(step))
    return np.array(numbers).reshape(-1, 1 + len(COLUMNS)), rows


def _row(step: StepRecord) -> _Row:
    """Latency and fate of the workers up to the last one that the step knows of."""
    everybody = (*step.arrived, *step.missing)
    if everybody and not 0 <= min(everybody) <= max(everybody) < MOST_WORKERS:
        raise ValueError(f"workers {min(everybody)} to {max(everybody)} at step {step.step}")
    count = max(everybody, default=-1) + 1
    latency_N, fate_N = np.full(count, np.nan, np.float32), np.full(count, MISSING, np.uint8)
    if len(step.arrived) != len(step.arrived_at):
        raise ValueError(f"{len(step.arrived)} answers came at {len(step.arrived_at)} times at step {step.step}")
    arrived = list(step.arrived)
    latency_N[arrived] = np.array(step.arrived_at) - step.published_at
    fate_N[arrived] = SPARE
    fate_N[list(step.used)] = USED
    return latency_N, fate_N


def _matrices(rows: Sequence[_Row]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    workers = max(fate_N.size for _, fate_N in rows)
    latency_SN = np.full((len(rows), workers), np.nan, np.float32)
    fate_SN = np.full((len(rows), workers), MISSING, np.uint8)
    for place, (latency_N, fate_N) in enumerate(rows):
        latency_SN[place, : latency_N.size] = latency_N
        fate_SN[place, : fate_N.size] = fate_N
    return latency_SN, fate_SN


def _add_late(
    events: Iterable[EventRecord],
    numbers: Array,
    origin: float,
    latency_SN: NDArray[np.float32],
    fate_SN: NDArray[np.uint8],
) -> Iterator[EventRecord]:
    """Write down who was late; the other events come out, their times set to the first step's.

    Events of steps that were done again are still there: an answer from before a step was published is not of it.
    """
    place_of = {int(step): place for place, step in enumerate(numbers[:, 0])}
    for event in events:
        if event.kind != "late":
            yield replace(event, at=event.at - origin)
            continue
        place, worker = place_of.get(-1 if event.step is None else event.step), event.worker
        if place is None or worker is None or not 0 <= worker < fate_SN.shape[1] or fate_SN[place, worker] != MISSING:
            continue
        seconds = event.at - origin - numbers[place, 1]
        if seconds >= 0:
            latency_SN[place, worker] = seconds
            fate_SN[place, worker] = LATE


def left(directory: Path, kind: type[Left]) -> Iterable[Left]:
    """Records of a file that need not be there."""
    return read(directory, kind) if (directory / FILES[kind]).exists() else ()


def _number(value: float | None) -> float:
    return math.nan if value is None else value
