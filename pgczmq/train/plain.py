"""The task "soak": a quadratic for each partition, in NumPy, so that processes start in no time.

Partition p pulls the parameters towards a point of its own, drawn from the seed and shifted a little from step to step:
its loss is half the mean squared distance. A gradient is a known function of (partition, step, parameters). No torch,
no data, no held-out loss. With ``task.args.log`` gradients are marked, and what is sent and applied is written down:
see ``marks``; whoever reads that can compute the whole run again.

Shapes: P = number of parameters.
"""

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pgczmq.core import seeds
from pgczmq.core.policies import Plan, Statistics
from pgczmq.errors import ConfigError, WireError
from pgczmq.train.gates import Gates
from pgczmq.train.marks import MARK_FLOATS, PLACES_AT_MOST, Applied, Lines, Mark, Sent

NAME = "soak"
"""What ``task.name`` says."""
FILE = "model.npy"

Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]
Buffer: TypeAlias = memoryview | bytes | NDArray[Any]


@dataclass(frozen=True)
class Arguments:
    """``task.args`` of this task.

    Args:
        size: P; with ``log`` the first MARK_FLOATS of them stay 0.
        seconds: slept by a worker for each partition that it evaluates.
        log: directory for what was sent and applied; without one, gradients are not marked.
        gates: directory of gates; none unless set. The master goes through "apply" and "checkpoint", worker N through
            "prepare-N" and "evaluate-N".
    """

    size: int = 1000
    seconds: float = 0.0
    log: str = ""
    gates: str = ""

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> "Arguments":
        """Checked.

        Raises:
            ConfigError: there is no such argument, or it cannot be.
        """
        known = [field.name for field in fields(cls)]
        unknown = ", ".join(name for name in args if name not in known)
        if unknown:
            raise ConfigError(f"task.args: {NAME} does not take {unknown}. It takes: {', '.join(known)}.")
        made = cls(**args)
        least = made.marks + 1
        if not (isinstance(made.size, int) and made.size >= least and made.seconds >= 0):
            raise ConfigError(f"{NAME} needs size >= {least} and seconds >= 0 here: got {dict(args)}.")
        if not (isinstance(made.log, str) and isinstance(made.gates, str)):
            raise ConfigError(f"{NAME} needs directories as log and gates: got {dict(args)}.")
        return made

    @property
    def marks(self) -> int:
        """Numbers that a mark stands in for."""
        return MARK_FLOATS if self.log else 0


@dataclass(frozen=True)
class PlainUpdate:
    """What became of a step's messages; as ``optimizer.Update``."""

    finite: bool
    culprits: tuple[int, ...]
    norm: float
    statistics: Statistics | None = None
    combining: float = 0.0


def fingerprint_of(args: Arguments, seed: int) -> dict[str, str]:
    """What master and workers must agree on."""
    return {"model": f"{NAME}, {args.size} numbers", "data": f"seed {seed}", "torch": "none", "device": "cpu"}


# ---------------------------------------------------------------- the arithmetic


@lru_cache(maxsize=512)
def _point(seed: int, partition: int, size: int) -> Floats:
    return seeds.rng(seed, "target", partition).standard_normal(size).astype(np.float32)


def gradient(params: Floats, *, seed: int, partition: int, step: int) -> Floats:
    """The gradient of a partition's loss at these parameters, (P,)."""
    shift = np.float32((step * 40_503 + partition * 10_007) % 1024 / 1024)
    found: Floats = params - (_point(seed, partition, len(params)) + shift)
    return found


def coded(gradients: Sequence[Floats], coefficients: Sequence[float]) -> Floats:
    """The sum of coefficient * gradient over a worker's places, in order, (P,)."""
    total: Floats = np.zeros_like(gradients[0])
    for coefficient, values in zip(coefficients, gradients, strict=True):
        total += np.float32(coefficient) * values
    return total


def estimate(terms: Sequence[tuple[float, Floats]], *, marks: int) -> Floats:
    """The sum of weight * coded gradient, in order, (P,); 0 where marks stand."""
    total: Floats = np.zeros_like(terms[0][1])
    for weight, vector in terms:
        total += np.float32(weight) * vector
    total[:marks] = 0
    return total


def digest(params: Floats) -> str:
    """sha256 of the parameters' bytes."""
    return hashlib.sha256(params.tobytes()).hexdigest()


# ---------------------------------------------------------------- master and worker


