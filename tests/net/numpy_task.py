"""A model without torch: partition k pulls the parameters towards a target of its own, so starts are quick."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgczmq.core import seeds

EMPTY = np.zeros(0, dtype=np.uint8)


def target(partition: int, size: int) -> np.ndarray:
    """What partition pulls towards, (size,)."""
    return seeds.rng(7, "target", partition).standard_normal(size).astype(np.float32)


@dataclass(frozen=True)
class NumpyUpdate:
    """As net.compute.Update."""

    finite: bool
    culprits: tuple[int, ...]
    norm: float
    statistics: None = None


class NumpyMaster:
    """Plain gradient descent on the mean of the partitions' quadratic losses."""

    fingerprint: ClassVar = {"model": "quadratic", "data": "targets", "torch": "none", "device": "cpu"}

    def __init__(self, size: int, lr: float = 0.1) -> None:
        self.params = np.zeros(size, dtype=np.float32)
        self.parameter_count = size
        self.lr = lr
        self.applied: list[tuple[int, tuple[int, ...]]] = []

    def snapshot(self) -> tuple[np.ndarray, np.ndarray]:
        copy = self.params.copy()
        copy.flags.writeable = False
        return copy, EMPTY

    def apply(self, step: int, messages: Sequence[tuple[int, float, Any, Any]], plan: Any = None) -> NumpyUpdate:
        estimate = np.zeros_like(self.params)
        bad = []
        for worker, weight, gradient, _ in sorted(messages, key=lambda message: message[0]):
            values = np.frombuffer(gradient, dtype=np.float32)
            if not np.isfinite(values).all():
                bad.append(worker)
            estimate += np.float32(weight) * values
        norm = float(np.linalg.norm(estimate.astype(np.float64)))
        if not np.isfinite(norm):
            return NumpyUpdate(False, tuple(bad), norm)
        self.params -= np.float32(self.lr) * estimate
        self.applied.append((step, tuple(sorted(worker for worker, *_ in messages))))
        return NumpyUpdate(True, (), norm)

    def sha256(self) -> str:
        return hashlib.sha256(self.params.tobytes()).hexdigest()


class NumpyWorker:
    """Gradients of the quadratic losses of the partitions held."""

    fingerprint: ClassVar = NumpyMaster.fingerprint
    buffer_bytes = 0

    def __init__(self, size: int, held: Sequence[int], coefficients: Sequence[float], seconds: float = 0.0) -> None:
        self.parameter_count = size
        self.held = list(held)
        self.coefficients = np.asarray(coefficients, dtype=np.float32)
        self.seconds = seconds
        self.retained: dict[int, np.ndarray] = {}
        self.params = np.zeros(size, dtype=np.float32)

    def load(self, params: Any, buffers: Any) -> None:
        self.params = np.frombuffer(params, dtype=np.float32)

    def evaluate(self, step: int, place: int, batch_fraction: float) -> float:
        if self.seconds:
            time.sleep(self.seconds)
        difference = self.params - target(self.held[place], self.parameter_count)
        self.retained[place] = difference
        return float(0.5 * (difference.astype(np.float64) ** 2).mean())

    def encode(self) -> tuple[np.ndarray, float, np.ndarray]:
        total = np.zeros(self.parameter_count, dtype=np.float32)
        for place in range(len(self.held)):
            total += self.coefficients[place] * self.retained[place]
        return total, float(np.linalg.norm(total.astype(np.float64))), EMPTY
