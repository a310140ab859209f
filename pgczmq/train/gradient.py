"""The worker's half: gradients of partitions, what is retained of them, and their coded sum."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from pgczmq.errors import ConfigError, PgcError
from pgczmq.train import blocks, half
from pgczmq.train.blocks import Buffer, ByteArray
from pgczmq.train.data import Partitions
from pgczmq.train.fingerprint import fingerprints
from pgczmq.train.flat import build_model
from pgczmq.train.minibatches import Minibatches
from pgczmq.train.randomness import seed_global_streams
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


class PartitionGradient:
    """Evaluates the gradient of any partition at the parameters loaded last, and keeps none.

    What is drawn at random (augmentation, dropout) depends on (seed, partition, step) alone, so that replicas
    of a partition on different workers agree to the bit. All methods are called from one thread, but for ``prefetch``.

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
        reads_alone: minibatches cannot be read beside an evaluation.
    """

    def __init__(self, task: Task, *, partitions: Partitions, seed: int, device: str = "cpu") -> None:
        self._task = task
        self._seed = seed
        self._flat = build_model(task, seed, device)
        self._flat.module.train()
        self._minibatches = Minibatches(task, partitions, seed=seed, device=self._flat.device)
        self.reads_alone = self._minibatches.draws
        self._proven = False  # that the model leaves its parameters alone
        self.fingerprint = fingerprints(task, self._flat, seed=seed)
        self.parameter_count = len(self._flat)
        self.buffers = self._flat.buffers
        self.base_buffers = self.buffers.gather()

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Compute at the parameters, float32 or bfloat16 [P], and buffers, uint8, of a step.

        The parameters must not change until others are loaded: see ``FlatModel.load``. Buffers are copied.

        Raises:
            WireError: a size is not the model's; nothing is taken then of what has the wrong size.
        """
        self.buffers.restore(buffers)
        self._flat.load(params)
        self.base_buffers = np.array(np.frombuffer(buffers, np.uint8))

    def empty(self) -> Tensor:
        """Room for a gradient: float32 [P] on the device, whatever it holds."""
        return torch.empty_like(self._flat.params)

    def prefetch(self, step: int, partition: int, batch_fraction: float = 1.0) -> None:
        """Get a minibatch ready; on another thread, beside ``evaluate``. It changes no bit and raises nothing."""
        self._minibatches.make_ready(step, partition, batch_fraction)

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
            ConfigError: the task's loss is not a scalar, or the model writes to its own parameters.
        """
        with self._minibatches.undisturbed():
            inputs, target = self._minibatches.take(step, partition, batch_fraction)
            self.buffers.restore(self.base_buffers)
            self._flat.attach_gradient(out.zero_())
            seed_global_streams(self._seed, "dropout", partition, step)
            with nullcontext() if self._proven else self._flat.watched():
                loss = self._backward(inputs, target)
        self._proven = True
        return loss, self.buffers.gather()

    def _backward(self, inputs: Tensor, target: Tensor) -> float:
        loss = self._task.loss(self._flat.module(inputs), target)
        if not isinstance(loss, Tensor) or loss.dim():
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ConfigError(f"a task's loss is the mean over the batch, a scalar tensor: got {got}.")
        if not loss.requires_grad:
            raise ConfigError(
                "a task's loss depends on the model's parameters: it does not. Was something detached, taken as a "
                "number (.item()), or computed under torch.no_grad()?"
            )
        torch.autograd.backward(loss)
        return float(loss.detach())


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
        self._plain = self._coefficients == (1.0,) and device == "cpu"  # a coded gradient is the gradient itself
        self._slots: dict[int, Tensor] = {}  # memory of this object's own, a place
        self._retained: dict[int, Tensor] = {}
        self._new_buffers: dict[int, ByteArray] = {}
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")  # no thread before it is used
        self._loading: Future[None] | None = None
        self._wanted: tuple[int, int, float] | None = None  # (step, partition, batch fraction) to be read ahead
        self.fingerprint = self._gradient.fingerprint
        self.parameter_count = self._gradient.parameter_count
        self.buffer_bytes = self._gradient.buffers.nbytes

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Compute at the parameters, float32 or bfloat16 [P], and buffers, uint8, of a step.

        The parameters must not change until others are loaded: see ``FlatModel.load``. Buffers are copied.

        Raises:
            WireError: a size is not the model's; nothing is taken then of what has the wrong size.
        """
        self._gradient.load(params, buffers)
        self._new_buffers.clear()

    def prefetch(self, step: int, place: int, batch_fraction: float = 1.0) -> None:
        """Begin to get the minibatch ready that ``evaluate`` will probably be asked for, on a thread beside all else.

        Where data draws from the random streams that the model uses, it is read after the next evaluation, which it
        would hold up, and before the one after that.
        It changes no bit and raises nothing: what is wrong with the data, ``evaluate`` will find. Nothing is begun
        while the minibatch asked for before is still being read.
        """
        self._wanted = (step, self._held[place], batch_fraction)
        if not self._gradient.reads_alone:
            self._read_ahead()

    def _read_ahead(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None and (self._loading is None or self._loading.done()):
            self._loading = self._loader.submit(self._gradient.prefetch, *wanted)

    def evaluate(self, step: int, place: int, batch_fraction: float, room: ByteArray) -> float:
        """Evaluate and retain the gradient of the partition at a place, at the parameters loaded last.

        Args:
            step: picks the minibatch and the random numbers.
            place: 0..c-1.
            batch_fraction: in (0, 1], the part of the minibatch to use.
            room: uint8 [4 P] or [2 P], aligned as float32: where ``encode`` will be asked to put the coded gradient.
                Where that is this very gradient, backward puts it there.

        Returns:
            The mean loss over the minibatch.

        Raises:
            ConfigError: the task's loss is not a scalar, or the model writes to its own parameters.
        """
        self._retained.pop(place, None)  # until backward is through, the place holds no whole gradient
        out = self._memory(place, room)
        loss, buffers = self._gradient.evaluate(step, self._held[place], batch_fraction, out=out)
        self._retained[place] = out
        self._new_buffers[place] = buffers
        self._read_ahead()
        return loss

    def forget(self, place: int) -> None:
        """Drop the gradient retained at a place."""
        self._retained.pop(place, None)
        self._new_buffers.pop(place, None)

    def encode(self, room: ByteArray, buffers: ByteArray) -> float:
        """Put the coded gradient there: the sum over all places, in order, of float32(coefficient) * gradient.

        Args:
            room: uint8 [4 P], for float32, or [2 P], for bfloat16: that of the evaluations of this step.
            buffers: uint8; becomes the mean of the buffers after the evaluations made since ``load``, or those
                loaded if there was none.

        Returns:
            The coded gradient's norm.

        Raises:
            PgcError: a place has no retained gradient, or the gradient was put into another room.
        """
        missing = sorted(set(range(len(self._held))) - self._retained.keys())
        if missing:
            raise PgcError(f"a coded gradient needs a retained gradient at every place: {missing} have none.")
        # By place, so that the order in which partitions were evaluated leaves no trace.
        fresh = [self._new_buffers[place] for place in sorted(self._new_buffers)]
        buffers[:] = self._gradient.buffers.average(fresh or [self._gradient.base_buffers])
        gradients = [self._retained[place].cpu().numpy() for place in range(len(self._held))]
        out = half.float_or_half(room, self.parameter_count)
        if not self._goes_straight(room):
            return blocks.weighted_sum(self._coefficients, gradients, out=out)
        if not np.shares_memory(out, gradients[0]):
            raise PgcError("the gradient was put into other memory than that where it is asked for.")
        return blocks.norm(gradients[0])

    def _goes_straight(self, room: ByteArray) -> bool:
        """Whether backward puts the coded gradient into this room."""
        return self._plain and room.size == 4 * self.parameter_count

    def _memory(self, place: int, room: ByteArray) -> Tensor:
        if self._goes_straight(room):
            return torch.from_numpy(room.view(np.float32))
        if place not in self._slots:
            self._slots[place] = self._gradient.empty()
        return self._slots[place]
