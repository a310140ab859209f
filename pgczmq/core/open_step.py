"""The open step: who has answered, and whether that closes it.

How a step closes is a pure function of what is in: ``closing_now`` where answers count as they come,
``closing_as_planned`` in deterministic mode. Both are asked at every answer: while their number alone says no, that
costs O(1).
"""

import math
from bisect import insort
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby

from pgczmq.core.decoders import Weights
from pgczmq.core.events import Arrived
from pgczmq.core.policies import Plan
from pgczmq.core.schemes import Scheme
from pgczmq.core.values import value

PlannedSeconds = Callable[[int, int, int, float], float]
"""(worker, step, partitions evaluated, batch fraction) -> planned seconds until its message arrives."""


@dataclass
class OpenStep:
    """The step that is being worked on; part of the engine's state. Nobody is in both ``answers`` and ``refused``.

    The run ends with it at ``ends_at``. Once it is ``overdue``, later than ``waits_until``, "partial" does not wait for
    those who could still answer.
    """

    step: int
    plan: Plan
    opened_at: float
    origin: float
    ends_at: float = math.inf
    waits_until: float = math.inf
    overdue: bool = False
    answers: dict[int, Arrived] = field(default_factory=dict)  # in order of arrival
    refused: set[int] = field(default_factory=set)

    def excuse(self, seconds: float) -> None:
        """So long nobody listened: no deadline counts that."""
        self.ends_at += seconds
        self.waits_until += seconds

    def take(self, answer: Arrived) -> None:
        """It counts; a refusal of the worker's former life is forgotten."""
        self.refused.discard(answer.worker)
        self.answers[answer.worker] = answer

    def refuse(self, worker: int) -> None:
        """Its answer does not count, or no more."""
        self.answers.pop(worker, None)
        self.refused.add(worker)

    def is_owed(self, ready: AbstractSet[int]) -> bool:
        """Whether one of these workers has still to answer."""
        if len(self.answers) + len(self.refused) < len(ready):
            return True
        return any(worker not in self.answers and worker not in self.refused for worker in ready)

    def hoped(self, ready: AbstractSet[int]) -> list[int]:
        """Whose answer is in, or will be if these workers live on."""
        return sorted((ready | self.answers.keys()) - self.refused)


@value
class Closing:
    """How a step closes.

    Args:
        answers: those that count, in order of arrival.
        weights: what they are combined with.
        at: when, seconds.
        late: answers that are there although they were planned to come later, by worker.
        partial: they are not usable, but nobody owes another one, or it has been waited for long enough.
        seconds: planned, from the step's opening to ``at``; 0 where nothing is planned.
    """

    answers: dict[int, Arrived]
    weights: Weights
    at: float
    late: tuple[Arrived, ...] = ()
    partial: bool = False
    seconds: float = 0.0


def closing_now(scheme: Scheme, opened: OpenStep, ready: AbstractSet[int], at: float) -> Closing | None:
    """With the answers that are in; None while there are too few.

    Args:
        ready: workers that can be counted on to answer.
        at: now, seconds.
    """
    weights = scheme.usable(opened.answers, k=opened.plan.k, origin=opened.origin)
    if weights is not None:
        return Closing(opened.answers, weights, at)
    if scheme.shortfall != "partial" or (not opened.overdue and opened.is_owed(ready)):
        return None
    weights = scheme.decoder.partial(tuple(opened.answers), opened.origin)
    return None if weights is None else Closing(opened.answers, weights, at, partial=True)


def could_close(scheme: Scheme, opened: OpenStep, workers: Collection[int]) -> bool:
    """Whether the step closes when all of these answer."""
    return scheme.suffices(workers, k=opened.plan.k, origin=opened.origin)


def is_hopeless(scheme: Scheme, opened: OpenStep, ready: AbstractSet[int]) -> bool:
    """Whether everybody has answered and not even the return of all absent workers could make up for the refused."""
    if opened.is_owed(ready):
        return False
    hoped = [worker for worker in range(scheme.workers) if worker not in opened.refused]
    return not (opened.answers and could_close(scheme, opened, hoped))


def closing_as_planned(scheme: Scheme, opened: OpenStep, planned: PlannedSeconds) -> Closing | None:
    """With every real answer in, by the planned times alone; None until then.

    The step closes at the earliest planned time at which those not later are usable; all of them count.

    Source: schemes.md section 2 (deterministic mode).
    """
    if opened.refused or len(opened.answers) < scheme.workers:
        return None
    times = {
        worker: planned(worker, answer.step, answer.ages.count(0), opened.plan.batch_fraction)
        for worker, answer in opened.answers.items()
    }
    order = sorted(times, key=lambda worker: (times[worker], worker))
    in_time: list[int] = []  # by number, so that "first of a group" is the lowest
    for seconds, together in groupby(order, key=times.__getitem__):
        for worker in together:
            insort(in_time, worker)
        weights = scheme.usable(in_time, k=opened.plan.k, origin=opened.origin)
        if weights is not None:
            counted, late = order[: len(in_time)], sorted(order[len(in_time) :])
            return Closing(
                {w: replace(opened.answers[w], at=opened.opened_at + times[w]) for w in counted},
                weights,
                opened.opened_at + seconds,
                tuple(opened.answers[worker] for worker in late),
                seconds=seconds,
            )
    raise AssertionError(f"{scheme.name} is not usable with all workers")
