"""All workers' gradients in one process, for a simulated run: each is evaluated once and shared by its replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from pgczmq.core.policies import Plan
from pgczmq.errors import PgcError
from pgczmq.train import blocks
from pgczmq.train.blocks import ByteArray, FloatArray
from pgczmq.train.gradient import PartitionGradient
from pgczmq.train.optimizer import Learner, Update

Coded: TypeAlias = tuple[FloatArray, ByteArray]
"""A message's payload: the coded gradient, float32 [P], and the buffers, uint8."""


@dataclass(frozen=True)
class Evaluation:
    """A gradient, float32 [P] in the host's memory, with what came with it; never written again."""

    gradient: FloatArray
    loss: float
    buffers: ByteArray


@dataclass(frozen=True)
class _Parameters:
    """Parameters and buffers of one step, and what was evaluated at them, by (partition, batch fraction)."""

    params: FloatArray
    buffers: ByteArray
    evaluations: dict[tuple[int, float], Evaluation] = field(default_factory=dict)


class SharedTraining:
    """What all workers of a run retain, as references into one set of evaluations, and the master's parameters.

    A partition is evaluated at most once at the parameters of a step, whoever asks first. Messages have the same
    bits as those of ``gradient.Gradients``.

    Args:
        learner: the parameters and how they are updated.
        gradient: evaluates partitions.
        held: partitions at the places of each worker.
        coefficients: the encoding coefficients of each worker's places.

    Attributes:
        parameter_count: P.
        message_bytes: size of one message.
    """

    def __init__(
        self,
        learner: Learner,
        gradient: PartitionGradient,
        *,
        held: Sequence[Sequence[int]],
        coefficients: Sequence[Sequence[float]],
    ) -> None:
        self._learner = learner
        self._gradient = gradient
        self._held = held
        self._coefficients = coefficients
        self._retained: list[dict[int, Evaluation]] = [{} for _ in held]
        self._fresh: list[tuple[int, dict[int, ByteArray]]] = [(-1, {}) for _ in held]
        self._steps: dict[int, _Parameters] = {}
        self._loaded = -1
        self.parameter_count = gradient.parameter_count
        self.message_bytes = 4 * gradient.parameter_count + gradient.buffers.nbytes

    def publish(self, step: int, in_hand: int) -> None:
        """The present parameters are those of ``step``; those of steps before ``in_hand`` are needed no more."""
        self._steps = {old: kept for old, kept in self._steps.items() if old >= in_hand}
        self._steps[step] = _Parameters(*self._learner.snapshot())

    def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
        """The worker retains the gradient of the partition at a place, at the parameters of ``step``; its loss."""
        found = self._evaluation(step, self._held[worker][place], batch_fraction)
        self._retained[worker][place] = found
        if self._fresh[worker][0] != step:
            self._fresh[worker] = (step, {})
        self._fresh[worker][1][place] = found.buffers
        return found.loss

    def encode(self, worker: int) -> tuple[Coded, float]:
        """The worker's message and its norm.

        Raises:
            PgcError: a place has no retained gradient.
        """
        retained = self._retained[worker]
        if len(retained) != len(self._held[worker]):
            raise PgcError(f"a coded gradient needs a retained gradient at every place: worker {worker} lacks some.")
        gradients = [retained[place].gradient for place in range(len(retained))]
        coded, norm = _coded(self._coefficients[worker], gradients)
        fresh = self._fresh[worker][1]
        return (coded, self._gradient.buffers.average([fresh[place] for place in sorted(fresh)])), norm

    def forget(self, worker: int) -> None:
        """The worker is gone, and with it what it retained."""
        self._retained[worker] = {}
        self._fresh[worker] = (-1, {})

    def apply(self, step: int, messages: Sequence[tuple[int, float, Coded]], plan: Plan) -> Update:
        """Move the parameters by the weighted sum of (worker, weight, message); see ``Learner.apply``."""
        return self._learner.apply(step, [(worker, weight, *coded) for worker, weight, coded in messages], plan)

    def _evaluation(self, step: int, partition: int, batch_fraction: float) -> Evaluation:
        at = self._steps[step]
        found = at.evaluations.get((partition, batch_fraction))
        if found is None:
            if self._loaded != step:
                self._gradient.load(at.params, at.buffers)
                self._loaded = step
            out = self._gradient.empty()
            loss, buffers = self._gradient.evaluate(step, partition, batch_fraction, out=out)
            found = at.evaluations[partition, batch_fraction] = Evaluation(out.cpu().numpy(), loss, buffers)
        return found


def _coded(coefficients: Sequence[float], gradients: Sequence[FloatArray]) -> tuple[FloatArray, float]:
    """The sum over all places, as ``gradient.Gradients.encode`` has it; one gradient as it is is not copied."""
    if list(coefficients) == [1.0]:
        return gradients[0], blocks.norm(gradients[0])
    coded = np.empty(gradients[0].size, np.float32)
    return coded, blocks.weighted_sum(coefficients, gradients, out=coded)
