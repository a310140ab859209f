"""Straggler models: how long a worker is late, as a function of (seed, worker, step).

A model is asked for extra seconds, with the partitions evaluated and the batch fraction. Nothing scales with these
two except inside ``Proportional`` (what ``[delay.computation]`` means) and in ``traces``; every model says so.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from pgczmq.core import seeds
from pgczmq.core.draws import exponential
from pgczmq.errors import ConfigError


class DelayModel(Protocol):
    """Extra seconds before a worker's message is sent."""

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The same number for the same arguments, whoever asks."""
        ...


@dataclass(frozen=True)
class NoDelay:
    """Nobody is slowed down. Nothing scales."""

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Zero."""
        return 0.0


@dataclass(frozen=True)
class ConstantDelay:
    """Always the same. Nothing scales."""

    mean: float

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The constant."""
        return self.mean


@dataclass(frozen=True)
class ExponentialDelay:
    """Shift plus an exponential time, independent for every worker and step. Nothing scales.

    Args:
        seed: of the run.
        mean: of the exponential part, seconds.
        shift: added to every draw, seconds.
        stream: names the random numbers, so that two models of one run are independent.
    """

    seed: int
    mean: float
    shift: float = 0.0
    stream: str = "delay"

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """shift + Exp(mean)."""
        return self.shift + self.mean * exponential(self.seed, self.stream, worker, step)


@dataclass(frozen=True)
class ParetoDelay:
    """A heavy tail: P(more than t) = (least / t)^shape, independent for every worker and step. Nothing scales.

    Args:
        seed: of the run.
        mean: seconds; ``least`` is mean (shape - 1) / shape.
        shape: above 1, where a mean exists; the variance exists above 2.
        stream: names the random numbers.

    Raises:
        ConfigError: a shape without a mean.
    """

    seed: int
    mean: float
    shape: float
    stream: str = "delay"

    def __post_init__(self) -> None:
        """Check the shape."""
        if not self.shape > 1:
            raise ConfigError(f"a Pareto delay has a mean for shapes above 1 only: got shape={self.shape:g}.")

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """least * exp(Exp(1) / shape)."""
        least = self.mean * (self.shape - 1) / self.shape
        return least * math.exp(exponential(self.seed, self.stream, worker, step) / self.shape)


@dataclass(frozen=True)
class BimodalDelay:
    """Some workers are slow for the whole run: Exp(mean) for most, Exp(mean * factor) for these. Nothing scales.

    Args:
        seed: of the run.
        mean: of the others, seconds.
        factor: by which the slow ones are slower.
        slow: who is slow; see ``slow_workers``.
        stream: names the random numbers.
    """

    seed: int
    mean: float
    factor: float
    slow: frozenset[int]
    stream: str = "delay"

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Exponential with the worker's own mean."""
        mean = self.mean * self.factor if worker in self.slow else self.mean
        return mean * exponential(self.seed, self.stream, worker, step)


def slow_workers(seed: int, candidates: Collection[int], fraction: float) -> frozenset[int]:
    """The nearest whole number of workers to a fraction of the candidates, chosen by the seed."""
    order = seeds.rng(seed, "slow workers").permutation(sorted(candidates)).tolist()
    return frozenset(order[: round(fraction * len(order))])


@dataclass(frozen=True)
class SomeWorkers:
    """Another model for some workers, no delay for the rest. Scales as the other model does."""

    model: DelayModel
    workers: frozenset[int]

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The inner model's delay where it applies."""
        if worker not in self.workers:
            return 0.0
        return self.model.seconds(worker, step, evaluated, batch_fraction)


@dataclass(frozen=True)
class Proportional:
    """Another model's draw is the time of one whole minibatch.

    It scales with the partitions evaluated and with the batch fraction; one draw a step counts for all partitions,
    since it is the worker that is slow.

    Source: schemes.md section 5, b Y in models 1 and 2.
    """

    model: DelayModel

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """evaluated * batch fraction * the draw."""
        return evaluated * batch_fraction * self.model.seconds(worker, step, evaluated, batch_fraction)


@dataclass(frozen=True)
class TwoParts:
    """Computation first, then communication, each a model of its own. Each scales as its model does."""

    computation: DelayModel
    communication: DelayModel

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Both together."""
        return sum(self.parts(worker, step, evaluated, batch_fraction))

    def parts(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> tuple[float, float]:
        """(computation, communication), seconds."""
        asked = (worker, step, evaluated, batch_fraction)
        return self.computation.seconds(*asked), self.communication.seconds(*asked)


@dataclass(frozen=True)
class Failure:
    """A worker that is gone for a while.

    Args:
        down_at: when it goes, seconds since step 0 was published.
        back_at: when a new life of it joins; None if it never does.

    Raises:
        ConfigError: it would come back before it goes.
    """

    worker: int
    down_at: float
    back_at: float | None = None

    def __post_init__(self) -> None:
        """Check the order of the two times."""
        if self.back_at is not None and not self.down_at < self.back_at:
            raise ConfigError(
                f"a worker comes back after it went: got worker={self.worker}, down_at={self.down_at:g}, "
                f"back_at={self.back_at:g}."
            )

    def covers(self, worker: int, at: float) -> bool:
        """Whether this worker is gone at this time."""
        return worker == self.worker and self.down_at <= at and (self.back_at is None or at < self.back_at)
