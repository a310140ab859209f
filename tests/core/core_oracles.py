"""Independent computations that the tests of the core compare with: plain loops over matrices and subsets."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

from pgczmq.core.decoders import Weights
from pgczmq.core.schemes import Scheme, Settings, build
from pgczmq.errors import ConfigError

Matrix = NDArray[np.float64]

repeatable = settings(derandomize=True, deadline=None, max_examples=100)


def identity_support(workers: int) -> Matrix:
    return np.eye(workers)


def fractional_support(workers: int, load: int) -> Matrix:
    """Block diagonal: worker j and partition k meet when they are in the same block of ``load``."""
    return np.kron(np.eye(workers // load), np.ones((load, load)))


def cyclic_support(workers: int, load: int) -> Matrix:
    """A sum of powers of the cyclic shift."""
    shift = np.roll(np.eye(workers), 1, axis=1)
    return sum((np.linalg.matrix_power(shift, power) for power in range(load)), np.zeros((workers, workers)))


def hybrid_support(workers: int, load: int, local_load: int, groups: int) -> Matrix:
    """Inside every group the inverse shift, ``local_load`` times; and the cyclic part of the rest."""
    size = workers // groups
    back = np.roll(np.eye(size), -1, axis=1)
    powers = (np.linalg.matrix_power(back, power) for power in range(1, local_load + 1))
    local = sum(powers, np.zeros((size, size)))
    return np.kron(np.eye(groups), local) + cyclic_support(workers, load - local_load)


def all_subsets(workers: int) -> Iterator[tuple[int, ...]]:
    for size in range(workers + 1):
        yield from itertools.combinations(range(workers), size)


def vector(weights: Weights, workers: int) -> Matrix:
    """Decoding weights as a vector over all workers; refuses a worker named twice."""
    assert len(set(weights.workers)) == len(weights.workers) == len(weights.values)
    full = np.zeros(workers)
    full[list(weights.workers)] = weights.values
    return full


def share(weights: Weights, encode_NN: Matrix) -> Matrix:
    """What the estimate contains of each partition, 1 = exactly its part of the mean."""
    return len(encode_NN) * vector(weights, len(encode_NN)) @ encode_NN


def biggest_independent(encode_NN: Matrix, arrived: Sequence[int]) -> int:
    """Size of a largest set of arrivals with disjoint supports: every subset is tried, biggest first."""
    rows = [sum(1 << int(k) for k in np.flatnonzero(encode_NN[worker])) for worker in arrived]
    for size in range(len(rows), 0, -1):
        if any(_disjoint(chosen) for chosen in itertools.combinations(rows, size)):
            return size
    return 0


def _disjoint(masks: Sequence[int]) -> bool:
    seen = 0
    for mask in masks:
        if seen & mask:
            return False
        seen |= mask
    return True


def builds(**given: object) -> Scheme | None:
    """The scheme, or None where it is refused."""
    try:
        return build(Settings(**given))  # type: ignore[arg-type]
    except ConfigError:
        return None
