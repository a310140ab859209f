"""Ignore-straggler gradient coding: a largest set of arrivals no two of which hold a common partition.

What is recovered is what these workers hold; the estimate is the sum of their messages over the partitions
recovered. The step's random origin turns every tie, since a fixed rule would favour some partitions for ever.

Source: schemes.md section 4, from the code of the authors of IS-GC.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from pgczmq.core.decoders import Weights, first_of_groups
from pgczmq.core.placement import Placement
from pgczmq.errors import ConfigError

EXACT_SEARCH_AT_MOST = 32


@dataclass(frozen=True)
class _IndependentSetDecoder:
    """Weight 1 / (load * size of the set) for the members of a largest independent set."""

    workers: int
    load: int

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """Uniform over a largest set; None for no arrival."""
        chosen = self.largest(arrived, origin)
        return Weights.uniform(chosen, 1 / (self.load * len(chosen))) if chosen else None

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """The same: the estimate is always divided by what it contains."""
        return self.weights(arrived, origin)

    def largest(self, arrived: Sequence[int], origin: float) -> list[int]:
        """A largest set of arrivals without a common partition."""
        raise NotImplementedError


@dataclass(frozen=True)
class FractionalIndependentSet(_IndependentSetDecoder):
    """Fractional repetition: the first arrival of each group."""

    def largest(self, arrived: Sequence[int], origin: float) -> list[int]:
        """One worker a group."""
        return first_of_groups(arrived, self.load)


@dataclass(frozen=True)
class CyclicIndependentSet(_IndependentSetDecoder):
    """Cyclic repetition: a greedy walk round the circle from each of the first few arrivals; O(load * arrived)."""

    def largest(self, arrived: Sequence[int], origin: float) -> list[int]:
        """The longest of the walks."""
        if not arrived:
            return []
        circle = sorted(arrived)
        turn = int(origin * len(circle))
        circle = circle[turn:] + [worker + self.workers for worker in circle[:turn]]
        walks = (self._walk(circle, start) for start in range(len(circle)) if circle[start] - circle[0] < self.load)
        return [worker % self.workers for worker in max(walks, key=len)]

    def _walk(self, circle: list[int], start: int) -> list[int]:
        first = last = circle[start]
        chosen = [first]
        for worker in circle[start + 1 :] + [worker + self.workers for worker in circle[:start]]:
            if worker - last >= self.load and first + self.workers - worker >= self.load:
                chosen.append(worker)
                last = worker
        return chosen


_Chosen: TypeAlias = "tuple[int, int, Any]"
"""Workers chosen so far, the last of them first: (how many, the last, those before it). Longer by one in O(1)."""

_NOBODY: _Chosen = (0, -1, None)


_count = itemgetter(0)


def _listed(chosen: _Chosen) -> list[int]:
    backwards = []
    while chosen[0]:
        backwards.append(chosen[1])
        chosen = chosen[2]
    return backwards[::-1]


@dataclass(frozen=True)
class HybridIndependentSet(_IndependentSetDecoder):
    """Hybrid repetition with conflicts inside a group and between neighbours: a dynamic programme round the circle.

    At most one worker of a group can be chosen, so the state is who (or nobody) was chosen in the last group.
    """

    groups: int
    conflicts: tuple[frozenset[int], ...] = field(repr=False)

    def largest(self, arrived: Sequence[int], origin: float) -> list[int]:
        """The best closed walk over the choices of the first group."""
        turn = int(origin * self.workers)
        size = self.workers // self.groups
        members: list[list[int]] = [[] for _ in range(self.groups)]
        for worker in sorted(arrived, key=lambda worker: ((worker - turn) % size, worker)):  # every group turns
            members[worker // size].append(worker)
        start = turn // size
        ring = members[start:] + members[:start]
        most = min(sum(1 for group in ring if group), self.workers // self.load)
        best: list[int] = []
        for first in (*ring[0], None):
            found = self._around(first, ring[1:])
            best = found if len(found) > len(best) else best
            if len(best) == most:
                break
        return best

    def _around(self, first: int | None, ring: list[list[int]]) -> list[int]:
        best: dict[int | None, _Chosen] = {first: _NOBODY if first is None else (1, first, _NOBODY)}
        for group in ring:
            following: dict[int | None, _Chosen] = {None: max(best.values(), key=_count)}
            for worker in group:
                conflicts = self.conflicts[worker]
                reachable = [chosen for last, chosen in best.items() if last not in conflicts]
                if reachable:
                    longest = max(reachable, key=_count)
                    following[worker] = (longest[0] + 1, worker, longest)
            best = following
        closed = [chosen for last, chosen in best.items() if not self._clash(first, last)]
        return _listed(max(closed, key=_count, default=_NOBODY))

    def _clash(self, first: int | None, last: int | None) -> bool:
        return first is not None and last is not None and first != last and first in self.conflicts[last]


@dataclass(frozen=True)
class ExactIndependentSet(_IndependentSetDecoder):
    """Any placement of few workers: branch and bound. Ties turn with the origin inside each of ``groups``."""

    conflicts: tuple[frozenset[int], ...] = field(repr=False)
    groups: int = 1

    def largest(self, arrived: Sequence[int], origin: float) -> list[int]:
        """Exact for up to EXACT_SEARCH_AT_MOST workers."""
        turn, size = int(origin * self.workers), self.workers // self.groups
        order = sorted(arrived, key=lambda worker: ((worker - turn) % size, (worker - turn) % self.workers))
        return self._search(order, [])

    def _search(self, candidates: list[int], best: list[int]) -> list[int]:
        """A largest independent subset of ``candidates`` if larger than ``best``, else ``best``."""
        if not candidates:
            return []
        found: list[int] = []
        while len(candidates) > max(len(found), len(best)):
            # Whoever has least conflicts, or one of those it conflicts with, is in some largest set.
            pick = min(candidates, key=lambda worker: sum(other in self.conflicts[worker] for other in candidates))
            rest = [other for other in candidates if other != pick and other not in self.conflicts[pick]]
            with_pick = [pick, *self._search(rest, (found if len(found) > len(best) else best)[1:])]
            if len(with_pick) > len(found):
                found = with_pick
            if sum(other in self.conflicts[pick] for other in candidates) <= 1:
                break  # an isolated or pendant worker: taking it is never worse
            candidates = [other for other in candidates if other != pick]
        return found


def conflicts_of(placement: Placement) -> tuple[frozenset[int], ...]:
    """For each worker, the others that hold a partition of its own; O(workers * load^2)."""
    holders: dict[int, list[int]] = {}
    for worker, held in enumerate(placement.held):
        for partition in held:
            holders.setdefault(partition, []).append(worker)
    return tuple(
        frozenset(other for partition in held for other in holders[partition] if other != worker)
        for worker, held in enumerate(placement.held)
    )


def hybrid_decoder(placement: Placement, *, local_load: int, groups: int) -> _IndependentSetDecoder:
    """The fastest exact decoder for a hybrid placement.

    Raises:
        ConfigError: none is fast enough for so many workers.
    """
    workers, load, size = placement.workers, placement.load, placement.workers // groups
    if local_load == 0:
        return CyclicIndependentSet(workers, load)
    sizes = range(load, min(2 * load - 1, load + local_load) + 1)
    if size in sizes:
        return HybridIndependentSet(workers, load, groups, conflicts_of(placement))
    if workers <= EXACT_SEARCH_AT_MOST:
        return ExactIndependentSet(workers, load, conflicts_of(placement), groups)
    fitting = [count for count in range(1, workers + 1) if workers % count == 0 and workers // count in sizes]
    named = f"groups={min(fitting, key=lambda count: abs(count - groups))}, or " if fitting else ""
    raise ConfigError(
        f"is-gc-hr with over {EXACT_SEARCH_AT_MOST} workers needs workers / groups between load and "
        f"min(2 load - 1, load + local_load): got workers={workers}, groups={groups} ({size} a group), load={load}, "
        f"local_load={local_load}. Nearest valid: {named}local_load=0."
    )
