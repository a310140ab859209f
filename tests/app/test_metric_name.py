"""What views call a task's metric is its function's name."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from pgczmq.train.task import Task, accuracy


def mean_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean()


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (accuracy, "accuracy"),
        (mean_error, "mean_error"),
        (None, ""),
        (lambda output, target: output.mean(), "metric"),
        (partial(mean_error), "metric"),
    ],
)
def test_the_name_of_a_metric(metric: object, name: str) -> None:
    samples = [(torch.zeros(2), torch.zeros(())) for _ in range(4)]
    assert Task(model=lambda: nn.Linear(2, 1), train=samples, metric=metric).metric_name == name  # type: ignore[arg-type]
