"""Losses of many runs as a few lines: the numbers behind the pictures in ``plots``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POINTS = 200
"""A line has about so many points at most: more are not seen, and would make an SVG large."""

BLOWN_UP = 5
"""Above so many times the largest first loss a run is on its way to infinity and left out of the scale."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One run's losses: smoothed loss after each of ``steps`` updates, and at which second (virtual or real).

    Raises:
        ValueError: the three are not equally long.
    """

    steps: Sequence[int]
    seconds: Sequence[float]
    loss: Sequence[float]

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.seconds) == len(self.loss):
            raise ValueError(f"{len(self.loss)} losses, {len(self.steps)} steps, {len(self.seconds)} seconds.")


@dataclass(frozen=True)
class Group:
    """All seeds of one case."""

    label: str
    """The scheme, then what else tells the case from others: ``pgc-cr s=2``."""

    curves: Sequence[Curve]
    """Empty where no gradients were computed."""

    seconds_per_step: Sequence[float]
    """One a seed."""


@dataclass(frozen=True)
class Spread:
    """Some runs as one line: median, least and largest loss at the same places."""

    x: Array
    median: Array
    low: Array
    high: Array
    diverged: bool
    """The line ends because half of the runs have diverged."""


def spread(runs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Spread:
    """Runs as one line, as long as at least half of them are running and fewer than half have diverged.

    A run that has ended keeps its last loss, or the line would jump; one that has diverged counts as running on with
    an infinite loss, or the median would be one of the survivors.

    Args:
        runs: (places, losses) of each; places increase. From its first loss that is not finite on it has diverged.
    """
    arrays = [(np.asarray(xs, float), np.asarray(losses, float)) for xs, losses in runs]
    places = _places([xs for xs, _ in arrays])
    running = 2 * sum((_running(places, xs, losses) for xs, losses in arrays), np.zeros(places.size)) >= len(runs)
    places = places[running]
    values = np.array([_along(places, xs, losses) for xs, losses in arrays if xs.size])
    median = np.median(values, axis=0) if values.size else places
    lost = np.flatnonzero(np.isinf(median))
    end = int(lost[0]) if lost.size else places.size
    finite = np.where(np.isinf(values), np.nan, values)[:, :end] if end else values
    low, high = (np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)) if end else (median[:0], median[:0])
    return Spread(places[:end], median[:end], low, high, bool(lost.size))


def _places(xs: Sequence[Array]) -> Array:
    """The places of all runs together, thinned out evenly, but with the end of each."""
    every = np.unique(np.concatenate(xs))
    if every.size <= POINTS:
        return every
    kept = np.linspace(0, every.size - 1, POINTS).round().astype(int)
    return np.union1d(every[kept], [run[-1] for run in xs if run.size])


def _running(places: Array, xs: Array, losses: Array) -> Array:
    """1 where a run has begun and not ended, else 0."""
    if not xs.size:
        return np.zeros(places.size)
    end = xs[-1] if np.all(np.isfinite(losses)) else np.inf
    return np.asarray((places >= xs[0]) & (places <= end), float)


def _along(places: Array, xs: Array, losses: Array) -> Array:
    """A run's losses at the places: the first before it begins, the last after its end, infinity once it diverged."""
    bad = np.flatnonzero(~np.isfinite(losses))
    good = int(bad[0]) if bad.size else losses.size
    if not good:
        return np.full(places.shape, np.inf)
    return np.interp(places, xs[:good], losses[:good], right=np.inf if bad.size else None)


def loss_range(spreads: Sequence[Spread], target: float | None) -> tuple[float, float]:
    """Least and largest loss to show: all there are, but not what a run went through on its way to infinity."""
    shown = [one for one in spreads if one.x.size]
    marks = [] if target is None else [target]
    low = min([*(float(one.low.min()) for one in shown), *marks], default=0.0)
    high = max([*(float(one.high.max()) for one in shown), *marks], default=1.0)
    first = max((float(one.high[0]) for one in shown), default=high)
    most = first + (BLOWN_UP - 1) * max(abs(first), first - low)
    return low, max([min(high, most) if most > low else high, *marks])


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit for times up to so many seconds, and its length in seconds."""
    units = (("h", 3600.0, 3.0), ("min", 60.0, 10.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1.0))
    return next(((name, size) for name, size, least in units if seconds >= least * size), ("us", 1e-6))