class PlainMaster:
    """The parameters, moved by plain gradient descent.

    Args:
        args: of the task.
        seed: of the run.
        lr: learning rate.
    """

    buffer_bytes = 0

    def __init__(self, args: Arguments, *, seed: int, lr: float) -> None:
        self._params: Floats = np.zeros(args.size, np.float32)
        self._lr = np.float32(lr)
        self._marks = args.marks
        self._gates = Gates(args.gates)
        self._applied = 0
        self._lines = Lines(args.log, "applied")
        self.fingerprint: Mapping[str, str] = fingerprint_of(args, seed)
        self.parameter_count = args.size

    def snapshot(self) -> tuple[Floats, Bytes]:
        """Read-only copies of the parameters, (P,), and of no buffers."""
        copy = self._params.copy()
        copy.flags.writeable = False
        return copy, np.zeros(0, np.uint8)

    def write(self, params: Bytes, buffers: Bytes) -> None:
        """Copy the parameters, as float32 or bfloat16 according to the size given."""
        params[:] = _packed(self._params, params.nbytes)

    def fold(self, step: int, messages: Sequence[tuple[int, Buffer]]) -> None:
        """Nothing is added up early: the sum is as quick later."""

    def apply(self, step: int, messages: Sequence[tuple[int, float, Buffer, Buffer]], plan: Plan) -> PlainUpdate:
        """Move the parameters by the weighted sum of the messages, added in the order of worker numbers."""
        self._gates.go_through("apply", step)
        terms = [
            (worker, weight, _unpacked(vector, self.parameter_count))
            for worker, weight, vector, _ in sorted(messages, key=lambda message: message[0])
        ]
        culprits = [worker for worker, _, vector in terms if not np.isfinite(vector).all()]
        combined = estimate([(weight, vector) for _, weight, vector in terms], marks=self._marks)
        norm = _norm(combined)
        if culprits or not np.isfinite(norm):
            return PlainUpdate(False, tuple(culprits), math.nan)
        self._params -= self._lr * combined
        self._applied = step + 1
        if self._marks:
            said = tuple([(worker, weight, Mark.read(vector)) for worker, weight, vector in terms])
            self._lines.write(Applied(os.getpid(), time.monotonic(), step, said, self.sha256()))
        return PlainUpdate(bool(np.isfinite(self._params).all()), (), norm)

    def sha256(self) -> str:
        """Hash of the parameters' bytes."""
        return digest(self._params)

    def checkpoint_state(self) -> Floats:
        """A copy of everything that there is to be kept."""
        return self._params.copy()

    def write_files(self, directory: Path, state: Floats) -> None:
        """Write what ``checkpoint_state`` gave."""
        self._gates.go_through("checkpoint", self._applied)
        np.save(directory / FILE, state)

    def restore(self, directory: Path) -> None:
        """Take up what ``write_files`` wrote.

        Raises:
            ConfigError: it has another size.
        """
        saved = np.load(directory / FILE)
        if saved.shape != self._params.shape:
            raise ConfigError(f"{directory} has {saved.size} parameters, this run {self.parameter_count}.")
        self._params[:] = saved
        if self._marks:
            self._lines.write(Applied(os.getpid(), time.monotonic(), -1, (), self.sha256()))


class PlainWorker:
    """Gradients of the partitions that a worker holds.

    Args:
        args: of the task.
        seed: of the run.
        worker: its number.
        held: partitions at its places.
        coefficients: of the code, one a place.

    Raises:
        ConfigError: a mark has not room for so many places.
    """

    buffer_bytes = 0

    def __init__(
        self, args: Arguments, *, seed: int, worker: int, held: Sequence[int], coefficients: Sequence[float]
    ) -> None:
        if args.log and len(held) > PLACES_AT_MOST:
            raise ConfigError(
                f"{NAME} marks gradients of at most {PLACES_AT_MOST} partitions: got {len(held)}. Lower scheme.load."
            )
        self._worker = worker
        self._gates = Gates(args.gates)
        self._gates.go_through(f"prepare-{worker}")
        self._seed = seed
        self._held = tuple(held)
        self._coefficients = tuple(coefficients)
        self._seconds = args.seconds
        self._marks = args.marks
        self._lines = Lines(args.log, f"answers-{worker}")
        self._step = -1
        self._params: Floats = np.zeros(args.size, np.float32)
        self.fingerprint: Mapping[str, str] = fingerprint_of(args, seed)
        self.parameter_count = args.size
        self.begin("", "", "")

    def begin(self, run: str, master: str, incarnation: str) -> None:
        """A life for this run and this master; nothing is retained of the one before."""
        self._run = run
        self._master = master
        self._incarnation = incarnation
        self._retained: dict[int, tuple[int, Floats]] = {}  # of each place: when it was evaluated, and what it was

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Compute at these parameters from now on."""
        self._params = _unpacked(params, self.parameter_count)

    def prefetch(self, step: int, place: int, batch_fraction: float) -> None:
        """There is no data."""

    def forget(self, place: int) -> None:
        """What was evaluated last for this place is worth nothing."""
        self._retained.pop(place, None)

    def evaluate(self, step: int, place: int, batch_fraction: float, room: Bytes) -> float:
        """Retain the gradient of the partition at a place; its loss."""
        self._gates.go_through(f"evaluate-{self._worker}", step)
        if self._seconds:
            time.sleep(self._seconds)
        found = gradient(self._params, seed=self._seed, partition=self._held[place], step=step)
        self._retained[place] = step, found
        self._step = step
        return float(0.5 * np.square(found, dtype=np.float64).mean())

    def encode(self, room: Bytes, buffers: Bytes) -> float:
        """Put the coded gradient into ``room``, as float32 or bfloat16 by its size; its norm."""
        kept = [self._retained[place] for place in range(len(self._held))]
        total = coded([vector for _, vector in kept], self._coefficients)
        if self._marks:
            mark = Mark(self._incarnation, self._worker, self._step, tuple([step for step, _ in kept]))
            total[: self._marks] = 0
            mark.write(total)
            self._lines.write(Sent(os.getpid(), time.monotonic(), self._run, self._master, mark))
        room[:] = _packed(total, room.nbytes)
        return _norm(total)


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def _packed(vector: Floats, nbytes: int) -> Bytes:
    """As float32 or, cut off instead of rounded, as bfloat16."""
    if nbytes == vector.nbytes:
        return vector.view(np.uint8)
    return (vector.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def _unpacked(memory: Buffer, size: int) -> Floats:
    """What ``_packed`` made of so many numbers.

    Raises:
        WireError: it is of another size.
    """
    raw = np.frombuffer(memory, np.uint8)
    if raw.nbytes == 4 * size:
        return raw.view(np.float32)
    if raw.nbytes == 2 * size:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise WireError(f"a vector has {4 * size} bytes, or {2 * size} as bfloat16: got {raw.nbytes}.")
