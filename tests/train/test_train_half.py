"""bfloat16 is float32's upper half, rounded to the nearest."""

import numpy as np

from pgczmq.train import half

EVERY = np.arange(2**16, dtype=np.uint16)
LENGTH = 200_003  # several blocks, and a rest


def widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(source: np.ndarray) -> np.ndarray:
    out = np.empty(source.size, np.uint16)
    half.to_bfloat16(source, out)
    return out


def nearest(source: np.ndarray) -> np.ndarray:
    """The nearer of the two neighbours, compared in float64; of equally near ones the even one."""
    lower = (source.view(np.uint32) >> 16).astype(np.uint16)
    below, above = (np.abs(widened(bits).astype(np.float64) - source) for bits in (lower, lower + np.uint16(1)))
    up = (above < below) | ((above == below) & (lower % 2 == 1))
    return lower + up.astype(np.uint16)


def test_widening_is_exact_for_every_value() -> None:
    source = np.resize(EVERY, LENGTH)
    out = np.full(LENGTH, 5, np.float32)
    half.from_bfloat16(source, out)
    assert np.array_equal(out.view(np.uint32), widened(source).view(np.uint32))


def test_every_bfloat16_survives_and_nan_stays_nan() -> None:
    source = np.resize(widened(EVERY), LENGTH)
    back = rounded(source)
    spoiled = np.isnan(source)
    assert np.array_equal(back[~spoiled], np.resize(EVERY, LENGTH)[~spoiled])
    assert np.isnan(widened(back)[spoiled]).all()
    # Rounding up or cutting off the bits of these would make them infinite or zero.
    odd = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(widened(rounded(odd))).all()


def test_rounding_is_to_the_nearest_and_then_to_the_even_one() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F00_0000, LENGTH, dtype=np.uint32) | (rng.integers(0, 2, LENGTH, dtype=np.uint32) << 31)
    bits[::3] = bits[::3] & 0xFFFF_0000 | 0x8000  # half way
    source = bits.view(np.float32)
    assert np.array_equal(rounded(source), nearest(source))


def test_what_is_too_large_becomes_infinite() -> None:
    limits = np.finfo(np.float32)
    assert np.array_equal(widened(rounded(np.array([limits.max, limits.min]))), [np.inf, -np.inf])
