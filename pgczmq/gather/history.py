"""A series of any length in bounded memory."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean, median

from pgczmq.picture import HISTORY, Numbers

STEPS_REMEMBERED = 50


class History:
    """Keeps at most ``limit`` points; each is the mean over a stretch, and stretches double as the series grows.

    Values that are not finite count for nothing; a stretch without a finite one is NaN.

    Args:
        limit: an even number.
    """

    def __init__(self, limit: int = HISTORY) -> None:
        self._limit = limit
        self._stretch = 1
        self._sums: list[float] = []
        self._counts: list[int] = []
        self._filled = 0  # values in the last stretch, finite or not

    def add(self, value: float) -> None:
        """Append a value."""
        if self._filled == 0:
            if len(self._sums) == self._limit:
                self._halve()
            self._sums.append(0.0)
            self._counts.append(0)
        if math.isfinite(value):
            self._sums[-1] += value
            self._counts[-1] += 1
        self._filled = (self._filled + 1) % self._stretch

    @property
    def points(self) -> list[float]:
        """The means, oldest first; the last may be over a stretch that is still being filled."""
        return [total / n if n else math.nan for total, n in zip(self._sums, self._counts, strict=True)]

    def _halve(self) -> None:
        self._sums = [a + b for a, b in zip(self._sums[::2], self._sums[1::2], strict=True)]
        self._counts = [a + b for a, b in zip(self._counts[::2], self._counts[1::2], strict=True)]
        self._stretch *= 2


class Series:
    """One number of every step, on its way to ``Numbers``.

    Args:
        recent: so many of the last ones say what is typical.
        typical: of those that are finite.
    """

    def __init__(self, recent: int = STEPS_REMEMBERED, typical: Callable[[Sequence[float]], float] = median) -> None:
        self._history = History()
        self._recent: deque[float] = deque(maxlen=recent)
        self._typical = typical

    def add(self, value: float) -> None:
        """Append a value."""
        self._history.add(value)
        self._recent.append(value)

    @property
    def numbers(self) -> Numbers:
        """As they are now."""
        if not self._recent:
            return Numbers()
        finite = [value for value in self._recent if math.isfinite(value)]
        typical = self._typical(finite) if finite else math.nan
        return Numbers(self._recent[-1], typical, tuple(self._history.points))


def losses(recent: int) -> Series:
    """Of losses, which scatter so much that their mean is more even than their median."""
    return Series(recent, fmean)
