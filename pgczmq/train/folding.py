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
        """Add (worker, vector [P]) to the sum of a step, all in one pass; another step's sum is given up.

        No arrival at all still says that this step's weights will be one, so that ``combine`` may add first.
        """
        if step != self._step:
            self._step, self._workers = step, []
        if not arrivals:
            return
        terms = [out] * bool(self._workers) + [vector for _, vector in arrivals]
        blocks.weighted_sum([1.0] * len(terms), terms, out=out, threads=self._threads)
        self._workers += [worker for worker, _ in arrivals]

    def combine(self, step: int, terms: Sequence[tuple[int, float, Vector]], *, out: FloatArray) -> float:
        """out = the sum of weight * vector over (worker, weight, vector [P]); its norm. Nothing stays folded.

        With one weight for all, the vectors are added first and the sum is multiplied. Otherwise each is multiplied,
        and they are added in the order of ``terms``, to the bit: when nothing was said of this step, when a vector in
        the sum does not count, or they differ in weight, or the sum is not finite.
        """
        folded, self._workers = self._workers, []
        is_whole = sorted(folded) == sorted(worker for worker, *_ in terms if worker in folded)
        if step == self._step and is_whole and len({weight for _, weight, _ in terms}) == 1:
            vectors = [out] * bool(folded) + [vector for worker, _, vector in terms if worker not in folded]
            ones = [1.0] * len(vectors)
            norm = blocks.weighted_sum(ones, vectors, out=out, scale=terms[0][1], threads=self._threads)
            if math.isfinite(norm):
                return norm
        self._step = -1
        weights, all_vectors = [weight for _, weight, _ in terms], [vector for *_, vector in terms]
        return blocks.weighted_sum(weights, all_vectors, out=out, threads=self._threads)
