"""Long lines made short enough to be seen: means, bins, envelopes."""

import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pgczmq.view.pictures.curves import Array

LONGEST = 100


def latest_mean(values: Array) -> tuple[Array, int]:
    """The mean of the latest values at each place, and of how many: a fortieth of all, at most ``LONGEST``."""
    window = max(1, min(LONGEST, values.size // 40))
    first = np.cumsum(values[: window - 1]) / np.arange(1, window)
    # Each summed by itself: in differences of sums a huge value, long gone, would leave nothing of small ones.
    others = [sliding_window_view(values, window).mean(axis=1)] if values.size else []
    return np.concatenate([first, *others]), window


def binned(x: Array, values: Array, bins: int, reduce: Callable[[Array], float]) -> tuple[Array, Array]:
    """At most so many stretches of a line, each as one point in its middle; NaN where a stretch has no number."""
    parts = list(pairwise(stretches(x.size, bins)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a stretch without a number
        reduced = [reduce(values[begin:end]) for begin, end in parts]
    middles = [x[begin:end].mean() for begin, end in parts]
    return np.array(middles), np.array(reduced, np.float64)


def envelope(x: Array, values: Array, bins: int) -> tuple[Array, Array]:
    """A line up and down between the least and the largest value of each stretch; the line itself when it is short."""
    if x.size <= 2 * bins:
        return x, values
    middles, low = binned(x, values, bins, np.nanmin)
    _, high = binned(x, values, bins, np.nanmax)
    return np.repeat(middles, 2), np.stack([low, high], axis=1).reshape(-1)


def stretches(size: int, bins: int) -> list[int]:
    """Where at most so many stretches of the same length begin, the last one perhaps shorter, and where it ends."""
    return [*range(0, size, max(1, -(-size // bins))), size]
