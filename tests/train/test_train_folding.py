"""What was folded while the weights were unknown gives the same estimate, or is not used."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pgczmq.train import blocks, half
from pgczmq.train.blocks import BLOCK, Threads
from pgczmq.train.folding import Folding

LENGTH = 2 * BLOCK + 3
VECTORS = list(np.random.default_rng(0).standard_normal((5, LENGTH)).astype(np.float32))
EQUAL = [(worker, 0.2, VECTORS[worker]) for worker in range(5)]


class Place:
    """A folding, and the memory of its estimate."""

    def __init__(self, threads: int = 1) -> None:
        self.folding = Folding(Threads(threads))
        self.out = np.full(LENGTH, np.nan, np.float32)

    def add(self, step: int, *workers: int) -> "Place":
        self.folding.add(step, [(worker, VECTORS[worker]) for worker in workers], out=self.out)
        return self

    def combine(self, step: int, terms: Sequence[tuple[int, float, np.ndarray]]) -> np.ndarray:
        norm = self.folding.combine(step, terms, out=self.out)
        assert norm == blocks.norm(self.out) or not math.isfinite(norm)
        return self.out.copy()


def plain(terms: Sequence[tuple[int, float, np.ndarray]]) -> np.ndarray:
    total = np.float32(terms[0][1]) * terms[0][2]
    for _, weight, vector in terms[1:]:
        total = total + np.float32(weight) * vector
    return total


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_has_one_weight_is_scaled_once_and_the_rest_is_added(threads: int) -> None:
    place = Place(threads).add(7, 3).add(7, 4, 0)
    estimate = place.combine(7, EQUAL)
    assert np.array_equal(estimate, np.float32(0.2) * (VECTORS[3] + VECTORS[4] + VECTORS[0] + VECTORS[1] + VECTORS[2]))
    np.testing.assert_allclose(estimate, plain(EQUAL), atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_everything_may_be_folded(threads: int) -> None:
    place = Place(threads).add(7, 3, 1).add(7).add(7, 0, 2, 4)
    total = VECTORS[3] + VECTORS[1] + VECTORS[0] + VECTORS[2] + VECTORS[4]
    assert np.array_equal(place.combine(7, EQUAL), np.float32(0.2) * total)


def test_a_step_without_a_sum_is_added_first_all_the_same_if_it_is_known_to_have_one_weight() -> None:
    total = VECTORS[0] + VECTORS[1] + VECTORS[2] + VECTORS[3] + VECTORS[4]
    assert np.array_equal(Place().add(7).combine(7, EQUAL), np.float32(0.2) * total)


UNEQUAL = [(worker, 0.1 * worker + 0.1, VECTORS[worker]) for worker in range(5)]


@pytest.mark.parametrize(
    ("workers", "terms"),
    [
        ((0, 1), EQUAL[1:]),  # a folded one does not count
        ((0, 1), EQUAL[2:]),  # none of them does
        ((0, 1), UNEQUAL),  # they differ in weight
        ((0, 1), [*EQUAL[:4], (4, 0.5, VECTORS[4])]),  # one that is not in it does
        ((0, 1, 1), EQUAL),  # one was folded twice
    ],
)
def test_a_sum_of_no_use_leaves_the_bits_of_the_messages_in_order(
    workers: tuple[int, ...], terms: list[tuple[int, float, np.ndarray]]
) -> None:
    assert np.array_equal(Place().add(7, *workers).combine(7, terms), plain(terms))


def test_another_step_s_sum_is_given_up() -> None:
    assert np.array_equal(Place().add(6, 0, 1).combine(7, EQUAL), plain(EQUAL))
    place = Place()
    place.folding.add(6, [(0, VECTORS[4]), (1, VECTORS[3])], out=place.out)  # the same workers' of the step before
    estimate = place.add(7, 2).combine(7, EQUAL[:3])
    assert np.array_equal(estimate, np.float32(0.2) * (VECTORS[2] + VECTORS[0] + VECTORS[1]))


def test_a_sum_is_used_once() -> None:
    place = Place().add(7, 0, 1)
    place.combine(7, EQUAL)
    assert np.array_equal(place.combine(7, EQUAL[2:]), np.float32(0.2) * (VECTORS[2] + VECTORS[3] + VECTORS[4]))
    estimate = place.add(7, 4).combine(7, EQUAL[3:])  # such as when culprits were left out and others are waited for
    assert np.array_equal(estimate, np.float32(0.2) * (VECTORS[4] + VECTORS[3]))


def test_a_sum_that_overflows_where_the_estimate_does_not_is_not_used() -> None:
    large = np.full(LENGTH, 3e38, np.float32)
    terms = [(worker, 0.25, large) for worker in range(3)]
    place = Place()
    place.folding.add(7, [(worker, large) for worker in range(3)], out=place.out)
    assert np.array_equal(place.combine(7, terms), plain(terms)) and np.isfinite(place.out).all()


def test_bfloat16_is_folded_as_float32() -> None:
    narrow = [np.empty(LENGTH, np.uint16) for _ in range(3)]
    wide = [np.empty(LENGTH, np.float32) for _ in range(3)]
    for source, bits, vector in zip(VECTORS, narrow, wide, strict=False):
        half.to_bfloat16(source, bits)
        half.from_bfloat16(bits, vector)
    place = Place()
    place.folding.add(7, [(2, narrow[2]), (0, narrow[0])], out=place.out)
    estimate = place.combine(7, [(worker, 0.3, narrow[worker]) for worker in range(3)])
    assert np.array_equal(estimate, np.float32(0.3) * (wide[2] + wide[0] + wide[1]))
