"""The least-squares problems of the papers on adaptive policies, whose held-out loss and metric are the excess loss.

The *error* F(w) - F* can be far below the loss, and is not the difference of two losses: for least squares it is itself
a loss, that of the training inputs with the targets which the best parameters would give. These are the held-out data,
in float64, since outputs near 3e4 in float32 would add about 3e-6 to the error. For training float32 is enough.
Parameters begin at 0; there is no intercept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from pgczmq.core import seeds
from pgczmq.errors import ConfigError
from pgczmq.train.data import ArraySamples
from pgczmq.train.task import Task
from pgczmq.train.tasks import squared_error


def adaptive_k_regression(samples: int = 2000, features: int = 100, noise: float = 1.0, *, seed: int) -> Task:
    """Half the mean square of <x, w> - y, x and w* whole numbers, y = <x, w*> + noise * N(0, 1).

    Args:
        samples: rows, at least as many as there are features.
        features: of x, each uniform in 1..10; w* is uniform in 1..100.
        noise: standard deviation of the targets.
        seed: the run's.

    Source: the experiment of Adaptive-k, as recalled in schemes.md section 5; initial parameters are not given there.
    """
    _check(samples, features)
    rng = seeds.rng(seed, "data")
    inputs = rng.integers(1, 11, (samples, features))
    weights = rng.integers(1, 101, features)
    return _task(inputs, inputs @ weights + noise * rng.standard_normal(samples), half_squared_error)


def adaptive_k_batch_regression(samples: int = 400, features: int = 100, *, seed: int) -> Task:
    """The mean square of <x, w> - y, with labels that have nothing to do with the inputs.

    Args:
        samples: rows, at least as many as there are features.
        features: of x, each uniform in 1..100; labels are uniform in 1..10. How many is not given in the paper: 100 as
            in Adaptive-k, whose setting it follows.
        seed: the run's.

    Source: Adaptive-k-and-batch, Simulations.
    """
    _check(samples, features)
    rng = seeds.rng(seed, "data")
    inputs = rng.integers(1, 101, (samples, features))
    return _task(inputs, rng.integers(1, 11, samples), squared_error)


def half_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Half the mean of (output - target)^2 for output [m, 1] and target [m]."""
    return squared_error(output, target) / 2


def _check(samples: int, features: int) -> None:
    if not 1 <= features <= samples:
        raise ConfigError(
            "task.args: least squares has one solution with features >= 1 and at least as many samples: got "
            f"features={features}, samples={samples}."
        )


def _task(inputs: NDArray[Any], targets: NDArray[Any], loss: Callable[[Tensor, Tensor], Tensor]) -> Task:
    """A task that trains on (inputs, targets) and is evaluated on (inputs, best possible outputs).

    With w* the least-squares solution, X w - y = X (w - w*) + (X w* - y), and the two parts are orthogonal: the loss
    with targets X w* is F(w) - F*.

    Args:
        inputs: [m, d].
        targets: [m].
    """
    rows, given = inputs.astype(np.float32), targets.astype(np.float32)
    exact = rows.astype(np.float64)
    solution = np.linalg.lstsq(exact, given.astype(np.float64), rcond=None)[0]
    train = ArraySamples(torch.from_numpy(rows), torch.from_numpy(given))
    test = ArraySamples(torch.from_numpy(exact), torch.from_numpy(exact @ solution))
    return Task(lambda: Line(rows.shape[1]), train, test, loss=loss, metric=loss, transform=_as_it_is)


class Line(nn.Module):
    """<x, w> for x [m, d] -> [m, 1], float32 or float64 as the inputs are; the parameters are float32, at first 0."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, features))

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.weight.to(inputs.dtype))


def _as_it_is(inputs: Tensor) -> Tensor:
    return inputs
