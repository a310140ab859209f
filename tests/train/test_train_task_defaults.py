"""What a task has unless it brings its own: inputs as a model takes them, cross entropy, accuracy."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import TensorDataset

from pgczmq.errors import ConfigError
from pgczmq.train.data import ArraySamples, adapt
from pgczmq.train.task import Task, accuracy, as_input, cross_entropy


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (torch.uint8, torch.float32),
        (torch.bool, torch.float32),
        (torch.float64, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.int64, torch.int64),
        (torch.int32, torch.int32),
    ],
)
def test_pictures_become_floats_and_indices_stay(given: torch.dtype, becomes: torch.dtype) -> None:
    inputs = as_input(torch.ones(3, dtype=given))
    assert inputs.dtype == becomes and inputs.tolist() == [1, 1, 1]


def test_classes_are_the_last_axis() -> None:
    logits = torch.randn(4, 6, 11, generator=torch.Generator().manual_seed(1))
    target = torch.arange(24).reshape(4, 6) % 11
    expected = functional.cross_entropy(logits.transpose(1, 2), target)
    assert torch.allclose(cross_entropy(logits, target), expected)
    assert float(accuracy(logits, logits.argmax(2))) == 1.0
    flat, labels = logits.reshape(24, 11), target.reshape(24)
    assert torch.equal(cross_entropy(flat, labels), functional.cross_entropy(flat, labels))
    assert torch.equal(cross_entropy(flat, labels.int()), functional.cross_entropy(flat, labels))


@pytest.mark.parametrize(
    ("output", "target", "words"),
    [
        (torch.zeros(4, 11, 6), torch.zeros(4, 6, dtype=torch.int64), r"Got \(4, 11, 6\) .* targets \(4, 6\), int64"),
        (torch.zeros(4, 3), torch.zeros(4), r"targets \(4,\), float32"),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64), r"Got \(4,\)"),
        (torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.int64), r"targets \(4, 1\)"),
        ((torch.zeros(4, 2),), torch.zeros(4, dtype=torch.int64), "Got a tuple from the model"),
    ],
)
def test_other_shapes_are_a_sentence_that_says_what_would_work(output: Tensor, target: Tensor, words: str) -> None:
    with pytest.raises(ConfigError, match=words + r".*Give Task a loss\(output, target\), such as"):
        cross_entropy(output, target)
    with pytest.raises(ConfigError, match=words + r".*Give Task a metric\(output, target\), or metric=None"):
        accuracy(output, target)


def test_targets_of_a_data_set_are_as_narrow_as_outputs() -> None:
    wide = TensorDataset(torch.zeros(2, 3), torch.tensor([0.5, 1.5], dtype=torch.float64))
    _, targets = adapt(wide).batch(torch.tensor([1]))
    assert targets.dtype == torch.float32 and targets.tolist() == [1.5]


def test_a_task_takes_them_unless_it_is_told_otherwise() -> None:
    task = Task(lambda: torch.nn.Linear(3, 2), ArraySamples(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)))
    assert (task.transform, task.loss, task.metric, task.metric_name) == (as_input, cross_entropy, accuracy, "accuracy")
