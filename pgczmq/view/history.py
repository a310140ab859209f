"""A series of any length in bounded memory, for charts."""

import math


class History:
    """Keeps at most ``limit`` points; each is the mean over a stretch, and stretches double as the series grows.

    Values that are not finite count for nothing; a stretch without a finite one is NaN.

    Args:
        limit: an even number.
    """

    def __init__(self, limit: int = 256) -> None:
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
