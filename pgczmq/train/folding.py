"""A step's weighted sum, begun while messages still come: most schemes give all of them one weight in the end."""

import math
from collections.abc import Sequence
from typing import TypeAlias

from pgczmq.train import blocks
from pgczmq.train.blocks import FloatArray, Threads
from pgczmq.train.half import HalfArray

Vector: TypeAlias = FloatArray | HalfArray


class Folding:
    """Adds vectors as they come, and makes of the sum what the weights turn out to ask for.

    The sum is kept where the result will be, so that nobody else may write there between ``add`` and ``combine``.

    Args:
        threads: that add.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._step = -1
        self._workers: list[int] = []  # of the sum, in the order of addition

    def add(self, step: int, arrivals: Sequence[tuple[int, Vector]], *, out: FloatArray) -> None:
        """Add (worker, vector [P]) to the sum of a step, all in one pass; another step's sum is given up."""
        if step != self._step:
            self._step, self._workers = step, []
        if not arrivals:
            return
        terms = [out] * bool(self._workers) + [vector for _, vector in arrivals]
        blocks.weighted_sum([1.0] * len(terms), terms, out=out, threads=self._threads)
        self._workers += [worker for worker, _ in arrivals]

    def combine(self, step: int, terms: Sequence[tuple[int, float, Vector]], *, out: FloatArray) -> float:
        """out = the sum of weight * vector over (worker, weight, vector [P]); its norm. Nothing stays folded.

        In the order of ``terms``, to the bit, when nothing was added to the sum of this step, or when the sum is of
        no use: a vector in it does not count, or they differ in weight, or it is not finite.
        """
        folded, self._workers = self._workers, []
        members = set(folded)
        counted = [worker for worker, *_ in terms if worker in members]
        common = {weight for worker, weight, _ in terms if worker in members}
        if step == self._step and len(common) == 1 and sorted(folded) == sorted(counted):
            rest = [(weight, vector) for worker, weight, vector in terms if worker not in members]
            norm = self._sum([(common.pop(), out), *rest], out)
            if math.isfinite(norm):
                return norm
        return self._sum([(weight, vector) for _, weight, vector in terms], out)

    def _sum(self, terms: Sequence[tuple[float, Vector]], out: FloatArray) -> float:
        weights, vectors = zip(*terms, strict=True)
        return blocks.weighted_sum(weights, vectors, out=out, threads=self._threads)
