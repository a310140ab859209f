"""A task tried out: evaluated as two workers would that hold the same partitions, and looked at from inside.

Whoever compares two trials of one task has two replicas: each calls the task's function for itself, begins with other
global random streams, and evaluates in another order and, if asked from there, on another thread.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pgczmq.errors import ConfigError
from pgczmq.train.blocks import ByteArray
from pgczmq.train.data import Partitions, Samples
from pgczmq.train.flat import build_model
from pgczmq.train.gradient import PartitionGradient
from pgczmq.train.minibatches import Minibatches
from pgczmq.train.randomness import seed_global_streams
from pgczmq.train.task import Task, load_task

Measure: TypeAlias = Callable[[Any, Tensor], Tensor]
"""A task's loss or metric."""
ROWS = 32
"""Samples on which it is tried whether a loss is a mean."""
MEANS_DIFFER = 1e-3
"""Relative: float32 means that were added up in another order differ by less."""


@dataclass(frozen=True)
class Evaluation:
    """What a worker evaluated: the loss, its gradient, float32 [P], the buffers after it, and the seconds it took."""

    loss: float
    gradient: Tensor
    buffers: ByteArray
    seconds: float

    def same(self, other: "Evaluation") -> bool:
        """Whether a replica has the same bits."""
        mine, theirs = self.gradient.view(torch.int32), other.gradient.view(torch.int32)
        return bool(torch.equal(mine, theirs)) and np.array_equal(self.buffers, other.buffers)


class Trial:
    """A worker's half of a task, on partitions of the run's, with a second model beside it that can be looked into.

    Args:
        task: its name, as in the configuration.
        args: of its function.
        seed: of the run.
        cut: makes the partitions of a task's training set.
        device: "cpu" or "cuda".
        streams: what the global random streams begin with; of no consequence to a task that is as it should be.

    Raises:
        ConfigError: the task, its data or its model cannot be used so.
    """

    def __init__(
        self,
        task: str,
        args: Mapping[str, Any],
        *,
        seed: int,
        cut: Callable[[Task], Partitions],
        device: str,
        streams: int,
    ) -> None:
        seed_global_streams(streams, "trial")
        self.task = load_task(task, args, seed)
        self.partitions = cut(self.task)
        self.seed = seed
        self.flat = build_model(self.task, seed, device)
        self.flat.module.eval()
        self.gradient = PartitionGradient(self.task, partitions=self.partitions, seed=seed, device=device)
        self._minibatches = Minibatches(self.task, self.partitions, seed=seed, device=self.flat.device)

    def evaluate(self, params: Tensor, buffers: ByteArray, *, step: int, partition: int) -> Evaluation:
        """Evaluate the partition's minibatch at these parameters, float32 [P] in the host's memory.

        Raises:
            ConfigError: the model, loss or data cannot be used so, or the model wrote to its own parameters.
        """
        mine = params.clone()
        self.gradient.load(mine.numpy().data, buffers)
        out = self.gradient.empty()
        begun = time.perf_counter()
        loss, after = self.gradient.evaluate(step, partition, out=out)
        seconds = time.perf_counter() - begun
        if self.flat.device.type == "cpu" and not torch.equal(mine.view(torch.int32), params.view(torch.int32)):
            raise ConfigError(
                "a model's parameters change in the optimizer's step alone: it wrote to its own, though not the first "
                "time that a loss was computed. Compute with a changed copy instead, such as weight.clamp(-1, 1)."
            )
        return Evaluation(loss, out.cpu(), after, seconds)

    def minibatch(self, step: int, partition: int) -> tuple[Tensor, Tensor]:
        """The model's inputs and the targets as a worker reads them."""
        return self._minibatches.take(step, partition, 1.0)

    def raw(self, partition: int) -> tuple[Tensor, Tensor]:
        """Some of a partition's samples as the data set gives them, the global random streams seeded."""
        seed_global_streams(self.seed, "trial")
        return self.task.train.batch(torch.from_numpy(self.partitions.indices(partition)[:ROWS].copy()))

    def parts(self, gradient: Tensor) -> Iterator[tuple[str, Tensor]]:
        """A gradient, float32 [P], by the parameters' names."""
        sizes = [parameter.numel() for parameter in self.flat.module.parameters() if parameter.requires_grad]
        yield from zip(self.flat.names(), torch.split(gradient, sizes), strict=True)

    @torch.no_grad()
    def outputs(self, samples: Samples, indices: Sequence[int]) -> tuple[Any, Tensor]:
        """What the model makes of some samples when it is not training, at its first parameters, and their targets."""
        raw, target = samples.batch(torch.tensor(list(indices)))
        device = self.flat.device
        return self.flat.module(self.task.transform(raw.to(device))), target.to(device)


