"""A scheme of one's own in one small class: what to do with whoever has arrived.

    cd examples && pgc local --config my_scheme.toml
    cd examples && pgc explain --config my_scheme.toml --arrived 0,1,4

On VMs this file must be importable on the master and on every worker, and workers must be told that they may run it:
pgc-worker --allow my_scheme:whatever_is_there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pgczmq.core import codes, placement
from pgczmq.core.decoders import Weights
from pgczmq.core.schedule import EvaluateAll
from pgczmq.core.schemes import Scheme, Settings


@dataclass(frozen=True)
class WhateverIsThere:
    """The first arrival of each group of fractional repetition, divided by what these recover.

    Like gradient coding, but it never waits for a group of which nobody has come: an approximation.
    """

    load: int

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """1 / (load * groups that came) for the first of each group; None while nobody has come."""
        first: dict[int, int] = {}
        for worker in arrived:
            first.setdefault(worker // self.load, worker)
        return Weights.uniform(list(first.values()), 1 / (self.load * len(first))) if first else None

    partial = weights


def whatever_is_there(settings: Settings) -> Scheme:
    """Fractional repetition that closes a step after any workers - stragglers arrivals."""
    load = settings.load or 2
    return Scheme(
        name=settings.name,
        placement=placement.fractional(settings.workers, load),
        coefficients_NC=codes.ones(settings.workers, load),
        schedule=EvaluateAll(),
        decoder=WhateverIsThere(load),
        k=settings.k or settings.workers - settings.stragglers,
        takes_any_k=True,
        reads=frozenset({"stragglers", "load", "k"}),
    )
