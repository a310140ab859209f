"""Which of its partitions a worker evaluates at a step, and what it does when it is behind.

Places 0..c-1 index a worker's held partitions; ``evaluated_at[l]`` is the step at which the retained gradient
of place l was evaluated, None where there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, cast


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
        if None in evaluated_at:
            return tuple(place for place, at in enumerate(evaluated_at) if at is None)
        turn = (step - 1 + self.stagger * (worker % load)) % load
        whole = cast("Sequence[int]", evaluated_at)
        oldest = min(whole)
        if step - oldest <= self.max_age:
            return (turn,)
        return (next(place for place in (*range(turn, load), *range(turn)) if whole[place] == oldest),)


class Behind(Enum):
    """What a worker in the middle of a step does when a newer step is published."""

    FINISH = "finish"  # then the newest step
    DROP = "drop"
    QUEUE = "queue"  # finish, then every step that was published meanwhile


def when_behind(on_new_step: str, *, evaluating: bool) -> Behind:
    """The one rule for real workers and simulated ones.

    ``skip`` finishes what the step in hand asks for. ``abandon`` drops the rest of it, between partitions or
    inside an injected delay; a partition being evaluated is finished and retained first. ``queue`` works through
    every step in order, as Ray actors do; the backlog grows without bound, and real runs refuse it.

    Args:
        on_new_step: the scheme's setting, "skip", "abandon" or "queue".
        evaluating: a partition is being evaluated at this moment.
    """
    if on_new_step == "queue":
        return Behind.QUEUE
    return Behind.DROP if on_new_step == "abandon" and not evaluating else Behind.FINISH
