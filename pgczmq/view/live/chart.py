"""Charts out of block and braille characters: pure functions from numbers to strings."""

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
BRAILLE = [" ", *(chr(0x2800 + dots) for dots in range(1, 256))]
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, from the top
LOGARITHMIC = 50.0
"""Positive values that differ by more than this factor are drawn on a logarithmic scale."""


def sparkline(values: Sequence[float], width: int, *, low: float | None = None, high: float | None = None) -> str:
    """Values as blocks of eight heights, one cell each while they fit; a gap where a value is not finite.

    Args:
        values: oldest first.
        width: cells at most.
        low, high: what an empty and a full cell stand for; the least and largest value unless given.
    """
    least, most = span(values) if low is None or high is None else (low, high)
    least, most = least if low is None else low, most if high is None else high
    places = _places(resample(values, min(width, len(values))), least, most, 7)
    return "".join([" " if place is None else BLOCKS[8 - place] for place in places])


def level(value: float, low: float, high: float) -> str:
    """One block for one value."""
    return sparkline([value], 1, low=low, high=high)


def curve(values: Sequence[float], width: int, *, height: int) -> list[str]:
    """A line from the least value to the largest, in dots of which a cell has two by four.

    Returns:
        ``height`` strings of ``width`` characters, the topmost first; no dots where a value is not finite.
    """
    dots = [[0] * width for _ in range(height)]
    before: int | None = None
    low, high = span(values)
    for x, y in enumerate(_places(resample(values, 2 * width), low, high, 4 * height - 1)):
        if y is None:
            before = None
            continue
        first, last = (y, y) if before is None else (min(y, before + (y > before)), max(y, before - (y < before)))
        for row in range(first, last + 1):
            dots[row // 4][x // 2] |= _DOTS[x % 2][row % 4]
        before = y
    return ["".join([BRAILLE[cell] for cell in line]) for line in dots]


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether a curve of these is better read on a logarithmic scale."""
    low, high = span(values)
    return low > 0 and high / LOGARITHMIC > low


def logarithms(values: Sequence[float]) -> list[float]:
    """For drawing; of what is not positive and finite there is none."""
    return [math.log(value) if 0 < value < math.inf else math.nan for value in values]


def parts(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells for each share of a bar, together ``width``: largest remainders, nothing for nothing."""
    total = sum(shares)
    if not 0 < total < math.inf:
        return [0] * len(shares)
    exact = [share / total * width for share in shares]
    cells = [int(cell) for cell in exact]
    by_rest = sorted(range(len(shares)), key=lambda place: cells[place] - exact[place])
    for place in by_rest[: width - sum(cells)]:
        cells[place] += 1
    return cells


def span(values: Sequence[float]) -> tuple[float, float]:
    """Least and largest finite value; NaN twice when there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def resample(values: Sequence[float], size: int) -> list[float]:
    """``size`` values that look like these: means where there are too many, straight lines where too few."""
    given = len(values)
    if size <= 0 or not given:
        return []
    if given == size:
        return list(values)
    if given > size:
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


def _places(values: Sequence[float], low: float, high: float, most: int) -> list[int | None]:
    """How far below ``high`` each value lies, in steps of which ``most`` lead to ``low``; None where there is none.

    Values that are all alike lie in the middle.
    """
    # Halves, because the distance of two finite numbers may not be one.
    middle, whole = high / 2, high / 2 - low / 2
    if not whole > 0:
        return [most // 2 if math.isfinite(value) else None for value in values]
    return [
        min(most, max(0, round((middle - value / 2) / whole * most))) if math.isfinite(value) else None
        for value in values
    ]
