"""Minibatches, loaded and augmented when they are asked for, or before that on another thread."""

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pgczmq.core import seeds
from pgczmq.train.data import DatasetSamples, Partitions
from pgczmq.train.randomness import seed_global_streams
from pgczmq.train.task import Task

KEPT = 2
"""Minibatches that are kept ready; the oldest goes first."""

Minibatch: TypeAlias = tuple[Tensor, Tensor]
"""The model's inputs and the targets, on the device."""


class Minibatches:
    """Reads the minibatches of a training set: the same bits whoever asks when, and on whichever thread.

    Data and functions of a user's own may draw from the global random streams, which the model uses too. They are
    seeded before each minibatch, and nothing of the kind is read while the model is at work: see ``undisturbed``.
    What this package brings along draws from a generator of its own and is read beside it.

    Args:
        task: data, transform and augmentation.
        partitions: the cut of the training set.
        seed: the run's.
        device: where minibatches go.

    Attributes:
        draws: reading may draw from the global random streams.
    """

    def __init__(self, task: Task, partitions: Partitions, *, seed: int, device: torch.device) -> None:
        self._task = task
        self._partitions = partitions
        self._seed = seed
        self._device = device
        self._ready: dict[tuple[int, int, float], Minibatch] = {}
        self._generator = torch.Generator(device)
        self._reading = threading.RLock()  # held by whoever reads: seeding and drawing are one
        self.draws = _may_draw_from_global_streams(task)

    def undisturbed(self) -> AbstractContextManager[object]:
        """While this is held, nobody else's reading touches the global random streams."""
        return self._reading if self.draws else nullcontext()

    def take(self, step: int, partition: int, batch_fraction: float) -> Minibatch:
        """The minibatch, which becomes the caller's: made ready before, or read now."""
        with self._reading:
            found = self._ready.pop((step, partition, batch_fraction), None)
            return self._read(step, partition, batch_fraction) if found is None else found

    def make_ready(self, step: int, partition: int, batch_fraction: float) -> None:
        """Read a minibatch that ``take`` will probably be asked for. It raises nothing: ``take`` will."""
        wanted = (step, partition, batch_fraction)
        with self._reading:
            if wanted in self._ready:
                return
            try:
                self._ready[wanted] = self._read(*wanted)
            except Exception:  # the user's code: whoever needs this minibatch reads it again, and meets the same
                return
            while len(self._ready) > KEPT:
                del self._ready[next(iter(self._ready))]

    def _read(self, step: int, partition: int, batch_fraction: float) -> Minibatch:
        indices = self._partitions.minibatch(partition, step, batch_fraction)
        if self.draws:
            seed_global_streams(self._seed, "samples", partition, step)
        raw, target = self._task.train.batch(torch.from_numpy(indices))
        inputs = self._task.transform(raw.to(self._device))
        if self._task.augment is not None:
            self._generator.manual_seed(seeds.integer(self._seed, "augment", partition, step))
            inputs = self._task.augment(inputs, self._generator)
        return inputs, target.to(self._device)


def _may_draw_from_global_streams(task: Task) -> bool:
    """Whether anything that reads is a user's own: data sets do draw, and so does a function written in haste."""
    parts: list[Any] = [type(task.train), task.transform, task.augment or task.transform]
    ours = all(getattr(part, "__module__", "").startswith("pgczmq.") for part in parts)
    return isinstance(task.train, DatasetSamples) or not ours
