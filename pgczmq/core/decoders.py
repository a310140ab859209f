"""From who has arrived to what their messages are multiplied with.

A decoder is a value. ``weights`` returns None when the arrivals are not usable; whether enough have arrived is
the engine's business. ``partial`` makes the most of arrivals that will never be usable.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pgczmq.core.codes import ALPHA_LIMIT, Code, Floats, decoding_basis

REMEMBERED_WEIGHTS = 100_000
"""How many a linear decoder keeps for patterns that come again: a few MB."""


@dataclass(frozen=True)  # no ``core.values.value``: decoders keep them for the next time
class Weights:
    """Decoding weights of the messages that are used; everybody else's is zero."""

    workers: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def uniform(cls, workers: Sequence[int], value: float) -> "Weights":
        """The same weight for each of ``workers``."""
        return cls(tuple(workers), (value,) * len(workers))


class Decoder(Protocol):
    """A rule for combining coded gradients into an estimate of the mean gradient."""

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """Weights for these arrivals, or None when they are not usable.

        Args:
            arrived: worker numbers in order of arrival.
            origin: the step's random origin in [0, 1), for decoders that must break ties fairly.
        """
        ...

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """Weights for what these arrivals recover, divided by what they recover; None when that is not worth using."""
        ...


Folds = Callable[[int, Container[int]], bool]
"""(worker, who arrived before it) -> whether its weight will be that of all others of which this is said.

Then they can be added up as they come. It is a forecast, in O(load): ``Decoder.weights`` decides.
"""


def never(worker: int, earlier: Container[int]) -> bool:
    """The weights depend on the whole set of arrivals."""
    return False


@dataclass(frozen=True)
class UniformDecoder:
    """Equal weight for every arrival: unbiased when all workers are equally likely to be late.

    Args:
        load: partitions in one message.
        least: fewer arrivals than this are not usable.

    Source: Pipelined Gradient Coding, Sec. V-B (PGC-CR), VI-A (IS-SGD); with ``least`` = workers, Sec. III (DGD).
    """

    load: int
    least: int = 1

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """1 / (arrivals * load) for everyone."""
        return self.partial(arrived, origin) if len(arrived) >= self.least else None

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """The same formula for however few."""
        return Weights.uniform(arrived, 1 / (len(arrived) * self.load)) if arrived else None

    def folds(self, worker: int, earlier: Container[int]) -> bool:
        """Everybody."""
        return True


@dataclass(frozen=True)
class FirstOfGroupDecoder:
    """The first arrival of each group of fractional repetition; the others of the group are spare.

    Source: Pipelined Gradient Coding, Sec. III (GC-FR), Sec. IV (PGC-FR).
    """

    workers: int
    load: int

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """1/n for the first of each group, once every group has one."""
        first = first_of_groups(arrived, self.load)
        return Weights.uniform(first, 1 / self.workers) if len(first) * self.load == self.workers else None

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """The same over the partitions that were recovered."""
        first = first_of_groups(arrived, self.load)
        return Weights.uniform(first, 1 / (len(first) * self.load)) if first else None

    def folds(self, worker: int, earlier: Container[int]) -> bool:
        """The first of its group."""
        begin = worker - worker % self.load
        return not any(member in earlier for member in range(begin, begin + self.load))


