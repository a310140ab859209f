"""Faults made on purpose: what goes wrong with which worker at which step, as a function of (seed, worker, step).

    drop, delay, duplicate, reorder, corrupt    befall the answer to the step, the first time that it is sent
    kill, stop, partition, slow                 befall the worker when it begins to evaluate at the step

Whoever asks for the same worker and step gets the same faults, in any process, in whatever order.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pgczmq.core.draws import uniform
from pgczmq.errors import ConfigError

Kind = Literal["drop", "delay", "duplicate", "reorder", "corrupt", "kill", "stop", "partition", "slow"]
OF_MESSAGES: frozenset[Kind] = frozenset({"drop", "delay", "duplicate", "reorder", "corrupt"})
HARMLESS: frozenset[Kind] = frozenset({"drop", "delay", "duplicate", "reorder", "slow"})
"""Every answer still arrives, if later: what a step is made of does not change where arrivals are planned."""
LASTING: frozenset[Kind] = frozenset({"delay", "stop", "partition", "slow"})
"""Kinds that mean nothing without ``seconds``."""


@dataclass(frozen=True)
class Fault:
    """What befalls a worker at one step.

    Args:
        seconds: that a message is late, or that a process is stopped, cut off or slower; of a kill, until the worker is
            started again, None for never.
        manner: in [0, 1): one of the ways in which it can be done, where there are several.
    """

    kind: Kind
    seconds: float | None
    manner: float


@dataclass(frozen=True)
class FaultRule:
    """When one kind of fault happens, and to whom.

    Args:
        kind: what happens.
        workers: to whom; None for everybody.
        steps: at which steps alone; None for all from ``first`` to ``last``.
        first, last: the range of steps, both included; last is None for no end.
        probability: for each of these workers and steps, independently.
        seconds: as ``Fault`` has them.

    Raises:
        ConfigError: it contradicts itself, or lacks seconds.
    """

    kind: Kind
    workers: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    first: int = 0
    last: int | None = None
    probability: float = 1.0
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Check what is said against each other."""
        if self.seconds is None and self.kind in LASTING:
            raise ConfigError(f'a fault of kind "{self.kind}" lasts for some time: got no seconds. Add seconds = 5.')
        if self.seconds is not None and self.kind not in LASTING | {"kill"}:
            raise ConfigError(
                f'a fault of kind "{self.kind}" takes no time of its own: got seconds={self.seconds:g}. Leave it out, '
                'or use kind = "delay".'
            )
        if self.steps is not None and (self.first, self.last) != (0, None):
            raise ConfigError(
                f"a fault has a list of steps or a range of them: got steps={sorted(self.steps)} and "
                f"{self._range()}. Leave one of them out."
            )
        if self.last is not None and self.last < self.first:
            raise ConfigError(f"the first step of a fault comes before its last: got {self._range()}.")
        if self.workers == frozenset() or self.steps == frozenset():
            raise ConfigError("a fault befalls some worker at some step: got an empty list. Leave it out for all.")

    def covers(self, worker: int, step: int) -> bool:
        """Whether it may happen to this worker at this step."""
        if self.workers is not None and worker not in self.workers:
            return False
        if self.steps is not None:
            return step in self.steps
        return self.first <= step and (self.last is None or step <= self.last)

    def __str__(self) -> str:
        """In words, for people."""
        whom = "every worker" if self.workers is None else _named("worker", self.workers)
        chance = "" if self.probability == 1 else f", with probability {self.probability:g}"
        lasting = "" if self.seconds is None else f", {self.seconds:g} s"
        return f"{self.kind}: {whom} at {self._when()}{chance}{lasting}"

    def _when(self) -> str:
        if self.steps is not None:
            return _named("step", self.steps)
        if self.last is None:
            return f"every step from {self.first}" if self.first else "every step"
        return f"steps {self.first} to {self.last}"

    def _range(self) -> str:
        return f"first={self.first}" + ("" if self.last is None else f", last={self.last}")


@dataclass(frozen=True)
class FaultPlan:
    """All faults of a run.

    Args:
        seed: of the run.
        rules: a later one changes nothing about those before it.
    """

    seed: int
    rules: tuple[FaultRule, ...] = ()

    def of(self, worker: int, step: int) -> tuple[Fault, ...]:
        """What befalls this worker at this step, in the order of the rules."""
        found = []
        for place, rule in enumerate(self.rules):
            if rule.covers(worker, step) and uniform(self.seed, f"fault {place}", worker, step) <= rule.probability:
                manner = 1 - uniform(self.seed, f"fault manner {place}", worker, step)
                found.append(Fault(rule.kind, rule.seconds, manner))
        return tuple(found)

    def kinds(self, worker: int) -> frozenset[Kind]:
        """What may befall this worker at some step."""
        return frozenset(rule.kind for rule in self.rules if rule.workers is None or worker in rule.workers)

    def __str__(self) -> str:
        """In words; empty where nothing is planned."""
        return "; ".join(map(str, self.rules))


def _named(what: str, numbers: frozenset[int]) -> str:
    """``workers 1, 3 to 5``"""
    ordered = sorted(numbers)
    starts = [ordered[0], *(later for earlier, later in pairwise(ordered) if later != earlier + 1)]
    ends = [*(earlier for earlier, later in pairwise(ordered) if later != earlier + 1), ordered[-1]]
    runs = [f"{first}" if first == last else f"{first} to {last}" for first, last in zip(starts, ends, strict=True)]
    return f"{what}{'s' if len(ordered) > 1 else ''} {', '.join(runs)}"
