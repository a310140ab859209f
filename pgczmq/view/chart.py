"""Charts out of block characters, which every terminal font has: pure functions from numbers to strings."""

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"


def bar(fraction: float, width: int) -> str:
    """A thin bar of ``width`` cells filled to ``fraction`` in half cells, padded with spaces."""
    share = min(1.0, max(0.0, fraction)) if math.isfinite(fraction) else 0.0
    whole, half = divmod(round(share * width * 2), 2)
    return ("━" * whole + "╸" * half).ljust(width)


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as blocks of eight heights, one cell each while they fit; a gap where a value is not finite."""
    return area(values, min(width, len(values)), height=1)[0]


def area(values: Sequence[float], width: int, *, height: int) -> list[str]:
    """The area below a curve, from its least value to its largest; gaps where a value is not finite.

    Returns:
        ``height`` strings of ``width`` characters, the topmost first.
    """
    low, high = span(values)
    eighths = [_eighths(value, low, high, 8 * height) for value in resample(values, width)]
    floors = range(8 * (height - 1), -1, -8)  # eighths below each line
    return ["".join(BLOCKS[min(8, max(0, filled - floor))] for filled in eighths).ljust(width) for floor in floors]


def span(values: Sequence[float]) -> tuple[float, float]:
    """Least and largest finite value; NaN twice when there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def resample(values: Sequence[float], size: int) -> list[float]:
    """``size`` values that look like these: means where there are too many, straight lines where too few."""
    given = len(values)
    if size <= 0 or not given:
        return []
    if given >= size:
        edges = [index * given // size for index in range(size + 1)]
        return [_mean(values[begin:end]) for begin, end in pairwise(edges)]
    places = [index * (given - 1) / max(1, size - 1) for index in range(size)]
    return [_interpolated(values, place) for place in places]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan


def _interpolated(values: Sequence[float], place: float) -> float:
    left = min(int(place), len(values) - 1)
    part = place - left
    return values[left] if part == 0 else (1 - part) * values[left] + part * values[left + 1]


def _eighths(value: float, low: float, high: float, most: int) -> int:
    """How much of a column is filled: at least 1 so that the least value is seen, 0 where there is none."""
    if not math.isfinite(value):
        return 0
    # Halves, because the distance of two finite numbers may not be one. Values that are all alike lie in the middle.
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
    return 1 + round(min(1.0, max(0.0, share)) * (most - 1))
