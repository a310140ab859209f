"""What the drivers ask of whoever computes: ``train.shared`` in gradient runs, nobody when only time counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pgczmq.core.policies import Plan, Statistics


class Update(Protocol):
    """What became of an update."""

    @property
    def finite(self) -> bool:
        """Whether it was applied and everything is a number."""
        ...

    @property
    def culprits(self) -> tuple[int, ...]:
        """Workers whose message was not finite."""
        ...

    @property
    def norm(self) -> float:
        """Euclidean norm of the estimate."""
        ...

    @property
    def statistics(self) -> Statistics | None:
        """What the run's policy reads; None when it reads nothing."""
        ...


class Training(Protocol):
    """The gradients of all workers and the parameters of the master."""

    @property
    def message_bytes(self) -> int:
        """Size of one message."""
        ...

    def publish(self, step: int, in_hand: int) -> None:
        """The present parameters are those of ``step``; those of steps before ``in_hand`` are needed no more."""
        ...

    def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
        """The worker retains the gradient at a place, at the parameters of ``step``; returns its mean loss."""
        ...

    def encode(self, worker: int) -> tuple[Any, float]:
        """The worker's message and its norm."""
        ...

    def forget(self, worker: int) -> None:
        """The worker is gone, and with it what it retained."""
        ...

    def apply(self, step: int, messages: Sequence[tuple[int, float, Any]], plan: Plan) -> Update:
        """Combine (worker, weight, message) and update the parameters, or tell why not."""
        ...


@dataclass(frozen=True)
class NoUpdate:
    """An update of a run without gradients."""

    finite: bool = True
    culprits: tuple[int, ...] = ()
    norm: float = math.nan
    statistics: Statistics | None = None


class TimingOnly:
    """No gradients at all: losses and the norms of estimates are NaN, messages empty and of norm 0."""

    message_bytes = 0
    _update = NoUpdate()

    def publish(self, step: int, in_hand: int) -> None:
        """Nothing to keep."""

    def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
        """No loss."""
        return math.nan

    def encode(self, worker: int) -> tuple[None, float]:
        """A message that the engine accepts."""
        return None, 0.0

    def forget(self, worker: int) -> None:
        """Nothing was kept."""

    def apply(self, step: int, messages: Sequence[tuple[int, float, Any]], plan: Plan) -> NoUpdate:
        """Nothing to move."""
        return self._update
