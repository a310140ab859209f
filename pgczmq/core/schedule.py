"""Which of its partitions a worker evaluates at a step, and what it does when it is behind.

Places 0..c-1 index a worker's held partitions; ``evaluated_at[l]`` is the step at which the retained gradient
of place l was evaluated, None where there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Schedule(Protocol):
    """What to evaluate, a pure function of the step and of what is retained."""

    def places(self, worker: int, step: int, evaluated_at: Sequence[int | None]) -> tuple[int, ...]:
        """The places to evaluate at ``step``, in order; never empty."""
        ...


@dataclass(frozen=True)
class EvaluateAll:
    """Every held partition at every step: the schemes that are not pipelined."""

    def places(self, worker: int, step: int, evaluated_at: Sequence[int | None]) -> tuple[int, ...]:
        """All places in order."""
        return tuple(range(len(evaluated_at)))


@dataclass(frozen=True)
class EvaluateOne:
    """One partition a step, in rotation; whatever has no gradient yet comes first, all of it at once.

    Args:
        max_age: an age above this is not let happen when evaluating that partition now prevents it.
        stagger: places by which the rotation of worker j is ahead of that of worker j-1 (0 or 1).

    Source: schemes.md section 0, rule 4; Pipelined Gradient Coding, Sec. IV (the rotation).
    """

    max_age: int
    stagger: int = 0

    def places(self, worker: int, step: int, evaluated_at: Sequence[int | None]) -> tuple[int, ...]:
        """All places without a gradient, else exactly one."""
        load = len(evaluated_at)
        empty = tuple(place for place, at in enumerate(evaluated_at) if at is None)
        if empty:
            return empty
        turn = (step - 1 + self.stagger * (worker % load)) % load
        ages = [step - at for at in evaluated_at if at is not None]
        oldest = max(range(load), key=lambda place: (ages[place], -((place - turn) % load)))
        return (oldest if ages[oldest] > self.max_age else turn,)


class Behind(Enum):
    """What a worker in the middle of a step does when a newer step is published."""

    FINISH = "finish"
    DROP = "drop"


def when_behind(on_new_step: str, *, evaluating: bool) -> Behind:
    """The one rule for real workers and simulated ones.

    ``skip`` finishes what the step in hand asks for. ``abandon`` drops the rest of it, between partitions or
    inside an injected delay; a partition being evaluated is finished and retained first.

    Args:
        on_new_step: the scheme's setting, "skip" or "abandon".
        evaluating: a partition is being evaluated at this moment.
    """
    return Behind.DROP if on_new_step == "abandon" and not evaluating else Behind.FINISH
