"""What every contender computes: gradients that cost one pass over memory, and a result that can be foretold.

All parameters move together: parameter i is ``position * BASE[i % BLOCK]``. The gradients of a step add up to a move
from the position that the workers found in the parameters they were given to a whole number that follows from it
and from the step. A gradient that is lost, counted twice, of another step or from old parameters leads elsewhere,
for good: what moves the position is the difference of whole numbers, so that nothing is put right later.
Every gradient is exact in bfloat16 too.

P = number of parameters, n = number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pgczmq.errors import PgcError

FloatArray: TypeAlias = NDArray[np.float32]

BLOCK = 131_072
"""Elements that are written at a time: half a megabyte is near enough, and an operation has to be worth its call."""
SUM_BLOCK = 262_144
"""Elements that vectors are added up at a time, for the same two reasons."""
PLACES = 16
"""Positions are whole numbers from -PLACES / 2 on."""
TOLERANCE = 1e-3
"""Rounding leaves some 1e-6; the smallest mistake of any of up to 128 workers is four times this."""

_PATTERN = np.array([1, -0.5, 0.25, -1, 0.5, -0.25, 0.5, -1], np.float32)
BASE: FloatArray = np.tile(_PATTERN, BLOCK // _PATTERN.size)


@dataclass(frozen=True)
class Work:
    """Gradient descent with learning rate 1 on the mean of the workers' gradients.

    Args:
        workers: n.
        params: P.
    """

    workers: int
    params: int

    def payload_bytes(self, wire_dtype: str) -> int:
        """What all workers are given and give in a step, in "float32" or "bfloat16"."""
        return 2 * self.workers * self.params * {"float32": 4, "bfloat16": 2}[wire_dtype]

    def start(self) -> FloatArray:
        """Parameters before the first step, float32 (P,)."""
        return np.zeros(self.params, np.float32)

    def scale(self, worker: int, step: int, ends: FloatArray) -> np.float32:
        """The gradient of ``worker`` is this times BASE, repeated, where these are the first and last parameter."""
        found = self._position(ends)
        move = found - destination(found, step)
        return np.float32(move + worker - (self.workers - 1) / 2)  # the last terms add up to 0 over all workers

    def gradient(self, worker: int, step: int, params: FloatArray, *, out: FloatArray) -> None:
        """A new gradient, float32 (P,): every element of ``out`` is written once, none is read."""
        scale = self.scale(worker, step, params[[0, -1]])
        for start in range(0, out.size, BLOCK):
            block = out[start : start + BLOCK]
            np.multiply(BASE[: block.size], scale, out=block)

    def update(self, params: FloatArray, vectors: Sequence[FloatArray], first: int, last: int) -> None:
        """params[first:last] -= mean of the vectors there, in blocks that stay in the cache."""
        total = np.empty(min(SUM_BLOCK, last - first), np.float32)
        for start in range(first, last, SUM_BLOCK):
            stop = min(start + SUM_BLOCK, last)
            block = total[: stop - start]
            np.add(vectors[0][start:stop], vectors[1][start:stop], out=block)
            for vector in vectors[2:]:
                np.add(block, vector[start:stop], out=block)
            np.multiply(block, np.float32(1 / len(vectors)), out=block)
            np.subtract(params[start:stop], block, out=params[start:stop])

    def check(self, params: FloatArray, steps: int) -> None:
        """Whether these are the parameters after so many steps.

        Raises:
            PgcError: they are not.
        """
        expected = 0
        for step in range(steps):
            expected = destination(expected, step)
        for start in range(0, self.params, BLOCK):
            block = params[start : start + BLOCK]
            worst = float(np.abs(block / BASE[: block.size] - expected).max())
            if not worst <= TOLERANCE:
                raise PgcError(
                    f"the result is wrong: after {steps} steps every parameter must be at position {expected}, "
                    f"but one of those from {start} on is {worst:g} away."
                )

    def _position(self, ends: FloatArray) -> int:
        """Where the parameters are, by the first and the last of them."""
        first = float(ends[0]) / float(BASE[0])
        last = float(ends[1]) / float(BASE[(self.params - 1) % BLOCK])
        return round((first + last) / 2)


def destination(found: int, step: int) -> int:
    """Where a step leads that starts there: from even places to odd ones and back, so that every step moves."""
    return (5 * found + 2 * step + 1) % PLACES - PLACES // 2
