"""What is done to the programs of a soak, and when: drawn from a seed, with exponential gaps."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal

from pgczmq.core import seeds

Deed = Literal["kill", "stop", "terminate", "kill master"]
STOPS_EVERY, TERMINATIONS_EVERY = 2.0, 3.0
"""So many times as far apart as kills are."""
AWAY_SECONDS = 0.5
"""Mean until a supervisor starts again what has ended."""
STOP_SECONDS = 2.0
"""Mean that a process is stopped."""


@dataclass(frozen=True, order=True)
class Act:
    """One deed.

    Args:
        at: seconds from the beginning.
        deed: what is done.
        worker: to whom; to the next that runs, if it does not.
        seconds: how long it is stopped, or until it is started again.
    """

    at: float
    deed: Deed
    worker: int
    seconds: float


@dataclass(frozen=True)
class Mischief:
    """How often something is done; mean seconds.

    Args:
        seed: of all draws.
        workers: how many there are to choose from.
        kill_every: between kills of workers; the other deeds go by it.
        master_every: between kills of the master.
    """

    seed: int
    workers: int
    kill_every: float
    master_every: float

    def acts(self) -> Iterator[Act]:
        """All deeds, in order, without end."""
        return merge(
            self._acts("kill", self.kill_every, AWAY_SECONDS),
            self._acts("stop", STOPS_EVERY * self.kill_every, STOP_SECONDS),
            self._acts("terminate", TERMINATIONS_EVERY * self.kill_every, AWAY_SECONDS),
            self._acts("kill master", self.master_every, AWAY_SECONDS),
        )

    def _acts(self, deed: Deed, every: float, seconds: float) -> Iterator[Act]:
        draw = seeds.rng(self.seed, f"soak {deed}")
        at = 0.0
        while True:
            at += float(draw.exponential(every))
            yield Act(at, deed, int(draw.integers(self.workers)), float(draw.exponential(seconds)))
