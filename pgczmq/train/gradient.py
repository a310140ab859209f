"""The worker's half: gradients of partitions, what is retained of them, and their coded sum."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pgczmq.core import seeds
from pgczmq.errors import ConfigError, PgcError
from pgczmq.train import blocks
from pgczmq.train.blocks import Buffer, ByteArray, FloatArray
from pgczmq.train.data import Partitions
from pgczmq.train.fingerprint import fingerprints
from pgczmq.train.flat import build_model
from pgczmq.train.randomness import seed_global_streams, seed_torch
from pgczmq.train.task import Task


def resolve_device(name: str) -> str:
    """The device that ``device = "auto" | "cpu" | "cuda"`` means on this machine.

    Raises:
        ConfigError: "cuda" without one.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError('device = "cuda" needs a CUDA device that torch can see: there is none. Use device = "cpu".')
    if name == "auto":
        return "cuda" if available else "cpu"
    return name


def encode(coefficients: Sequence[float], gradients: Sequence[FloatArray]) -> tuple[FloatArray, float]:
    """A coded gradient: the sum over all places, in order, of float32(coefficient) * gradient.

    Args:
        coefficients: one a place.
        gradients: float32 [P] each, at least one; they are only read.

    Returns:
        The coded gradient, a fresh float32 [P]; its norm.
    """
    coded = np.empty(gradients[0].size, np.float32)
    blocks.weighted_sum(coefficients, gradients, out=coded)
    return coded, blocks.norm(coded)


