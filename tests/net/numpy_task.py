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


def pack(vector: np.ndarray, nbytes: int) -> bytes:
    """As float32 or, cut off instead of rounded, as bfloat16."""
    return vector.tobytes() if nbytes == vector.nbytes else (vector.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def unpack(memory: Any, size: int) -> np.ndarray:
    """What ``pack`` made of so many numbers."""
    raw = np.frombuffer(memory, np.uint8)
    if len(raw) == 4 * size:
        return raw.view(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class NumpyUpdate:
    """As net.compute.Update."""

    finite: bool
    culprits: tuple[int, ...]
    norm: float
    statistics: None = None
    combining: float = 0.0


class NumpyMaster:
    """Plain gradient descent on the mean of the partitions' quadratic losses."""

    fingerprint: ClassVar = {"model": "quadratic", "data": "targets", "torch": "none", "device": "cpu"}
    buffer_bytes = 0

    def __init__(self, size: int, lr: float = 0.1) -> None:
        self.params = np.zeros(size, dtype=np.float32)
        self.parameter_count = size
        self.lr = lr
        self.applied: list[tuple[int, tuple[int, ...]]] = []
        self.folded: list[tuple[int, int]] = []

    def snapshot(self) -> tuple[np.ndarray, np.ndarray]:
        copy = self.params.copy()
        copy.flags.writeable = False
        return copy, EMPTY

    def write(self, params: np.ndarray, buffers: np.ndarray) -> None:
        params[:] = np.frombuffer(pack(self.params, len(params)), np.uint8)

    def fold(self, step: int, messages: Sequence[tuple[int, Any]]) -> None:
        """Only noted: adding up early is the real master's business."""
        self.folded += [(step, worker) for worker, _ in messages]

    def apply(self, step: int, messages: Sequence[tuple[int, float, Any, Any]], plan: Any = None) -> NumpyUpdate:
        estimate = np.zeros_like(self.params)
        bad = []
        for worker, weight, gradient, _ in sorted(messages, key=lambda message: message[0]):
            values = unpack(gradient, len(self.params))
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
        self.params = unpack(params, self.parameter_count)

    def prefetch(self, step: int, place: int, batch_fraction: float) -> None:
        """There is no data."""

    def forget(self, place: int) -> None:
        del self.retained[place]

    def evaluate(self, step: int, place: int, batch_fraction: float, room: np.ndarray) -> float:
        if self.seconds:
            time.sleep(self.seconds)
        difference = self.params - target(self.held[place], self.parameter_count)
        self.retained[place] = difference
        return float(0.5 * (difference.astype(np.float64) ** 2).mean())

    def encode(self, room: np.ndarray, buffers: np.ndarray) -> float:
        total = self.coded()
        room[:] = np.frombuffer(pack(total, len(room)), np.uint8)
        return float(np.linalg.norm(total.astype(np.float64)))

    def coded(self) -> np.ndarray:
        total = np.zeros(self.parameter_count, dtype=np.float32)
        for place in range(len(self.held)):
            total += self.coefficients[place] * self.retained[place]
        return total
