"""What theory says of adaptive-k-batch beside adaptive-k: costs until the bound is at an error, over a grid of times.

Both switch when the bound says so. adaptive-k goes through every k from 1 with whole minibatches, adaptive-k-batch
through the (k, b) of its own ladder, b in multiples of one sample. Letters as in schemes.md section 5. With y = 0 a
change of the unit of time changes no ratio: they depend on lambda_y x alone, the smaller, the cheaper communication is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgczmq.core.order_statistics import ComputationVaries
from pgczmq.core.policies import Plan
from pgczmq.core.theory import Bound, Cost, cost_to, ladder_k, ladder_k_batch, stages
from pgczmq.errors import ConfigError

WORKERS = 50
ERROR = 1e-3
GRID = (0.05, 0.2, 1.0, 5.0, 20.0)
"""lambda_y, per second, and x, seconds: the paper's range of both."""


@dataclass(frozen=True)
class Setting:
    """What the paper does not give; L = 2, C = 1 and sigma^2 = 10 it does.

    Args:
        lr: learning rate.
        samples: S, a worker's minibatch at b = 1.
        initial_error: F(w_0) - F*.
    """

    lr: float
    samples: int
    initial_error: float

    @property
    def bound(self) -> Bound:
        """With the paper's constants."""
        return Bound(self.lr, 2.0, 1.0, 10.0, self.samples, self.initial_error)


@dataclass(frozen=True)
class Cell:
    """One point of the grid: costs of adaptive-k-batch over those of adaptive-k.

    Args:
        rate: lambda_y of the computation times, per second; their least is 0.
        communication_time: x, seconds.
        seconds: runtime, a ratio as are the rest.
        computation: samples evaluated by each worker.
        communication: vectors, n + k a step.
    """

    rate: float
    communication_time: float
    seconds: float
    computation: float
    communication: float


def cells(
    setting: Setting,
    *,
    rates: Sequence[float] = GRID,
    communication_times: Sequence[float] = GRID,
    workers: int = WORKERS,
    error: float = ERROR,
) -> Iterator[Cell]:
    """The ratios under model 1, Z = x + b Exp(lambda_y), row by row: lambda_y slowest.

    Args:
        error: that the bound is to come down to.

    Raises:
        ConfigError: it never does, not with everybody and whole minibatches; or lr C >= 1.

    Source: Adaptive-k-and-batch, numerical results (Figs. 1 to 3), Theorems 2 to 4.
    """
    bound = setting.bound
    if not bound.floor(workers) < error < setting.initial_error:
        raise ConfigError(
            f"the bound falls from {setting.initial_error:g} to {bound.floor(workers):g} at best, with "
            f"lr={setting.lr:g} and {setting.samples} samples: got error={error:g}."
        )
    fractions = [count / setting.samples for count in range(1, setting.samples + 1)]
    for rate in rates:
        for time in communication_times:
            times = ComputationVaries(time, 0.0, rate)
            with_k = _cost(bound, times, workers, ladder_k(1, workers, 1), error)
            ladder = ladder_k_batch(times, workers, most=workers, fractions=fractions)
            yield _cell(rate, time, _cost(bound, times, workers, ladder, error), with_k)


def _cost(bound: Bound, times: ComputationVaries, workers: int, ladder: Sequence[Plan], error: float) -> Cost:
    cost = cost_to(error, bound, workers, stages(bound, times, workers, ladder))
    assert cost is not None  # both ladders end with everybody and whole minibatches
    return cost


def _cell(rate: float, time: float, one: Cost, other: Cost) -> Cell:
    communication = one.communication / other.communication
    return Cell(rate, time, one.seconds / other.seconds, one.computation / other.computation, communication)