class PartitionGradient:
    """Evaluates the gradient of any partition at the parameters loaded last, and keeps none.

    What is drawn at random (augmentation, dropout) depends on (seed, partition, step) alone, so that replicas
    of a partition on different workers agree to the bit. All methods are called from one thread.

    Args:
        task: what is trained.
        partitions: the cut of the training set.
        seed: the run's.
        device: "cpu" or "cuda".

    Attributes:
        fingerprint: see ``fingerprint.fingerprints``.
        parameter_count: P.
        buffers: of the module; gathers and averages.
        base_buffers: those loaded last, uint8.
    """

    def __init__(self, task: Task, *, partitions: Partitions, seed: int, device: str = "cpu") -> None:
        self._task = task
        self._partitions = partitions
        self._seed = seed
        self._flat = build_model(task, seed, device)
        self._flat.module.train()
        self._generator = torch.Generator(self._flat.device)
        self.fingerprint = fingerprints(task, self._flat, seed=seed)
        self.parameter_count = len(self._flat)
        self.buffers = self._flat.buffers
        self.base_buffers = self.buffers.gather()

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Take the parameters, float32 [P], and buffers, uint8, of a step. Both are copied.

        Raises:
            WireError: a size is not the model's; nothing is taken then of what has the wrong size.
        """
        self.buffers.restore(buffers)
        self._flat.load(params)
        self.base_buffers = np.array(np.frombuffer(buffers, np.uint8))

    def empty(self) -> Tensor:
        """Room for a gradient: float32 [P] on the device, whatever it holds."""
        return torch.empty_like(self._flat.params)

    def evaluate(
        self, step: int, partition: int, batch_fraction: float = 1.0, *, out: Tensor
    ) -> tuple[float, ByteArray]:
        """Evaluate the gradient of a partition's minibatch.

        Args:
            step: picks the minibatch and the random numbers.
            partition: 0..n-1.
            batch_fraction: in (0, 1], the part of the minibatch to use.
            out: float32 [P] on the device; becomes the gradient.

        Returns:
            The mean loss over the minibatch; the buffers after it, a fresh uint8.

        Raises:
            ConfigError: the task's loss is not a scalar.
        """
        inputs, target = self._minibatch(step, partition, batch_fraction)
        self.buffers.restore(self.base_buffers)
        self._flat.attach_gradient(out.zero_())
        seed_torch(seeds.integer(self._seed, "dropout", partition, step))
        loss = self._task.loss(self._flat.module(inputs), target)
        if loss.dim():
            raise ConfigError(f"a task's loss is the mean over the batch, a scalar: got shape {tuple(loss.shape)}.")
        torch.autograd.backward(loss)
        return float(loss.detach()), self.buffers.gather()

    def _minibatch(self, step: int, partition: int, batch_fraction: float) -> tuple[Tensor, Tensor]:
        indices = self._partitions.minibatch(partition, step, batch_fraction)
        seed_global_streams(self._seed, "samples", partition, step)  # for data sets with transforms of their own
        raw, target = self._task.train.batch(torch.from_numpy(indices))
        inputs = self._task.transform(raw.to(self._flat.device))
        if self._task.augment is not None:
            self._generator.manual_seed(seeds.integer(self._seed, "augment", partition, step))
            inputs = self._task.augment(inputs, self._generator)
        return inputs, target.to(self._flat.device)


class Gradients:
    """Evaluates the held partitions' gradients, retains them, and sums them up to a coded gradient.

    All methods are called from one thread.

    Args:
        task: what is trained.
        held: the partition at each place.
        coefficients: the encoding coefficient of each place.
        partitions: the cut of the training set.
        seed: the run's.
        device: "cpu" or "cuda".

    Attributes:
        fingerprint: see ``fingerprint.fingerprints``.
        parameter_count: P.
        buffer_bytes: size of the packed buffers.
    """

    def __init__(
        self,
        task: Task,
        *,
        held: Sequence[int],
        coefficients: Sequence[float],
        partitions: Partitions,
        seed: int,
        device: str = "cpu",
    ) -> None:
        if len(held) != len(coefficients):
            raise PgcError(f"each of the {len(held)} places needs a coefficient: got {len(coefficients)}.")
        self._held = tuple(held)
        self._coefficients = tuple(coefficients)
        self._gradient = PartitionGradient(task, partitions=partitions, seed=seed, device=device)
        self._slots: list[Tensor | None] = [None] * len(held)
        self._retained: set[int] = set()
        self._new_buffers: dict[int, ByteArray] = {}
        self.fingerprint = self._gradient.fingerprint
        self.parameter_count = self._gradient.parameter_count
        self.buffer_bytes = self._gradient.buffers.nbytes

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Take the parameters, float32 [P], and buffers, uint8, of a step. Both are copied.

        Raises:
            WireError: a size is not the model's; nothing is taken then of what has the wrong size.
        """
        self._gradient.load(params, buffers)
        self._new_buffers.clear()

    def evaluate(self, step: int, place: int, batch_fraction: float = 1.0) -> float:
        """Evaluate and retain the gradient of the partition at a place, at the parameters loaded last.

        Args:
            step: picks the minibatch and the random numbers.
            place: 0..c-1.
            batch_fraction: in (0, 1], the part of the minibatch to use.

        Returns:
            The mean loss over the minibatch.

        Raises:
            ConfigError: the task's loss is not a scalar.
        """
        self._retained.discard(place)  # until backward is through, the place holds no whole gradient
        slot = self._slots[place]
        if slot is None:
            slot = self._slots[place] = self._gradient.empty()
        loss, buffers = self._gradient.evaluate(step, self._held[place], batch_fraction, out=slot)
        self._retained.add(place)
        self._new_buffers[place] = buffers
        return loss

    def encode(self) -> tuple[FloatArray, float, ByteArray]:
        """The coded gradient of what is retained at all places; see the function ``encode``.

        Returns:
            The coded gradient, a fresh float32 [P]; its norm; the mean of the buffers after the evaluations
            made since ``load``, a fresh uint8, or those loaded if there was none.

        Raises:
            PgcError: a place has no retained gradient.
        """
        missing = sorted(set(range(len(self._held))) - self._retained)
        if missing:
            raise PgcError(f"a coded gradient needs a retained gradient at every place: {missing} have none.")
        coded, norm = encode(self._coefficients, [slot.cpu().numpy() for slot in self._slots if slot is not None])
        # By place, so that the order in which partitions were evaluated leaves no trace.
        fresh = [self._new_buffers[place] for place in sorted(self._new_buffers)]
        return coded, norm, self._gradient.buffers.average(fresh or [self._gradient.base_buffers])

    def forget(self) -> None:
        """Drop all retained gradients."""
        self._retained.clear()
        self._new_buffers.clear()
