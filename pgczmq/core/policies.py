"""How many arrivals close a step, and how much of a minibatch is evaluated.

A policy is independent of the code. It is a value with two pure functions: ``first()`` is the state at step 0, and
``next(state, finished)`` the state at the step after one that has finished. The state has the plan of its step; the
engine holds it, and it is all that a checkpoint has to keep. Replaying the finished steps gives the same states.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from pgczmq.core.values import value

GROWTH = 1.5
"""Distances are looked at after ceil(GROWTH^m) steps of a plan, m = 0, 1, ..."""


@dataclass(frozen=True)
class Plan:
    """What one step asks for: ``k`` arrivals, and the first ceil(batch_fraction * batch_size) samples."""

    k: int
    batch_fraction: float = 1.0

    @property
    def phi(self) -> float:
        """k b, what the error floor goes with; schemes.md section 5."""
        return self.k * self.batch_fraction


def samples_of(batch_size: int, batch_fraction: float) -> int:
    """How many samples of a minibatch are evaluated: the fraction of it, rounded up, at least one."""
    # 0.3 * 10 is 3.0000000000000004 in places; a sample more or less must not depend on that.
    return max(1, math.ceil(batch_fraction * batch_size - 1e-9))


@dataclass(frozen=True)
class Needs:
    """What statistics a policy reads, so that nothing else is computed.

    Args:
        lag: for <ghat_t, ghat_{t-lag}>; 0 = not read.
        distance: |w - reference|^2, with the reference taken whenever the plan changes.
    """

    lag: int = 0
    distance: bool = False


@dataclass(frozen=True)
class Statistics:
    """What an update says of the estimates, without their tensors.

    Args:
        norm: |ghat_t|.
        inner: <ghat_t, ghat_{t-lag}>; None when nobody reads it, or there were not so many updates yet.
        distance: |w_{t+1} - reference|^2, the reference being the parameters at which the step's plan began; None at
            the steps where nobody reads it.
    """

    norm: float
    inner: float | None = None
    distance: float | None = None


@value
class Finished:
    """A step whose update is in the parameters.

    Args:
        arrived: how many arrivals closed it.
        seconds: from the run's beginning, when step 0 was published, to the closing of this one.
    """

    step: int
    arrived: int
    seconds: float
    statistics: Statistics | None = None


@dataclass(frozen=True)
class PolicyState:
    """Where a policy is; plain numbers.

    Args:
        plan: of the step that comes.
        rung: the plan's place in the policy's ladder.
        changed_at: the first step with this plan.
        counter: of the sign test.
        distance: the last one that was looked at since the plan changed.
    """

    plan: Plan
    rung: int = 0
    changed_at: int = 0
    counter: int = 0
    distance: float | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "PolicyState":
        """What ``plain`` gave."""
        return cls(**{**values, "plan": Plan(**values["plan"])})


class Policy(Protocol):
    """Sets the plan of every step."""

    @property
    def needs(self) -> Needs:
        """The statistics that ``next`` reads."""
        ...

    def first(self) -> PolicyState:
        """The state at step 0."""
        ...

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """The state at the step after this one."""
        ...


def states(policy: Policy, finished: Iterable[Finished]) -> Iterator[PolicyState]:
    """The state at every step, that of step 0 first; one more than there are finished steps."""
    state = policy.first()
    yield state
    for one in finished:
        state = policy.next(state, one)
        yield state


@dataclass(frozen=True)
class FixedPolicy:
    """The same plan at every step."""

    plan: Plan

    @property
    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def first(self) -> PolicyState:
        """The plan."""
        return PolicyState(self.plan)

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """The same."""
        return state


@dataclass(frozen=True)
class TimedPolicy:
    """bound-optimal-k: up a ladder of plans at times known in advance, see ``theory.stages``.

    Args:
        ladder: plans in order.
        leave_at: when to leave each but the last, seconds since the run's beginning, ascending.

    Source: Adaptive-k, Theorem 1.
    """

    ladder: tuple[Plan, ...]
    leave_at: tuple[float, ...]

    @property
    def needs(self) -> Needs:
        """Nothing but the time."""
        return Needs()

    def first(self) -> PolicyState:
        """The first plan that is not left at once."""
        rung = self._rung(0.0)
        return PolicyState(self.ladder[rung], rung)

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """The plan of the time at which the step closed."""
        rung = self._rung(finished.seconds)
        return state if rung == state.rung else PolicyState(self.ladder[rung], rung, finished.step + 1)

    def _rung(self, seconds: float) -> int:
        return sum(seconds >= at for at in self.leave_at)


class StationarityTest(Protocol):
    """Whether the steps since the plan changed get nowhere any more."""

    @property
    def needs(self) -> Needs:
        """The statistics it reads."""
        ...

    def look(self, state: PolicyState, finished: Finished) -> tuple[PolicyState, bool]:
        """The state with what the test remembers, and whether it fires; ``state`` is that of the finished step."""
        ...


@dataclass(frozen=True)
class StationaryPolicy:
    """adaptive-k and adaptive-k-batch: up a ladder of plans, one rung whenever a test fires.

    Args:
        ladder: plans in order; the last is kept.
        test: for stationarity, begun anew with every plan.

    Source: Adaptive-k, Algorithm 1; Adaptive-k-and-batch, Algorithm 1; rebuilt in schemes.md section 5.
    """

    ladder: tuple[Plan, ...]
    test: StationarityTest
    needs: Needs = field(init=False)

    def __post_init__(self) -> None:
        """With one plan there is nothing to decide, and nothing to be computed for it."""
        object.__setattr__(self, "needs", self.test.needs if len(self.ladder) > 1 else Needs())

    def first(self) -> PolicyState:
        """The first plan."""
        return PolicyState(self.ladder[0])

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """The same plan, or the next when the test fires."""
        rung = state.rung + 1
        if rung == len(self.ladder):
            return state
        remembered, fires = self.test.look(state, finished)
        return PolicyState(self.ladder[rung], rung, finished.step + 1) if fires else remembered


@dataclass(frozen=True)
class SignTest:
    """``pflug``: near the optimum an estimate points against an earlier one as often as along it, or more.

    A counter goes up when <ghat_t, ghat_{t-lag}> < 0, else down. It needs lr * (largest curvature) < 1: above that
    estimates alternate from the beginning, and the test fires as soon as ``burn_in`` is over.

    Args:
        threshold: fires when the counter is above it ...
        burn_in: ... and more than so many steps have the plan.
        lag: 1; for pipelined schemes their load, since estimates closer together share gradients.

    Source: Adaptive-k, Algorithm 1 (after Pflug); the lag: schemes.md section 5.
    """

    threshold: float
    burn_in: int
    lag: int = 1

    @property
    def needs(self) -> Needs:
        """The inner product."""
        return Needs(lag=self.lag)

    def look(self, state: PolicyState, finished: Finished) -> tuple[PolicyState, bool]:
        """Count; fire when there is enough against it."""
        inner = None if finished.statistics is None else finished.statistics.inner
        if inner is None:
            return state, False
        counter = state.counter + (1 if inner < 0 else -1)
        steps = finished.step + 1 - state.changed_at
        return replace(state, counter=counter), counter > self.threshold and steps > self.burn_in


@dataclass(frozen=True)
class DistanceTest:
    """``distance``: while there is progress, the distance from where the plan began grows like a power of the steps.

    Looked at after t = ceil(1.5^m) steps of the plan: S = (ln d_t - ln d_{t/1.5}) / ln 1.5, with d = |w - ref|^2, or
    |w - ref| if not ``squared`` (half of it). On stiff problems it fires far too early: hence ``min_steps``.

    Args:
        threshold: fires when S is below it.
        skip: k0: only from m > k0 on.
        min_steps: and not before so many steps of the plan.
        squared: see above.

    Source: Pesme, Dieuleveut, Flammarion, arXiv 2007.00534, as recalled in schemes.md section 5.
    """

    threshold: float
    skip: int = 5
    min_steps: int = 0
    squared: bool = True

    @property
    def needs(self) -> Needs:
        """The distance."""
        return Needs(distance=True)

    def look(self, state: PolicyState, finished: Finished) -> tuple[PolicyState, bool]:
        """At the steps that count, compare with the last of them."""
        steps = finished.step + 1 - state.changed_at
        distance = None if finished.statistics is None else finished.statistics.distance
        power = power_of(steps)
        if power is None or power < self.skip or not distance:
            return state, False
        remembered = replace(state, distance=distance)
        if state.distance is None or steps < self.min_steps:
            return remembered, False
        slope = math.log(distance / state.distance) / math.log(GROWTH) / (1 if self.squared else 2)
        return remembered, slope < self.threshold


def power_of(steps: int) -> int | None:
    """The m with ceil(GROWTH^m) = steps; None when distances are not looked at after so many steps."""
    if steps < 1:
        return None
    power = math.floor(math.log(steps) / math.log(GROWTH) + 1e-9)
    return power if math.ceil(GROWTH**power) == steps else None
