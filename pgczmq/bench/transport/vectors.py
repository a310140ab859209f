"""The program's two sides without a model: gradients as ``Work`` has them, combined by the program's own arithmetic.

P = number of parameters. No torch, except to round to bfloat16.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgczmq.bench.transport.work import BASE, BLOCK, FloatArray, Work
from pgczmq.core.policies import Plan
from pgczmq.net.compute import Buffer, Memory, Snapshot
from pgczmq.train import blocks, half
from pgczmq.train.folding import Folding, Vector

EMPTY = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class VectorUpdate:
    """As net.compute.Update."""

    finite: bool
    culprits: tuple[int, ...]
    norm: float
    combining: float = 0.0
    statistics: None = None


class VectorMaster:
    """Plain gradient descent with learning rate 1; a net.compute.MasterCompute.

    Args:
        work: what is computed.
        threads: that go through the vectors.

    Attributes:
        params: float32 (P,), after the last update.
    """

    def __init__(self, work: Work, threads: int) -> None:
        self.fingerprint: Mapping[str, str] = fingerprint(work)
        self.parameter_count = work.params
        self.buffer_bytes = 0
        self.params = work.start()
        self._estimate = work.start()
        self._threads = blocks.Threads(threads)
        self._folding = Folding(self._threads)

    def snapshot(self) -> Snapshot:
        """Copies."""
        copy = self.params.copy()
        copy.flags.writeable = False
        return copy, EMPTY

    def write(self, params: Memory, buffers: Memory) -> None:
        """Copy the parameters, as float32 or bfloat16."""
        out = half.float_or_half(params, self.parameter_count)
        blocks.copy(self.params, out, self._threads)

    def fold(self, step: int, messages: Sequence[tuple[int, Buffer]]) -> None:
        """Add gradients to a sum."""
        arrivals = [(worker, half.float_or_half(gradient, self.parameter_count)) for worker, gradient in messages]
        self._folding.add(step, arrivals, out=self._estimate)

    def apply(
        self, step: int, messages: Sequence[tuple[int, float, Buffer, Buffer]], plan: Plan | None = None
    ) -> VectorUpdate:
        """Subtract the weighted sum of the gradients."""
        terms = [
            (worker, weight, half.float_or_half(message, self.parameter_count))
            for worker, weight, message, _ in messages
        ]
        begun = time.perf_counter()
        norm = self._folding.combine(step, terms, out=self._estimate)
        if not math.isfinite(norm):
            return VectorUpdate(False, (), norm)
        combining = time.perf_counter() - begun
        self._threads.total(self.parameter_count, self._subtract)
        return VectorUpdate(True, (), norm, combining)

    def _subtract(self, span: slice, _: FloatArray) -> float:
        np.subtract(self.params[span], self._estimate[span], out=self.params[span])
        return 0.0

    def sha256(self) -> str:
        """Hash of the parameters."""
        return hashlib.sha256(self.params.tobytes()).hexdigest()


class VectorWorker:
    """Gradients of ``Work``, written where they are sent from; a net.compute.WorkerCompute for one partition.

    Args:
        work: what is computed.
        number: whose gradients.
    """

    def __init__(self, work: Work, number: int) -> None:
        self.fingerprint: Mapping[str, str] = fingerprint(work)
        self.parameter_count = work.params
        self.buffer_bytes = 0
        self._work = work
        self._number = number
        self._ends = np.zeros(2, np.float32)  # the first and the last parameter
        self._norm = 0.0

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Look at the parameters; the gradient depends on two of them."""
        ends = half.float_or_half(params, self.parameter_count)[[0, -1]]
        if ends.itemsize == 2:
            half.from_bfloat16(ends.view(np.uint16), self._ends)
        else:
            self._ends = ends.view(np.float32)

    def prefetch(self, step: int, place: int, batch_fraction: float) -> None:
        """There is no data."""

    def evaluate(self, step: int, place: int, batch_fraction: float, room: Memory) -> float:
        """One pass: every block is written, squared for the norm while it is in the cache, and left."""
        out = half.float_or_half(room, self.parameter_count)
        scale = self._work.scale(self._number, step, self._ends)
        total = 0.0
        for start in range(0, out.size, blocks.BLOCK):
            total += _write(out[start : start + blocks.BLOCK], scale)
        self._norm = math.sqrt(total)
        return 1.0  # there is no loss to speak of

    def forget(self, place: int) -> None:
        """The next gradient is a new one in any case."""

    def encode(self, room: Memory, buffers: Memory) -> float:
        """It is there already."""
        return self._norm


def _write(out: Vector, scale: np.float32) -> float:
    """Write a block of the gradient, BASE after BASE; the sum of its squares."""
    block = np.empty(out.size, np.float32) if out.itemsize == 2 else out.view(np.float32)
    for start in range(0, block.size, BLOCK):
        piece = block[start : start + BLOCK]
        np.multiply(BASE[: piece.size], scale, out=piece)
    if out.itemsize == 2:
        half.to_bfloat16(block, out.view(np.uint16))
    return blocks.square_sum(block)


def fingerprint(work: Work) -> Mapping[str, str]:
    """What master and workers must agree on."""
    return {"model": f"vector of {work.params}", "data": f"{work.workers} workers", "torch": "none", "device": "cpu"}
