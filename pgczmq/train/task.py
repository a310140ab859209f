"""What is trained: the user's model, data, loss and metric, found by name."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pgczmq.config import load_function, reason
from pgczmq.errors import ConfigError
from pgczmq.train.data import Samples, adapt


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy of logits, float [m, classes], and classes, int64 [m]."""
    return functional.cross_entropy(output, target)


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The part of a batch whose largest logit, float [m, classes], is the target, int64 [m]."""
    return (output.argmax(1) == target).float().mean()


def as_float(inputs: Tensor) -> Tensor:
    """Raw inputs as float32."""
    return inputs.float()


@dataclass(frozen=True)
class Task:
    """The user's model, data, loss and metric.

    Args:
        model: builds a fresh module; its initial parameters come from torch's global random stream. It must not write
            to its parameters: a worker may compute on memory of the master's. Its first evaluation finds out whether
            it does, with or without ``.data``, and ends in a sentence; if it begins later, and parameters come through
            shared memory, the operating system ends the worker (a segmentation fault), and the run goes on without.
        train: the training set: Samples, or a map-style torch Dataset of (input, target). It is read on two threads,
            on one at a time.
        test: held-out data of the same kind, or None.
        loss: (output, target) -> scalar, the **mean** over the batch.
        metric: (output, target) -> scalar, a mean over the batch; None where there is none.
        transform: raw batch of inputs, such as uint8 -> the model's input. It draws nothing.
        augment: (transformed batch, generator) -> batch, in training only. It draws from the generator alone,
            with ``device=generator.device``: replicas of a partition on different workers must agree.
    """

    model: Callable[[], nn.Module]
    train: Samples
    test: Samples | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    metric: Callable[[Tensor, Tensor], Tensor] | None = accuracy
    transform: Callable[[Tensor], Tensor] = as_float
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", adapt(self.train))
        if self.test is not None:
            object.__setattr__(self, "test", adapt(self.test))


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


def load_task(name: str, args: Mapping[str, Any], seed: int) -> Task:
    """The task called ``name``: built in, or ``module:function`` with the current directory importable.

    The function is called with ``args`` as keywords, and with ``seed`` if it has an argument of that name.

    Raises:
        ConfigError: there is no such task, it cannot be imported, does not take the arguments, fails, or
            does not return a Task.
    """
    function = _find(name)
    keywords = _keywords(name, function, args, seed=seed)
    try:
        task = function(**keywords)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"task {name} cannot be built: {reason(error)}.") from error
    if not isinstance(task, Task):
        raise ConfigError(f"a task's function returns a pgczmq.train.task.Task: {name} gave {type(task).__name__}.")
    return task


def _find(name: str) -> Callable[..., Any]:
    module_name, colon, function_name = TASKS.get(name, name).partition(":")
    if not colon or not module_name or not function_name:
        close = difflib.get_close_matches(name, TASKS, n=1, cutoff=0.5)
        nearest = f" The nearest is {close[0]}." if close else ""
        raise ConfigError(
            f"there is no task {name!r}.{nearest} Built in are {', '.join(TASKS)}; one of your own is written "
            "module:function."
        )
    return load_function(TASKS.get(name, name), "task.name")


def _keywords(name: str, function: Callable[..., Any], args: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    needed = [p.name for p in parameters if p.name in accepted and p.default is p.empty]
    keywords = {"seed": seed, **args} if "seed" in accepted else dict(args)
    unknown = [key for key in keywords if key not in accepted and not takes_any]
    missing = [key for key in needed if key not in keywords]
    if unknown or missing:
        problem = f"does not take {', '.join(unknown)}" if unknown else f"also needs {', '.join(missing)}"
        names = ", ".join(key for key in accepted if key != "seed") or "none"
        raise ConfigError(f"task.args: {name} {problem}. It takes: {names}.")
    return keywords
