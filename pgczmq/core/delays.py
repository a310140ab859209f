"""Straggler models: how long a worker is late, as a function of (seed, worker, step).

A model is asked for extra seconds; none of those here grows with the partitions evaluated or the batch
fraction, which are arguments because other models do.
"""

from dataclasses import dataclass
from typing import Protocol

from pgczmq.core import seeds


class DelayModel(Protocol):
    """Extra seconds before a worker's message is sent."""

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The same number for the same arguments, whoever asks."""
        ...


@dataclass(frozen=True)
class NoDelay:
    """Nobody is slowed down."""

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Zero."""
        return 0.0


@dataclass(frozen=True)
class ConstantDelay:
    """Always the same."""

    mean: float

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The constant."""
        return self.mean


@dataclass(frozen=True)
class ExponentialDelay:
    """Shift plus an exponential time, independent for every worker and step.

    Args:
        seed: of the run.
        mean: of the exponential part, seconds.
        shift: added to every draw, seconds.
    """

    seed: int
    mean: float
    shift: float = 0.0

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """shift + Exp(mean)."""
        return self.shift + self.mean * float(seeds.rng(self.seed, "delay", worker, step).standard_exponential())


@dataclass(frozen=True)
class SomeWorkers:
    """Another model for some workers, no delay for the rest."""

    model: DelayModel
    workers: frozenset[int]

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The inner model's delay where it applies."""
        if worker not in self.workers:
            return 0.0
        return self.model.seconds(worker, step, evaluated, batch_fraction)
