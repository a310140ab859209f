"""The master's half: combine what the workers sent, and move the parameters."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from pgczmq.config import OptimizerConfig
from pgczmq.core.policies import Needs, Plan, Statistics
from pgczmq.errors import ConfigError, PgcError
from pgczmq.train import blocks, checkpoint, half
from pgczmq.train.blocks import Buffer, ByteArray, FloatArray, Threads
from pgczmq.train.checkpoint import CheckpointState
from pgczmq.train.fingerprint import fingerprints
from pgczmq.train.flat import build_model
from pgczmq.train.folding import Folding
from pgczmq.train.observer import Observer
from pgczmq.train.task import Task

Message: TypeAlias = tuple[int, float, Buffer, Buffer]
"""(worker, decoding weight, coded gradient as float32 or bfloat16 [P], buffers as uint8)"""


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """The learning rate of a step.

    With warm-up, step 0 takes lr / warmup and step warmup - 1 is the first with all of it; the cosine runs
    from there to 0 at ``steps``, which is the first step that is not taken.

    Args:
        config: lr, schedule, warmup, step_every, step_factor.
        step: 0..steps-1.
        steps: of the whole run.
    """
    rise = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return config.lr * rise * _SCHEDULES[config.schedule](config, step, steps)


def _constant(config: OptimizerConfig, step: int, steps: int) -> float:
    return 1.0


def _cosine(config: OptimizerConfig, step: int, steps: int) -> float:
    done = (step - config.warmup) / max(1, steps - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, done))))


def _step(config: OptimizerConfig, step: int, steps: int) -> float:
    return float(config.step_factor ** (step // config.step_every))


_SCHEDULES: Mapping[str, Callable[[OptimizerConfig, int, int], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "step": _step,
}


@dataclass(frozen=True)
class Update:
    """What became of a step's messages.

    Attributes:
        finite: the estimate was applied, and the parameters are finite.
        culprits: workers whose message had a value that is not finite, ascending. Nothing was applied then.
            Empty beside ``finite = False``: the run diverged; if ``norm`` is finite the parameters did, in
            this update, else the estimate, and it was not applied.
        norm: Euclidean norm of the estimate.
        statistics: what the run's policy reads; None when it reads nothing, or nothing was applied.
        combining: seconds that it took to combine the messages.
    """

    finite: bool
    culprits: tuple[int, ...]
    norm: float
    statistics: Statistics | None = None
    combining: float = field(default=0.0, compare=False)


class Learner:
    """Parameters, buffers and optimizer. All methods are called from one thread at a time.

    Args:
        task: model and data.
        config: the optimizer.
        steps: of the whole run.
        seed: of the run.
        needs: the statistics that the run's policy reads.
        threads: that go through the vectors; no bit depends on their number.

    Attributes:
        fingerprint: see ``fingerprint.fingerprints``; the master computes on the CPU, whatever the workers use.
        parameter_count: P.
        buffer_bytes: size of the packed buffers.
    """

    def __init__(
        self,
        task: Task,
        *,
        config: OptimizerConfig,
        steps: int,
        seed: int,
        needs: Needs | None = None,
        threads: int = 1,
    ) -> None:
        self._config = config
        self._steps = steps
        self._flat = build_model(task, seed)
        self._leaf = nn.Parameter(self._flat.params)
        self._needs = needs or Needs()
        self._threads = Threads(threads)
        self._observer = Observer(self._needs, len(self._flat), self._threads)
        self._folding = Folding(self._threads)
        self._leaf.grad = self._estimate = self._observer.next_estimate()
        self._optimizer = _build(config, self._leaf)
        self.fingerprint = fingerprints(task, self._flat, seed=seed)
        self.parameter_count = len(self._flat)
        self.buffer_bytes = self._flat.buffers.nbytes

    def snapshot(self) -> tuple[FloatArray, ByteArray]:
        """Fresh read-only copies of parameters, float32 [P], and buffers, uint8: safe to hand to a socket."""
        return self._flat.snapshot()

    def write(self, params: ByteArray, buffers: ByteArray) -> None:
        """Copy the parameters, as float32 or bfloat16 [P] according to the size given, and the packed buffers.

        Raises:
            WireError: the size is neither.
        """
        out = half.float_or_half(params, self.parameter_count)
        blocks.copy(self._flat.params.numpy(), out, self._threads)
        np.copyto(buffers, self._flat.buffers.gather())

    def fold(self, step: int, messages: Sequence[tuple[int, Buffer]]) -> None:
        """Add (worker, coded gradient) to a sum, before it is known with what weight they will count.

        ``apply`` takes it if they all count in the end, with one weight; the estimate's rounding then depends on the
        order in which they were folded. Messages are only read, and ``apply`` is to be given them again.

        Args:
            step: another than the last one's begins a new sum.
            messages: which are added in one pass over memory.

        Raises:
            WireError: a message's size is not the model's; none was added.
        """
        arrivals = [(worker, half.float_or_half(gradient, self.parameter_count)) for worker, gradient in messages]
        self._folding.add(step, arrivals, out=self._observer.next_estimate().numpy())

    def apply(self, step: int, messages: Sequence[Message], plan: Plan | None = None) -> Update:
        """Move the parameters by the weighted sum of the messages, added in the order of worker numbers.

        What was folded comes first in that order. The buffers become the mean of the messages' buffers. Messages are
        only read, and not kept.

        Args:
            step: sets the learning rate.
            messages: those that count at this step, at least one, in any order; folded ones, too.
            plan: the step's; the reference of distances is taken when it changes.

        Raises:
            WireError: a message's size is not the model's; nothing was applied.
        """
        if not messages:
            raise PgcError("an update needs at least one message.")
        ordered = sorted(messages, key=lambda message: message[0])
        terms = [
            (worker, weight, half.float_or_half(message, self.parameter_count))
            for worker, weight, message, _ in ordered
        ]
        buffers = self._flat.buffers.average([packed for *_, packed in ordered])
        self._leaf.grad = self._estimate = self._observer.next_estimate()
        begun = time.perf_counter()
        norm = self._folding.combine(step, terms, out=self._estimate.numpy())
        combining = time.perf_counter() - begun
        if not (math.isfinite(norm) and self._flat.buffers.sound(buffers)):
            return Update(False, self._culprits(ordered), norm)
        self._observer.before(self._flat.params, plan)
        self._step(learning_rate(self._config, step, self._steps))
        self._flat.buffers.restore(buffers)
        statistics = self._observer.after(self._flat.params, norm)
        finite = math.isfinite(blocks.norm(self._flat.params.numpy(), self._threads))
        return Update(finite, (), norm, None if self._needs == Needs() else statistics, combining)

    def sha256(self) -> str:
        """sha256 of the parameters' float32 bytes, in hexadecimal digits."""
        return hashlib.sha256(self._flat.params.numpy().data).hexdigest()

    def checkpoint_state(self) -> CheckpointState:
        """A copy of everything that ``restore`` needs, to be written while the next steps run."""
        state = {key: _cloned(value) for key, value in self._optimizer.state[self._leaf].items()}
        about = {"name": self._config.name, "state": state, "observed": self._observer.state()}
        return CheckpointState(self._flat.state_dict(), about)

    def write_files(self, directory: Path, state: CheckpointState) -> None:
        """Write what ``checkpoint_state`` gave into a directory that exists."""
        checkpoint.write_files(directory, state)

    def restore(self, directory: Path) -> None:
        """Take up parameters, buffers and optimizer from a checkpoint's files, which are whole, to the same bits.

        Learning rate, momentum and weight decay are those of the present configuration.

        Raises:
            ConfigError: it is of another model or another optimizer.
        """
        saved = checkpoint.read_files(directory)
        name = saved.optimizer["name"]
        if name != self._config.name:
            raise ConfigError(
                f"a run goes on with the optimizer it began with: {directory} is of optimizer.name = {name}, "
                f"the configuration has {self._config.name}."
            )
        self._flat.load_state_dict(dict(saved.model))
        groups = self._optimizer.state_dict()["param_groups"]
        states = {0: dict(saved.optimizer["state"])} if saved.optimizer["state"] else {}
        self._optimizer.load_state_dict({"state": states, "param_groups": groups})
        self._observer.restore(saved.optimizer.get("observed", {}))

    def _step(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()

    def _culprits(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Called only when something is wrong: looking at every message costs as much as summing them."""
        return tuple(
            worker
            for worker, _, gradient, packed in messages
            if not (self._all_finite(gradient) and self._flat.buffers.sound(packed))
        )

    def _all_finite(self, gradient: Buffer) -> bool:
        vector, spoiled = half.float_or_half(gradient, self.parameter_count), self._estimate.numpy()
        return math.isfinite(blocks.weighted_sum([1.0], [vector], out=spoiled, threads=self._threads))


def _build(config: OptimizerConfig, leaf: nn.Parameter) -> torch.optim.Optimizer:
    """The optimizer; fused, since Adam takes 7 ms so and 59 ms otherwise on 11.7 M parameters."""
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.name == "sgd":
        return torch.optim.SGD([leaf], momentum=config.momentum, **common)
    if config.name == "adam":
        return torch.optim.Adam([leaf], **common)
    return torch.optim.AdamW([leaf], **common)


def _cloned(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