def sha256(*parts: Tensor) -> str:
    """Of the tensors' bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def same_data(one: Samples, other: Samples) -> bool:
    """Whether two sets hold the same samples, as far as their number and the first few say."""
    if len(one) != len(other):
        return False
    first = torch.arange(min(8, len(one)))
    return sha256(*one.batch(first)) == sha256(*other.batch(first))


# ---------------------------------------------------------------- means


@dataclass(frozen=True)
class Mean:
    """A loss or metric of a batch, of the batch twice, and the mean of its halves': equal if it is a mean."""

    whole: float
    twice: float
    halves: float

    @property
    def of_twice(self) -> bool:
        """Whether the number of samples is of no consequence."""
        return _close(self.whole, self.twice)

    @property
    def of_halves(self) -> bool:
        """Whether every sample counts alike."""
        return _close(self.whole, self.halves)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= MEANS_DIFFER * max(abs(one), abs(other)) + 1e-6


def mean_of(measure: Measure, output: Tensor, target: Tensor) -> Mean:
    """Try whether a loss or metric is a mean over the batch, an even number of samples.

    Args:
        output: of the model, [m, ...].
        target: [m, ...].
    """
    half = len(target) // 2
    places = [0, half, 2 * half]
    whole = float(measure(output[: 2 * half], target[: 2 * half]))
    twice = float(measure(torch.cat([output[: 2 * half]] * 2), torch.cat([target[: 2 * half]] * 2)))
    halves = [float(measure(output[begin:end], target[begin:end])) for begin, end in pairwise(places)]
    return Mean(whole, twice, sum(halves) / 2)


# ---------------------------------------------------------------- why replicas differ


def why_different(one: Trial, other: Trial, params: Tensor, *, step: int, partition: int) -> str:
    """In words, what makes two replicas of a partition differ: data, transform, augmentation or model."""
    buffers = one.gradient.base_buffers
    first = one.minibatch(step, partition)
    if sha256(*first) != sha256(*one.minibatch(step, partition)):
        return _of_reading(one, partition)
    if sha256(*first) != sha256(*other.minibatch(step, partition)):
        return (
            "the training data are others each time the task's function is called. What is drawn at random has to come "
            "from its argument seed, for example torch.Generator().manual_seed(seed)."
        )
    again = [one.evaluate(params, buffers, step=step, partition=partition) for _ in range(2)]
    if not again[0].same(again[1]):
        return (
            "the model gives another gradient for the same minibatch when it is asked again: it keeps something from "
            "one evaluation to the next beside parameters and buffers, or draws from a generator of its own. Keep "
            "state in buffers (register_buffer), and draw from torch's global stream, as nn.Dropout does."
        )
    return (
        "each agrees with itself, but the model is another each time it is built, or remembers what it evaluated "
        "before. What is drawn in model() has to come from torch's global stream or the seed."
    )


def _of_reading(trial: Trial, partition: int) -> str:
    raw = trial.raw(partition)
    if sha256(*raw) != sha256(*trial.raw(partition)):
        return (
            "the data set gives another sample when it is asked again. What it draws at random has to come from the "
            "global streams (torch.rand, random.random, numpy.random.rand), which a worker seeds for every minibatch: "
            "a generator of its own, the time, or a counter is not the same on two workers."
        )
    inputs = raw[0].to(trial.flat.device)
    seed_global_streams(trial.seed, "trial")
    transformed = trial.task.transform(inputs)
    seed_global_streams(trial.seed, "trial")
    part = "transform" if sha256(transformed) != sha256(trial.task.transform(inputs)) else "augment"
    rule = "Let it draw from the generator that it is given, alone."
    if part == "transform":
        rule = "It is given no generator, so that it cannot draw: augment is there for that."
    return f"{part} gives another batch when it is asked again. {rule}"
