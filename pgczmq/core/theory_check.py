"""What the formulas of ``theory`` must give, to the digits in which schemes.md section 5 states it."""

from collections.abc import Iterator
from dataclasses import dataclass

from pgczmq.core.order_statistics import BothVary, ComputationVaries
from pgczmq.core.policies import Plan
from pgczmq.core.theory import (
    Bound,
    continuous_best_fraction,
    ladder_k,
    stages,
)


@dataclass(frozen=True)
class Check:
    """One figure.

    Args:
        digits: decimals in which ``expected`` is stated.
    """

    what: str
    expected: float
    found: float
    digits: int

    @property
    def holds(self) -> bool:
        """Whether they agree to the digits stated."""
        return abs(self.found - self.expected) <= 0.5000001 * 10.0**-self.digits


MODEL_2 = (  # n, k, b, a', l, x, y, mu
    (5, 1, 0.3, 2.0, 1.0, 0.1, 0.2, 0.434824),
    (5, 3, 1.0, 1.0, 3.0, 0.0, 0.0, 1.136670),
    (10, 7, 0.5, 1.0, 0.5, 0.0, 0.1, 2.309574),
    (20, 10, 0.2, 1.0, 1.0, 0.01, 0.0, 0.893715),
    (50, 1, 1.0, 0.5, 0.5, 0.0, 0.0, 0.381725),
    (50, 40, 1.0, 1.0, 1.0, 0.0, 0.0, 2.936109),
)
SWITCHING = (496.92, 621.62, 793.65, 1102.52)  # n = 5, Exp(rate 5), k = 1 -> 2 -> 3 -> 4 -> 5
BEST_FRACTIONS = ((20, 1, 0.580), (20, 5, 0.980), (50, 1, 0.550))  # n, k of k -> k + 1, b_opt


def checks() -> Iterator[Check]:
    """Every fixture of schemes.md section 5, worked out here and now."""
    for n, k, b, rate, computing, x, y, expected in MODEL_2:
        found = BothVary(x, y, rate, computing).order_statistic(n, k, b)
        yield Check(f"order statistic of model 2, n={n}, k={k}, b={b:g}", expected, found, 6)
    bound = Bound(lr=0.001, lipschitz=2, convexity=1, variance=10, samples=10, initial_error=100)
    for stage, expected in zip(
        stages(bound, ComputationVaries(0, 0, 5), 5, ladder_k(1, 5, 1)), SWITCHING, strict=False
    ):
        yield Check(f"time to leave k={stage.plan.k}, n=5, Exp(rate 5)", expected, stage.ends, 2)
    for n, k, expected in BEST_FRACTIONS:
        found = continuous_best_fraction(n, before=Plan(k), k=k + 1)
        yield Check(f"best batch fraction from k={k} to {k + 1}, n={n}", expected, found, 3)
