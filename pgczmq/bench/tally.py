"""What one run comes to, in figures: read off its records as they come, simulated or real.

A run's loss at a step is the mean of the last 25 step losses that are numbers (schemes.md section 0, rule 6). What has
been spent is counted as in schemes.md section 5: batch fraction times batch size samples a partition evaluated, by each
worker at every step; n + k vectors a step.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pgczmq.app import build
from pgczmq.config import RunConfig
from pgczmq.core.policies import samples_of
from pgczmq.core.schedule import EvaluateAll
from pgczmq.runlog import EvalRecord, LatencyRecord, Record, StepRecord

WINDOW = 25
POINTS = 60


@dataclass(frozen=True)
class Goal:
    """What is read off a run.

    Args:
        level: to be reached; None for nothing.
        also: levels on the way whose cost is noted too.
        of: "loss" of the steps, or the "metric" of the held-out evaluations, where less is better too.
        horizons: seconds at which the metric is read.
        until: whether a simulated run goes on when the level is reached.
    """

    level: float | None = None
    also: tuple[float, ...] = ()
    of: Literal["loss", "metric"] = "loss"
    horizons: tuple[float, ...] = ()
    until: Literal["end", "goal"] = "end"


class GoalReached(Exception):
    """Raised out of a run that goes no further than its goal."""


@dataclass(frozen=True)
class Spent:
    """Up to a moment of a run.

    Args:
        step: its number.
        seconds: since step 0 was published.
        samples: in the minibatches that gradients were made of, replicas counted once; late ones too, as soon as they
            are reported, but none that a worker abandoned.
        computation: samples that each worker evaluated.
        communication: vectors sent, both ways.
    """

    step: int
    seconds: float
    samples: int
    computation: float
    communication: int


@dataclass(frozen=True)
class Curve:
    """Losses of a run at up to POINTS of its steps, None where not finite, and the second at which each was applied."""

    steps: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    loss: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Row:
    """A run's figures; None where there is none, as for the losses of a run without gradients.

    Args:
        reached: what was spent until the goal; None when it was not reached or there is none.
        spent: in the whole run.
        loss: at the end, over the last steps.
        held_out, metric: of the last evaluation of held-out data.
        at: metric at each horizon.
        also: what was spent until each level on the way.
        mean_age: of the gradients in the estimates, in steps.
        max_alpha: largest effective weight of any.
        worst_loss: the largest of a single step, over the first.
    """

    label: str
    seed: int
    steps: int
    seconds: float
    seconds_per_step: float | None
    reached: Spent | None
    spent: Spent
    loss: float | None
    held_out: float | None
    metric: float | None
    at: tuple[float | None, ...]
    recovered: float
    mean_age: float
    max_alpha: float | None
    worst_loss: float | None
    last_k: int
    diverged: bool
    curve: Curve
    also: tuple[Spent | None, ...] = ()


@dataclass
class Tally:
    """A sink that adds a run up.

    Args:
        config: of the run.
        goal: what is read off it.
    """

    config: RunConfig
    goal: Goal
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _curve: list[tuple[int, float, float]] = field(default_factory=list)
    _at: list[float | None] = field(default_factory=list)
    _spent: Spent = Spent(-1, 0.0, 0, 0.0, 0)
    _reached: Spent | None = None
    _begun_at: float | None = None
    _first_loss: float = math.nan
    _worst_loss: float = -math.inf
    _recovered: float = 0.0
    _ages: float = 0.0
    _max_alpha: float = 0.0
    _last_k: int = 0
    _steps: int = 0
    _evaluation: EvalRecord | None = None
    _seen: dict[int, int] = field(default_factory=dict)  # step -> bits of the partitions evaluated at it
    _sizes: dict[int, int] = field(default_factory=dict)  # step -> samples of a minibatch at it
    _counted: dict[int, int] = field(default_factory=dict)  # step -> partitions of it that are in the samples

    def __post_init__(self) -> None:
        self._computation = computation_of(self.config)
        self._vectors = vectors_of(self.config)
        self._also: list[Spent | None] = [None] * len(self.goal.also)

    def see(self, record: Record) -> None:
        """Take a record in; steps, answers and evaluations count.

        Raises:
            GoalReached: the run is to go no further.
        """
        if isinstance(record, LatencyRecord):
            self._see_answer(record)
        elif isinstance(record, StepRecord):
            self._see_step(record)
        elif isinstance(record, EvalRecord):
            self._see_evaluation(record)

    def row(self, label: str, *, diverged: bool) -> Row:
        """The figures, when the run is over."""
        steps, spent = self._steps, self._spent
        first, worst = self._first_loss, self._worst_loss
        evaluation = self._evaluation
        return Row(
            label=label,
            seed=self.config.seed,
            steps=steps,
            seconds=spent.seconds,
            seconds_per_step=spent.seconds / steps if steps else None,
            reached=self._reached,
            spent=spent,
            loss=_finite(self._loss()),
            held_out=_finite(evaluation.loss) if evaluation else None,
            metric=_finite(evaluation.metric) if evaluation else None,
            at=tuple(self._at + [None] * (len(self.goal.horizons) - len(self._at))),
            recovered=self._recovered / max(1, steps),
            mean_age=self._ages / max(1, steps),
            max_alpha=_finite(self._max_alpha),
            worst_loss=_finite(worst / first) if first else None,
            last_k=self._last_k,
            diverged=diverged,
            curve=_thinned(self._curve),
            also=tuple(self._also),
        )

    def _see_step(self, step: StepRecord) -> None:
        if self._begun_at is None:
            self._begun_at = step.published_at
        seconds, before = step.applied_at - self._begun_at, self._spent
        self._note_horizons(seconds)
        self._spent = Spent(
            step.step,
            seconds,
            before.samples + self._samples_of_step(step),
            before.computation + self._computation(step),
            before.communication + self._vectors(step),
        )
        self._steps += 1
        self._recovered += step.recovered
        self._ages += _mean([age for ages in step.ages for age in ages])
        self._max_alpha = max(self._max_alpha, step.max_alpha)
        self._last_k = step.k
        if math.isfinite(step.loss):  # it never is in a run without gradients
            self._see_loss(step, seconds)

    def _see_answer(self, answer: LatencyRecord) -> None:
        """Whatever was evaluated and retained: in time, or late for its own step."""
        seen = self._seen.get(answer.step, 0)
        for partition in answer.partitions:
            seen |= 1 << partition
        self._seen[answer.step] = seen
        if answer.step in self._sizes:
            more = self._count(answer.step, seen.bit_count())
            self._spent = replace(self._spent, samples=self._spent.samples + more)

    def _count(self, step: int, partitions: int) -> int:
        """Samples that are new, now that so many partitions of a step are known."""
        before = self._counted.get(step, 0)
        self._counted[step] = max(before, partitions)
        return self._sizes[step] * (self._counted[step] - before)

    def _samples_of_step(self, step: StepRecord) -> int:
        """Of the step that has closed; answers that come later, or are told of later, are added as they come."""
        self._sizes[step.step] = samples_of(self.config.task.batch_size, step.batch_fraction)
        return self._count(step.step, max(step.fresh, self._seen.get(step.step, 0).bit_count()))

    def _see_loss(self, step: StepRecord, seconds: float) -> None:
        if not self._recent:
            self._first_loss = step.loss
        self._recent.append(step.loss)
        self._worst_loss = max(self._worst_loss, step.loss)
        self._curve.append((step.step, seconds, self._loss()))
        if self.goal.of == "loss":
            self._compare(self._loss())

    def _see_evaluation(self, record: EvalRecord) -> None:
        self._note_horizons(record.at - (self._begun_at or 0.0))
        self._evaluation = record
        if self.goal.of == "metric" and record.metric is not None:
            self._compare(record.metric)

    def _note_horizons(self, seconds: float) -> None:
        """The metric at a horizon is that of the last evaluation before it."""
        while len(self._at) < len(self.goal.horizons) and self.goal.horizons[len(self._at)] < seconds:
            self._at.append(_finite(self._evaluation.metric) if self._evaluation else None)

    def _compare(self, value: float) -> None:
        for place, level in enumerate(self.goal.also):
            if self._also[place] is None and value <= level:
                self._also[place] = self._spent
        if self._reached is None and self.goal.level is not None and value <= self.goal.level:
            self._reached = self._spent
            if self.goal.until == "goal":
                raise GoalReached

    def _loss(self) -> float:
        return _mean(self._recent)


def computation_of(config: RunConfig) -> Callable[[StepRecord], float]:
    """How many samples each worker evaluates for a step; warm-up is not counted."""
    size = config.task.batch_size
    if config.scheme.name == build.ASYNC:
        return lambda step: size / config.workers
    scheme = build.scheme_of(config)
    partitions = scheme.placement.load if isinstance(scheme.schedule, EvaluateAll) else 1
    return lambda step: partitions * samples_of(size, step.batch_fraction)


def vectors_of(config: RunConfig) -> Callable[[StepRecord], int]:
    """How many vectors a step moves: parameters to every worker, and k answers."""
    if config.scheme.name == build.ASYNC:
        return lambda step: 2
    return lambda step: config.workers + len(step.arrived)


def _mean(values: Sequence[float] | deque[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _thinned(curve: Sequence[tuple[int, float, float]]) -> Curve:
    """At most POINTS of the points, the first and the last among them, with five digits."""
    if not curve:
        return Curve()
    count = min(POINTS, len(curve))
    places = sorted({round(place * (len(curve) - 1) / max(1, count - 1)) for place in range(count)})
    steps, seconds, loss = zip(*(curve[place] for place in places), strict=True)
    losses = tuple(_short(value) if math.isfinite(value) else None for value in loss)
    return Curve(steps, tuple(map(_short, seconds)), losses)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
