"""Delay models and policies as users write them, sound and not; asked for as ``own_code:name``."""

import itertools
import random
from dataclasses import dataclass

from pgczmq.core.delays import ConstantDelay, DelayModel
from pgczmq.core.draws import exponential
from pgczmq.core.policies import Finished, Needs, Plan, PolicyState
from pgczmq.core.schemes import Scheme, Settings


@dataclass(frozen=True)
class Rush:
    """Slow at every so many steps."""

    every: int
    seed: int
    stream: str

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        return (step % self.every == 0) * evaluated * exponential(self.seed, self.stream, worker, step)


def rush(every: int = 2, *, seed: int, stream: str) -> DelayModel:
    return Rush(every, seed, stream)


class Drawing:
    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        return random.random()


class Remembering:
    """Another number for the same question, once others were asked."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.told: dict[tuple[int, int], int] = {}

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        return self.told.setdefault((worker, step), next(self.numbers))


def negative() -> DelayModel:
    return ConstantDelay(-1.0)


def word() -> DelayModel:
    return ConstantDelay("1")  # type: ignore[arg-type]


class Failing:
    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        raise KeyError(worker)


class LateNegative:
    """As it should be where it is tried."""

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        return -1.0 if step > 100 else 1.0


# ---------------------------------------------------------------- policies

NOTHING = Needs()


@dataclass(frozen=True)
class Halfway:
    """One arrival, and after half of the steps all."""

    workers: int
    steps: int
    load: int = 0
    needs: Needs = NOTHING

    def first(self) -> PolicyState:
        return PolicyState(Plan(1))

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        return PolicyState(Plan(self.workers)) if finished.step + 1 >= self.steps // 2 else state


def halfway(start: int = 1, *, workers: int, steps: int, load: int) -> Halfway:
    return Halfway(workers, steps, load)


class Growing(Halfway):
    """Asks for more than there are, in the end."""

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        return PolicyState(Plan(finished.step + 1))


class Counting:
    """Remembers beside its state."""

    needs = Needs()

    def __init__(self) -> None:
        self.calls = 0

    def first(self) -> PolicyState:
        return PolicyState(Plan(1))

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        self.calls += 1
        return PolicyState(Plan(1 + self.calls % 2))


def needless(*, workers: int, steps: int) -> Halfway:
    return Halfway(workers, steps, needs=None)  # type: ignore[arg-type]


class Numbers(Halfway):
    def first(self) -> PolicyState:
        return 3  # type: ignore[return-value]


class Breaking(Halfway):
    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        raise ZeroDivisionError("oh")


# ---------------------------------------------------------------- schemes


def failing_scheme(settings: Settings) -> Scheme:
    raise ZeroDivisionError("oh")
