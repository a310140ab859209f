"""What is trained: the user's model, data, loss and metric, found by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pgczmq.errors import ConfigError
from pgczmq.extensions import Kind, call, find, load_function
from pgczmq.train import plain
from pgczmq.train.data import Data, Samples, adapt


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy of logits, float [m, ..., classes], and classes, whole numbers [m, ...].

    The classes are the last axis: [m, classes] for a label each, [m, T, classes] for a character at each of T places.

    Raises:
        ConfigError: shapes or dtypes are others, or a class has no output.
    """
    _check_classes(output, target, "loss")
    try:
        return functional.cross_entropy(output.flatten(0, -2), target.flatten().long())
    except IndexError as error:  # such as "Target 4 is out of bounds."
        classes = output.shape[-1]
        raise ConfigError(
            f"classes are numbered from 0, to {classes - 1} where a model has {classes} outputs: got targets from "
            f"{int(target.min())} to {int(target.max())}. Number them anew, or give the model an output for each."
        ) from error


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The part of the targets, whole numbers [m, ...], at which the logits, float [m, ..., classes], are largest.

    Raises:
        ConfigError: shapes or dtypes are others.
    """
    _check_classes(output, target, "metric")
    return (output.argmax(-1) == target).float().mean()


def _check_classes(output: Tensor, target: Tensor, which: str) -> None:
    fits = isinstance(output, Tensor) and output.dim() > 1 and output.shape[:-1] == target.shape
    if fits and not target.is_floating_point():
        return
    found = tuple(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
    instead = "such as torch.nn.functional.mse_loss for numbers" if which == "loss" else "or metric=None"
    raise ConfigError(
        f"unless a task has a {which} of its own it is that of classes: logits [m, ..., classes] and whole numbers "
        f"[m, ...] as targets. Got {found} from the model, and targets {tuple(target.shape)}, "
        f"{str(target.dtype).removeprefix('torch.')}. Give Task a {which}(output, target), {instead}."
    )


def as_input(inputs: Tensor) -> Tensor:
    """Raw inputs as a model takes them: bytes, booleans and floats as float32, other whole numbers as they are.

    Bytes are pictures. Other whole numbers are indices, such as those of characters: an Embedding takes no floats.
    """
    kept = not inputs.is_floating_point() and inputs.dtype not in (torch.uint8, torch.bool)
    return inputs if kept else inputs.float()


@dataclass(frozen=True)
class Task:
    """The user's model, data, loss and metric: what the function returns that ``task.name`` names.

    Two workers that hold the same partition must compute the same bits. So whatever is drawn at random has to come from
    torch's, Python's or NumPy's global stream, which workers seed, or from the function's argument ``seed``.
    ``pgc task check module:function`` tries that, and everything below.

    Args:
        model: builds a fresh module; its initial parameters come from torch's global random stream. It must not write
            to its parameters: a worker may compute on memory of the master's. Its first evaluation finds out whether
            it does, with or without ``.data``, and ends in a sentence; if it begins later, and parameters come through
            shared memory, the operating system ends the worker (a segmentation fault), and the run goes on without.
        train: the training set: a map-style torch Dataset or a list of (input, target), each a tensor, an array or a
            number; or Samples, which read many at a time. It is read on two threads, on one at a time.
        test: held-out data of the same kind, or None.
        loss: (output, target) -> scalar, the **mean** over the batch. Cross entropy unless set: logits
            [m, ..., classes], and whole numbers [m, ...].
        metric: (output, target) -> scalar, a mean over the batch; None where there is none. It is called by its
            function's name, and shown in percent if that ends in "accuracy". Accuracy unless set.
        transform: raw batch of inputs -> the model's input. It draws nothing. Unless set, bytes, booleans and floats
            become float32, and other whole numbers stay what they are.
        augment: (transformed batch, generator) -> batch, in training only. It draws from the generator alone,
            with ``device=generator.device``: replicas of a partition on different workers must agree.

    Raises:
        ConfigError: the model is one already, or the data cannot be read by sample numbers; says what would work.
    """

    model: Callable[[], nn.Module]
    train: Samples
    test: Samples | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    metric: Callable[[Tensor, Tensor], Tensor] | None = accuracy
    transform: Callable[[Tensor], Tensor] = as_input
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None

    if TYPE_CHECKING:  # what may be handed in is more than what the attributes are then

        def __init__(
            self,
            model: Callable[[], nn.Module],
            train: Data,
            test: Data | None = None,
            loss: Callable[[Any, Tensor], Tensor] = cross_entropy,
            metric: Callable[[Any, Tensor], Tensor] | None = accuracy,
            transform: Callable[[Tensor], Tensor] = as_input,
            augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            kind = type(self.model).__name__
            raise ConfigError(
                f"a task's model is a function that builds a fresh one whenever it is called: got {kind}, which is "
                f"built already. Write model=lambda: {kind}(...)."
            )
        object.__setattr__(self, "train", adapt(self.train))
        if self.test is not None:
            object.__setattr__(self, "test", adapt(self.test))

    @property
    def metric_name(self) -> str:
        """What views call the metric: its function's name; empty where there is none."""
        name = "" if self.metric is None else getattr(self.metric, "__name__", "metric")
        return name if name.isidentifier() or not name else "metric"


TASKS: Mapping[str, str] = {
    "linear-regression": "pgczmq.train.tasks:linear_regression",
    "logistic-regression": "pgczmq.train.tasks:logistic_regression",
    "adaptive-k-regression": "pgczmq.train.regressions:adaptive_k_regression",
    "adaptive-k-batch-regression": "pgczmq.train.regressions:adaptive_k_batch_regression",
    "digits-mlp": "pgczmq.train.tasks:digits_mlp",
    "digits-cnn": "pgczmq.train.tasks:digits_cnn",
    "resnet18": "pgczmq.train.images:resnet18",
    "resnet18-cifar": "pgczmq.train.images:resnet18_cifar",
}
"""The built-in tasks, in the same notation as a user's own."""


TASK = Kind("task", "pgczmq.tasks", TASKS)


def load_task(name: str, args: Mapping[str, Any], seed: int) -> Task:
    """The task called ``name``: built in, ``module:function`` with the current directory importable, or installed.

    The function is called with ``args`` as keywords, and with ``seed`` if it has an argument of that name.

    Raises:
        ConfigError: there is no such task, it cannot be imported, does not take the arguments, fails, or
            does not return a Task.
    """
    if name == plain.NAME:
        raise ConfigError(
            f"task {name} is made of NumPy alone, for real runs (pgc local, pgc-master): a simulation takes it with "
            "--timing-only, and it needs no check."
        )
    setting = "task.name"
    function = load_function(TASKS[name], setting) if name in TASKS else find(TASK, name, setting)
    task = call(function, args, name=f"task {name}", setting="task.args", seed=seed)
    if not isinstance(task, Task):
        given = "None: is the return missing?" if task is None else f"{type(task).__name__}."
        raise ConfigError(f"a task's function returns a pgczmq.train.task.Task: {name} gave {given}")
    return task
