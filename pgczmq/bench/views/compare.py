"""Two conditions that took turns: by how much one is slower, and how sure that is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
SURE = 0.95

Statistic = Callable[[NDArray[np.float64]], np.floating]
"""Of the seconds of all steps together, such as ``np.median``."""


@dataclass(frozen=True)
class Interval:
    """A figure, and where it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def ratio(slower: Sequence[Sequence[float]], faster: Sequence[Sequence[float]], statistic: Statistic) -> Interval:
    """A statistic of one condition over that of the other, with an interval by the bootstrap.

    Steps of one turn are alike in what the machine was doing then: so rounds are drawn again, not steps.

    Args:
        slower, faster: seconds of the steps of each round; rounds belong together.
    """
    rounds = [(np.asarray(one), np.asarray(other)) for one, other in zip(slower, faster, strict=True)]
    draw = np.random.default_rng(0)
    drawn = [
        _ratio([rounds[place] for place in draw.integers(len(rounds), size=len(rounds))], statistic)
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [(1 - SURE) / 2, (1 + SURE) / 2])
    return Interval(_ratio(rounds, statistic), float(low), float(high))


def _ratio(rounds: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], statistic: Statistic) -> float:
    one, other = (np.concatenate(each) for each in zip(*rounds, strict=True))
    return float(statistic(one) / statistic(other))
