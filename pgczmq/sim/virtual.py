"""What both drivers share: how long things take, what is done beside the steps, how it ended."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pgczmq.core.pipeline import DelaySeconds
from pgczmq.core.progress import Progress

COMES_OR_GOES, UPDATES, WORKS, ARRIVES = range(4)
"""Priorities: of events at the same time, workers come and go first, then an update is done, then evaluations and
delays end, then messages arrive."""


@dataclass(frozen=True)
class Durations:
    """Virtual seconds, each a function of (worker, step, partitions evaluated, batch fraction); None is no time.

    Args:
        evaluation: of one partition; asked with 1 evaluated.
        delay: injected after the last partition; the pipeline may abandon a step in it.
        communication: from the end of that until the message is with the master.
        parameters: a function of (worker, step): from the publication until the worker has them; for runs without
            gradients only.
        update: a function of the step alone: from closing it until the next one is published.
    """

    evaluation: DelaySeconds | None = None
    delay: DelaySeconds | None = None
    communication: DelaySeconds | None = None
    parameters: Callable[[int, int], float] | None = None
    update: Callable[[int], float] | None = None

    @property
    def parts(self) -> list[DelaySeconds]:
        """Whatever takes time between having parameters and the master having the message."""
        return [part for part in (self.evaluation, self.delay, self.communication) if part is not None]


@dataclass(frozen=True)
class Aside:
    """What is done beside the steps, in no virtual time.

    Args:
        evaluate: loss and metric on the held-out data with the present parameters; None without such data.
        checkpoint: save the run as far as it is; returns what the record says of it, empty for none.
    """

    evaluate: Callable[[], tuple[float, float | None]] | None = None
    checkpoint: Callable[[Progress], str] = lambda progress: ""


@dataclass(frozen=True)
class Ending:
    """How a run ended; ``seconds`` are virtual, from the first publication to the last update."""

    exit_code: int
    reason: str
    diverged: bool
    steps: int
    seconds: float
    loss: float | None
    late_fraction: float


@dataclass
class Agenda:
    """What is still to happen: a heap of (time, priority, sequence, action, arguments)."""

    now: float = 0.0
    _heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _sequence: int = 0

    def add(self, at: float, priority: int, action: Callable[..., None], *arguments: Any) -> None:
        """At that time; of several at the same time the lowest priority first, then whichever was added first."""
        self._sequence += 1
        heapq.heappush(self._heap, (at, priority, self._sequence, action, arguments))

    @property
    def next_at(self) -> float:
        """When the next thing happens; infinite when nothing does."""
        return self._heap[0][0] if self._heap else float("inf")

    def do_next(self) -> None:
        """Let time pass to the next thing, and do it."""
        at, _, _, action, arguments = heapq.heappop(self._heap)
        if at > self.now:
            self.now = at
        action(*arguments)
