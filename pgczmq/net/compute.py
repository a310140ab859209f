"""What the drivers ask of whoever computes: torch in real runs, NumPy in the tests of this package.

P = number of parameters. Every method runs on one compute thread of its process and not on the event loop, unless calls
of its kind have proved to be shorter than the way there: see ``beside``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pgczmq.core.policies import Plan, Statistics
from pgczmq.core.progress import Progress

Buffer = memoryview | bytes | NDArray[Any]
Memory = NDArray[np.uint8]
"""Bytes that may be written."""
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

    @property
    def combining(self) -> float:
        """Seconds that it took to combine the messages."""
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

    @property
    def buffer_bytes(self) -> int:
        """Size of the packed model buffers."""
        ...

    def snapshot(self) -> Snapshot:
        """The current parameters and buffers, in memory that nobody writes again."""
        ...

    def write(self, params: Memory, buffers: Memory) -> None:
        """Copy the current parameters and buffers; as float32 or bfloat16, according to the size of ``params``."""
        ...

    def fold(self, step: int, messages: Sequence[tuple[int, Buffer]]) -> None:
        """Add (worker, gradient) to a sum of ``step``, before it is known with what weight they will count.

        ``apply`` uses the sum if all messages turn out to have one weight, and else starts again from them. No message
        at all only says that they will have.
        """
        ...

    def apply(self, step: int, messages: Sequence[tuple[int, float, Buffer, Buffer]], plan: Plan) -> Update:
        """Combine (worker, weight, gradient, buffers) and update the parameters, or tell why not.

        A gradient is float32 or bfloat16, according to its size.
        """
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
        """Compute at these parameters from now on: float32 (P,) or bfloat16, according to their size.

        ``params`` is not copied: it stays as it is as long as evaluations follow.
        """
        ...

    def prefetch(self, step: int, place: int, batch_fraction: float) -> None:
        """Get a minibatch ready that will probably be asked for next: returns at once, on whatever thread it is called.

        The loading happens on a thread of the compute's own, beside an evaluation.
        """
        ...

    def evaluate(self, step: int, place: int, batch_fraction: float, room: Memory) -> float:
        """Evaluate and retain the gradient of the partition at ``place``; returns its mean loss.

        ``room`` is where ``encode`` will be asked to put the coded gradient of this step: where that is this very
        gradient, it can be there already.
        """
        ...

    def forget(self, place: int) -> None:
        """What was evaluated last for this place is worth nothing."""
        ...

    def encode(self, room: Memory, buffers: Memory) -> float:
        """Put the coded gradient, float32 (P,) or bfloat16 by the size of ``room``, and the packed buffers there.

        Returns:
            The norm of the coded gradient.
        """
        ...


@dataclass(frozen=True)
class Aside:
    """What is done beside the steps, by processes and threads that the application owns.

    Args:
        evaluate: look at the held-out data after so many updates; records what it finds.
        capture: take what a checkpoint needs of the parameters; on the compute thread, quick.
        write: write it to disk, with the engine's progress at that moment; on another thread, slow. Returns what the
            record says of it.
    """

    evaluate: Callable[[int, Snapshot], Awaitable[None]]
    capture: Callable[[], Any]
    write: Callable[[Progress, Any], str]
