"""Order statistics: the expected time of the k-th of n arrivals, under two models of a worker's response time.

Letters as in schemes.md section 5: n workers, k arrivals, b batch fraction, mu_{k:n}. Times are seconds, rates per
second.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from pgczmq.core.codes import Floats
from pgczmq.errors import ConfigError

NODES, PANELS = 16, 64
"""Gauss-Legendre nodes in each of so many panels: more change small n by less than 1e-14, n = 4096 by 1e-12."""


class ResponseTimes(Protocol):
    """How long one worker takes, as far as the order statistics go."""

    def order_statistic(self, workers: int, k: int, batch_fraction: float) -> float:
        """Expected time of the k-th of ``workers`` arrivals, seconds."""
        ...


@dataclass(frozen=True)
class ComputationVaries:
    """Model 1: Z = x + b Y with Y ~ y + Exp(l); communication takes x, always.

    Args:
        communication: x, seconds.
        computation: y, least seconds for a whole minibatch.
        computation_rate: l, per second.

    Source: Adaptive-k-and-batch, Definition 1; schemes.md section 5.
    """

    communication: float
    computation: float
    computation_rate: float

    def order_statistic(self, workers: int, k: int, batch_fraction: float) -> float:
        """x + b (y + (H_n - H_{n-k}) / l)."""
        _check_order(workers, k, batch_fraction)
        varying = sum(1 / i for i in range(workers - k + 1, workers + 1)) / self.computation_rate
        return self.communication + batch_fraction * (self.computation + varying)


@dataclass(frozen=True)
class BothVary:
    """Model 2: Z = X + b Y with X ~ x + Exp(a') and Y ~ y + Exp(l), independent.

    Args:
        communication: x, least seconds.
        computation: y, least seconds for a whole minibatch.
        communication_rate: a', per second.
        computation_rate: l, per second.

    Source: Adaptive-k-and-batch, Definition 2 and Theorem 5; schemes.md section 5.
    """

    communication: float
    computation: float
    communication_rate: float
    computation_rate: float

    def order_statistic(self, workers: int, k: int, batch_fraction: float) -> float:
        """x + b y + the integral of P(fewer than k of n have arrived by t) over t > 0.

        That probability falls from 1 to 0 between two times found by bisection; between them it is integrated over
        ln t, a panel at a time. No alternating sums: nothing cancels at any n.
        """
        _check_order(workers, k, batch_fraction)
        rates = (self.communication_rate, self.computation_rate / batch_fraction)
        slow, fast = min(rates), max(rates)
        begins = _first_below(1 - 1e-16, workers, k, slow, fast)
        ends = _first_below(1e-18, workers, k, slow, fast)
        edges = np.linspace(math.log(begins), math.log(ends), PANELS + 1)
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        half = (edges[1] - edges[0]) / 2
        times = np.exp((edges[:-1, None] + half + half * nodes).ravel())
        still = _fewer_than(k, workers, survival(times, slow, fast))
        between = float(half * np.sum(np.tile(weights, PANELS) * times * still))
        return self.communication + batch_fraction * self.computation + begins + between


def survival(times: Floats, slow: float, fast: float) -> Floats:
    """P(Exp(slow) + Exp(fast) > t), with 0 < slow <= fast.

    Written as e^{-at} (1 + a t phi((r-a) t)) with phi(u) = (1 - e^{-u})/u: nothing cancels where the rates meet.

    Args:
        times: seconds, any shape, > 0.
        slow: a, the smaller rate, per second.
        fast: r, the larger one.

    Source: schemes.md section 5, model 2.
    """
    gap = (fast - slow) * times
    phi = np.where(gap > 0, -np.expm1(-gap) / np.where(gap > 0, gap, 1.0), 1.0)
    return np.exp(-slow * times) * (1 + slow * times * phi)


def _fewer_than(k: int, workers: int, survival_T: Floats) -> Floats:
    """P(fewer than k of n have arrived): the sum over i < k of C(n,i) (1-G)^i G^{n-i}, in logarithms."""
    i = np.arange(k)[:, None]
    tiny = np.finfo(np.float64).tiny
    in_time = np.log(np.maximum(1 - survival_T, tiny))
    still_out = np.log(np.maximum(survival_T, tiny))
    total: Floats = np.exp(_log_binomials(workers, k) + i * in_time + (workers - i) * still_out).sum(axis=0)
    return np.minimum(total, 1.0)


@lru_cache(maxsize=512)
def _log_binomials(workers: int, k: int) -> Floats:
    """ln C(n, i) for i < k, a column."""
    n = workers
    return np.array([[math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)] for i in range(k)])


def _first_below(level: float, workers: int, k: int, slow: float, fast: float) -> float:
    """The time at which P(fewer than k have arrived) passes a level, by bisection over ln t."""
    low, high = math.log(1e-12 / fast), math.log(100 * (1 + math.log(workers)) / slow)
    for _ in range(60):
        middle = (low + high) / 2
        time = np.array([math.exp(middle)])
        above = float(_fewer_than(k, workers, survival(time, slow, fast))[0]) > level
        low, high = (middle, high) if above else (low, middle)
    return math.exp(low)


def _check_order(workers: int, k: int, batch_fraction: float) -> None:
    if not 1 <= k <= workers:
        raise ConfigError(f"k counts arrivals, 1 to the number of workers: got k={k}, workers={workers}.")
    if not 0 < batch_fraction <= 1:
        raise ConfigError(f"a batch fraction is above 0 and at most 1: got {batch_fraction:g}.")
