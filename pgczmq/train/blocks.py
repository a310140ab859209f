"""Sums and norms of long float32 vectors, in blocks that stay in the processor's cache, on the threads there are.

The order of every addition is fixed by the length alone: not by the number of threads, the alignment of
the memory or the library that happens to be installed. That is what makes two runs agree to the bit.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pgczmq.train import half
from pgczmq.train.half import HalfArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]
"""What holds a vector on its way: a ZeroMQ frame's buffer, shared memory or an array. It may be read-only."""

FloatArray: TypeAlias = NDArray[np.float32]
ByteArray: TypeAlias = NDArray[np.uint8]

BLOCK = 262_144
"""Elements in a block: 12 vectors of 11.7 M take 24, 22, 20, 20 ms in blocks of 64, 128, 256 and 512 K on two threads.

Shorter ones are worth less than the turns that the threads take at the interpreter's lock.
"""

_ROW = 8192
"""Elements of a dot product: BLAS makes it on one thread up to 10,000 of them, in a third of the time of NumPy."""
_LEAST_QUICK = 1e-32
"""Below this a block's sum of squares in float32 may have lost more than its rounding to underflow."""

Work: TypeAlias = Callable[[slice, FloatArray], float]
"""What is done to a block, and a number of it; the array, as long as the block, is to be used as one likes."""


class Threads:
    """Goes through the blocks of vectors on several threads, the caller's among them.

    Args:
        count: at least 1; with 1 nothing is started.
    """

    def __init__(self, count: int) -> None:
        self._helpers = count - 1
        self._pool = ThreadPoolExecutor(max(1, self._helpers), "blocks")

    def total(self, size: int, work: Work) -> float:
        """Do the work on every block of [size]; the sum of its numbers, in the order of the blocks."""
        if size <= BLOCK:  # 3 of 6 us less for the norm of a small vector
            with np.errstate(all="ignore"):
                return work(slice(0, size), np.empty(size, np.float32))
        numbers = [0.0] * -(-size // BLOCK)
        waiting = deque(range(len(numbers)))  # whoever is free takes the next: a thread may be slow

        def take_turns() -> None:
            spare = np.empty(BLOCK, np.float32)
            with np.errstate(all="ignore"):  # what is not finite is the caller's to find
                while True:
                    try:
                        block = waiting.popleft()
                    except IndexError:
                        return
                    span = slice(block * BLOCK, min(size, (block + 1) * BLOCK))
                    numbers[block] = work(span, spare[: span.stop - span.start])

        helping = [self._pool.submit(take_turns) for _ in range(min(self._helpers, len(numbers) - 1))]
        try:
            take_turns()
        finally:  # nobody writes any more when this is left; who has not begun yet is not needed any more
            errors = [helper.exception() for helper in helping if not helper.cancel()]
        for error in filter(None, errors):
            raise error
        return reduce(add, numbers)  # sum() is compensated from Python 3.12 on


ONE = Threads(1)


def weighted_sum(
    weights: Sequence[float],
    vectors: Sequence[FloatArray | HalfArray],
    *,
    out: FloatArray | HalfArray,
    scale: float = 1.0,
    threads: Threads = ONE,
) -> float:
    """out = float32(weights[0]) * vectors[0] + float32(weights[1]) * vectors[1] + ..., in this order, in one pass.

    Args:
        weights: one a vector, rounded to float32 before use.
        vectors: float32 or bfloat16 [P], at least one; they are only read. The first may be ``out`` itself.
        out: float32 or bfloat16 [P], rounded at the end; what it held is overwritten.
        scale: what the sum is multiplied with at last, rounded to float32.

    Returns:
        The norm of the sum before it is rounded to bfloat16, as ``norm`` gives it.
    """
    scales = [np.float32(weight) for weight in weights]
    (first_scale, first), *others = zip(scales, vectors, strict=True)
    narrow = out.itemsize == 2

    def combine(span: slice, spare: FloatArray) -> float:
        total = np.empty_like(spare) if narrow else out[span].view(np.float32)
        sofar = _scaled(first_scale, first[span], total)
        for weight, vector in others:
            sofar = np.add(sofar, _scaled(weight, vector[span], spare), out=total)
        if scale != 1 or sofar is not total:
            np.multiply(sofar, np.float32(scale), out=total)
        if narrow:
            half.to_bfloat16(total, out[span].view(np.uint16))
        return square_sum(total)

    return math.sqrt(threads.total(out.size, combine))


def norm(vector: FloatArray, threads: Threads = ONE) -> float:
    """The Euclidean norm of a float32 [P], to seven digits or more.

    It is finite exactly when every element is, and 0 only when every element is.
    """
    return math.sqrt(threads.total(vector.size, lambda span, spare: square_sum(vector[span])))


def copy(source: FloatArray, out: FloatArray | HalfArray, threads: Threads = ONE) -> None:
    """Copy float32 [P] to float32 or bfloat16 [P], rounded as ``half.to_bfloat16`` does it."""

    def over(span: slice, spare: FloatArray) -> float:
        if out.itemsize == 2:
            half.to_bfloat16(source[span], out[span].view(np.uint16))
        else:
            np.copyto(out[span], source[span])
        return 0.0

    threads.total(source.size, over)


def inner(one: FloatArray, other: FloatArray, threads: Threads = ONE) -> float:
    """The inner product of two float32 [P], summed in float64."""

    def product(span: slice, spare: FloatArray) -> float:
        block = one[span].astype(np.float64)
        return float(np.add.reduce(np.multiply(block, other[span], out=block)))

    return threads.total(one.size, product)


def squared_distance(one: FloatArray, other: FloatArray, threads: Threads = ONE) -> float:
    """The squared Euclidean distance of two float32 [P], summed in float64."""

    def square(span: slice, spare: FloatArray) -> float:
        block = one[span].astype(np.float64)
        np.subtract(block, other[span], out=block)
        return float(np.add.reduce(np.square(block, out=block)))

    return threads.total(one.size, square)


def _scaled(scale: np.float32, block: FloatArray | HalfArray, spare: FloatArray) -> FloatArray:
    """The block times a number, in ``spare``; or as it is, where nothing has to be done."""
    if block.itemsize == 2:
        half.from_bfloat16(block.view(np.uint16), spare)
        block = spare
    return block.view(np.float32) if scale == 1 else np.multiply(block, scale, out=spare)


def square_sum(block: FloatArray) -> float:
    """The sum of squares, in float32 row by row; where that overflows or all but vanishes, in float64."""
    rows = block[: block.size // _ROW * _ROW].reshape(-1, _ROW)
    rest = block[rows.size :]
    quick = float(np.dot(rest, rest))
    if rows.size:  # 1 of 6 us where there are none
        products = np.matmul(rows[:, None, :], rows[:, :, None])
        quick = float(np.add.reduce(products, axis=None, dtype=np.float64)) + quick
    if _LEAST_QUICK <= quick < math.inf:
        return quick
    exact = block.astype(np.float64)
    return float(np.add.reduce(np.square(exact, out=exact)))
