"""What the drivers ask of whoever computes: torch in real runs, NumPy in the tests of this package.

P = number of parameters. Every method runs on one compute thread of its process, never on the event loop.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pgczmq.core.policies import Plan, Statistics

Buffer = memoryview | bytes | NDArray[Any]
Snapshot = tuple[NDArray[np.float32], NDArray[np.uint8]]
"""Read-only parameters (P,) and packed model buffers, never written again."""


class Update(Protocol):
    """What became of an update."""

    @property
    def finite(self) -> bool:
        """Whether it was applied and everything is a number."""
        ...

    @property
    def culprits(self) -> tuple[int, ...]:
        """Workers whose message was not finite."""
        ...

    @property
    def norm(self) -> float:
        """Euclidean norm of the estimate."""
        ...

    @property
    def statistics(self) -> Statistics | None:
        """What the run's policy reads; None when it reads nothing."""
        ...


class MasterCompute(Protocol):
    """The parameters and how they are updated."""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Hashes of model and data, torch version, kind of device: what workers must agree on."""
        ...

    @property
    def parameter_count(self) -> int:
        """P."""
        ...

    def snapshot(self) -> Snapshot:
        """The current parameters and buffers, in memory that nobody writes again."""
        ...

    def apply(self, step: int, messages: Sequence[tuple[int, float, Buffer, Buffer]], plan: Plan) -> Update:
        """Combine (worker, weight, gradient, buffers) and update the parameters, or tell why not."""
        ...

    def sha256(self) -> str:
        """Hash of the parameters."""
        ...


class WorkerCompute(Protocol):
    """Gradients of one worker's partitions."""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """As the master's."""
        ...

    @property
    def parameter_count(self) -> int:
        """P."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """Size of the packed model buffers."""
        ...

    def load(self, params: Buffer, buffers: Buffer) -> None:
        """Take over the parameters (P,) float32 and buffers of a step."""
        ...

    def evaluate(self, step: int, place: int, batch_fraction: float) -> float:
        """Evaluate and retain the gradient of the partition at ``place``; returns its mean loss."""
        ...

    def encode(self) -> tuple[NDArray[np.float32], float, NDArray[np.uint8]]:
        """The coded gradient (P,) in fresh memory, its norm, and the packed buffers."""
        ...


@dataclass(frozen=True)
class Aside:
    """What is done beside the steps, by processes and threads that the application owns.

    Args:
        evaluate: look at the held-out data after so many updates; records what it finds.
        capture: take what a checkpoint after so many updates needs; on the compute thread, quick.
        write: write it to disk; on another thread, slow. Returns the name for the record.
    """

    evaluate: Callable[[int, Snapshot], Awaitable[None]]
    capture: Callable[[int], Any]
    write: Callable[[Any], str]
