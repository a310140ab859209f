"""Sums and norms in blocks are those of the whole vectors, and the same to the bit on any number of threads."""

import math
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pgczmq.train import blocks, half
from pgczmq.train.blocks import BLOCK, Threads

WEIGHTS = [0.1, 1.0, -3.0]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    yield Threads(request.param)


def vectors(length: int, count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(length, dtype=np.float32) for _ in range(count)]


def exact_norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def narrowed(vector: np.ndarray) -> np.ndarray:
    out = np.empty(vector.size, np.uint16)
    half.to_bfloat16(vector, out)
    return out


def in_order(weights: list[float], given: list[np.ndarray]) -> np.ndarray:
    total = np.float32(weights[0]) * given[0]
    for weight, vector in zip(weights[1:], given[1:], strict=True):
        total = total + np.float32(weight) * vector
    return total


@pytest.mark.parametrize("length", [1, 1000, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_sums_in_blocks_are_sums_in_order(length: int, threads: Threads) -> None:
    given = vectors(length)
    out = np.full(length, np.nan, np.float32)
    norm = blocks.weighted_sum(WEIGHTS, given, out=out, threads=threads)
    assert np.array_equal(out, in_order(WEIGHTS, given))
    assert norm == blocks.norm(out) == blocks.norm(out, threads) == pytest.approx(exact_norm(out), rel=1e-6)


@pytest.mark.parametrize("weights", [[1.0, 0.5, 1.0], [1.0, 1.0, 1.0], [0.5, 1.0, 0.25]])
def test_the_first_vector_may_be_where_the_sum_goes(weights: list[float], threads: Threads) -> None:
    given = vectors(2 * BLOCK + 5)
    expected = in_order(weights, given)
    blocks.weighted_sum(weights, given, out=given[0], threads=threads)
    assert np.array_equal(given[0], expected)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_one_vector_is_a_sum_too(weight: float) -> None:
    [one] = vectors(BLOCK + 5, 1)
    out = np.empty_like(one)
    assert blocks.weighted_sum([weight], [one], out=out) == blocks.norm(out)
    assert np.array_equal(out, np.float32(weight) * one)
    blocks.weighted_sum([weight], [narrowed(one)], out=out)
    assert np.array_equal(
        narrowed(out), narrowed(np.float32(weight) * (narrowed(one).astype(np.uint32) << 16).view("f4"))
    )


def test_bfloat16_is_widened_and_combined_in_float32(threads: Threads) -> None:
    given = vectors(2 * BLOCK + 5)
    mixed = [narrowed(given[0]), given[1], narrowed(given[2])]
    wide = [np.empty_like(given[0]), given[1], np.empty_like(given[0])]
    for place in (0, 2):
        half.from_bfloat16(mixed[place], wide[place])
    out = np.empty_like(given[0])
    blocks.weighted_sum(WEIGHTS, mixed, out=out, threads=threads)
    assert np.array_equal(out, in_order(WEIGHTS, wide))


def test_a_sum_is_rounded_to_bfloat16_at_the_end() -> None:
    given = vectors(2 * BLOCK + 5)
    out = np.empty(given[0].size, np.uint16)
    norm = blocks.weighted_sum(WEIGHTS, given, out=out)
    expected = in_order(WEIGHTS, given)
    assert np.array_equal(out, narrowed(expected)) and norm == blocks.norm(expected)


def test_no_result_depends_on_the_number_of_threads_or_on_where_the_memory_is(threads: Threads) -> None:
    one, other = vectors(5 * BLOCK + 3, 2)
    shifted = np.empty(one.size + 1, np.float32)[1:]
    shifted[:] = one
    for read in (blocks.inner, blocks.squared_distance):
        assert read(shifted, other, threads) == read(one, other)
    assert blocks.norm(shifted, threads) == blocks.norm(one)
    copied = np.empty_like(one)
    blocks.copy(one, copied, threads)
    assert np.array_equal(copied, one)
    rounded = np.empty(one.size, np.uint16)
    blocks.copy(one, rounded, threads)
    assert np.array_equal(rounded, narrowed(one))


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-30, 1e-23, 1e-18, 1e-15, 1.0, 1e17, 1e25, 1e37])
def test_norms_of_the_smallest_and_largest_vectors_are_right(scale: float, threads: Threads) -> None:
    vector = vectors(2 * BLOCK + 9, 1)[0] * np.float32(scale)
    assert blocks.norm(vector, threads) == pytest.approx(exact_norm(vector), rel=1e-6, abs=0) and vector.any()


def test_a_norm_is_zero_only_for_nothing() -> None:
    vector = np.zeros(2 * BLOCK, np.float32)
    assert blocks.norm(vector) == 0.0
    vector[-1] = np.finfo(np.float32).smallest_subnormal
    assert blocks.norm(vector) == vector[-1]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_norm_is_finite_exactly_when_all_elements_are(odd: float, threads: Threads) -> None:
    vector = np.full(BLOCK + 2, np.finfo(np.float32).max)
    assert blocks.norm(vector, threads) == pytest.approx(exact_norm(vector))
    vector[-1] = odd
    assert not math.isfinite(blocks.norm(vector, threads))
    vector[:-1] = 0
    assert not math.isfinite(blocks.norm(vector, threads))


def test_all_threads_take_part() -> None:
    meeting = threading.Barrier(3)  # nobody goes on before three are there
    names = set()

    def meet(span: slice, spare: np.ndarray) -> float:
        names.add(threading.get_ident())
        return float(meeting.wait(timeout=60) >= 0)

    assert Threads(3).total(3 * BLOCK, meet) == 3
    assert len(names) == 3


def test_numbers_are_added_in_the_order_of_the_blocks(threads: Threads) -> None:
    numbers = [1e16, 1.0, -1e16, 1.0]  # any other order but the exchange of equal ones gives 0 or 2
    assert threads.total(4 * BLOCK, lambda span, spare: numbers[span.start // BLOCK]) == 1.0


@pytest.mark.parametrize("wrong", range(4))
def test_an_error_on_any_thread_is_the_caller_s_when_all_are_done(wrong: int, threads: Threads) -> None:
    done = set()

    def work(span: slice, spare: np.ndarray) -> float:
        block = span.start // BLOCK
        if block == wrong:
            raise ValueError("as the test wants it")
        done.add(block)
        return 1.0

    with pytest.raises(ValueError, match="as the test wants it"):
        threads.total(4 * BLOCK, work)
    assert wrong not in done
    before = set(done)
    assert threads.total(4 * BLOCK, lambda span, spare: 1.0) == 4 and done == before  # and they go on