@dataclass(frozen=True)
class GroupMeanDecoder:
    """The mean of the arrivals of each group: every partition's share is exactly 1.

    Source: schemes.md section 2a (staggered fractional repetition).
    """

    workers: int
    load: int

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """1 / (n m) for each of a group's m arrivals, once every group has one."""
        groups = {worker // self.load for worker in arrived}
        return self._means(arrived, self.workers) if len(groups) * self.load == self.workers else None

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """The same over the partitions that were recovered."""
        return self._means(arrived, self.load * len({worker // self.load for worker in arrived}))

    def _means(self, arrived: Sequence[int], partitions: int) -> Weights | None:
        members: dict[int, int] = {}
        for worker in arrived:
            members[worker // self.load] = members.get(worker // self.load, 0) + 1
        values = tuple(1 / (partitions * members[worker // self.load]) for worker in arrived)
        return Weights(tuple(arrived), values) if arrived else None


@dataclass(frozen=True, eq=False)
class LinearDecoder:
    """The minimum-norm a with a^T B = 1^T over everyone who has arrived.

    One decomposition when built, then a small least squares for each set of missing workers, remembered.

    Args:
        code: its rank tells how many may be missing.
        alpha_limit: a solution with a larger |alpha| is not usable yet, and no partial one either.

    Source: Pipelined Gradient Coding, Sec. III and V-A; schemes.md section 3 (decoder).
    """

    code: Code
    alpha_limit: float = ALPHA_LIMIT
    _start_N: Floats = field(init=False, repr=False)
    _null_ND: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Decompose the code once."""
        start, null = decoding_basis(self.code.encode_NN, self.code.rank)
        object.__setattr__(self, "_start_N", start)
        object.__setattr__(self, "_null_ND", null)
        patterns = max(1, REMEMBERED_WEIGHTS // len(start))
        object.__setattr__(self, "_solve", lru_cache(maxsize=patterns)(self._solve))

    def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """a / n, or None when these arrivals do not span 1 or only with huge weights."""
        workers, load = self.code.coefficients_NC.shape
        missing = bytearray(b"\1" * workers)
        for worker in arrived:
            missing[worker] = 0
        if b"\1" * load in missing + missing[: load - 1]:
            return None  # all who hold some partition are missing: found without solving anything
        return self._solve(bytes(missing))

    def partial(self, arrived: Sequence[int], origin: float) -> Weights | None:
        """Least squares on the arrived rows, divided by its mean share; None also when that takes huge weights."""
        workers = sorted(arrived)
        if not workers:
            return None
        rows_WN = self.code.encode_NN[workers]
        solution: Floats = np.linalg.lstsq(rows_WN.T, np.ones(rows_WN.shape[1]), rcond=None)[0].astype(np.float64)
        mean_share = float((solution @ rows_WN).mean())
        if mean_share <= 0:
            return None
        solution /= mean_share
        if self._largest_alpha(solution, workers) > self.alpha_limit:
            return None
        return Weights(tuple(workers), tuple((solution / len(self._start_N)).tolist()))

    def _solve(self, missing_mask: bytes) -> Weights | None:
        is_missing = np.frombuffer(missing_mask, dtype=bool)
        missing, used = np.flatnonzero(is_missing), np.flatnonzero(~is_missing)
        solution = self._start_N
        if len(missing):
            z = np.linalg.lstsq(self._null_ND[missing], -self._start_N[missing], rcond=None)[0]
            solution = self._start_N + self._null_ND @ z
            solution[missing] = 0.0  # and only now check: before, the check could not fail
        if not self._sums_to_one(solution) or self._largest_alpha(solution[used], used) > self.alpha_limit:
            return None
        return Weights(tuple(used.tolist()), tuple((solution[used] / len(solution)).tolist()))

    def _largest_alpha(self, solution_W: Floats, workers: Sequence[int] | NDArray[np.intp]) -> float:
        """Largest effective weight of one copy of a partition, for N times the weights of these workers."""
        return float(np.abs(solution_W[:, None] * self.code.coefficients_NC[workers]).max())

    def _sums_to_one(self, solution_N: Floats) -> bool:
        """Whether every partition's share is 1; O(N C)."""
        workers, load = self.code.coefficients_NC.shape
        parts = solution_N[:, None] * self.code.coefficients_NC
        held = (np.arange(workers)[:, None] + np.arange(load)[None, :]) % workers
        share = np.bincount(held.ravel(), parts.ravel(), minlength=workers)
        return bool(np.abs(share - 1).max() <= 1e-6)


def first_of_groups(arrived: Sequence[int], load: int) -> list[int]:
    """The first arrival of each group of ``load`` workers, in order of arrival."""
    first: dict[int, int] = {}
    for worker in arrived:
        first.setdefault(worker // load, worker)
    return list(first.values())
