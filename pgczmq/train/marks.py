"""Where a coded gradient of the task "soak" comes from: written into it, and beside it, for an audit to read.

The first MARK_FLOATS numbers of a marked gradient are bytes, whole numbers that survive float32 and bfloat16: of which
incarnation of which worker it is, of which step, and when each of its gradients was evaluated. The master writes down
what it applied, read from the very memory that it combines, and a worker every answer that it is about to send:

    LOG/applied-PID.jsonl            an Applied for each update, written before it counts
        answers-WORKER-PID.jsonl     a Sent for each answer, written before it is sent

``at`` is seconds on this machine's monotonic clock, the same for all its processes. A line is one write, so that a kill
tears at most the last one.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgczmq.core.values import value

PLACES_AT_MOST = 16
"""Partitions that a mark has room for."""
_FIXED = 15  # bytes of a mark before the places: incarnation 8, worker 2, step 4, places 1
MARK_FLOATS = _FIXED + 4 * PLACES_AT_MOST


@value
class Mark:
    """Where a coded gradient comes from.

    Args:
        incarnation: of the worker, 16 hexadecimal digits; another one for every master that it joins.
        worker: its number.
        step: that it answers.
        evaluated_at: of each place, the step at whose parameters its gradient was evaluated.
    """

    incarnation: str
    worker: int
    step: int
    evaluated_at: tuple[int, ...]

    def write(self, vector: NDArray[np.float32]) -> None:
        """Put it at the beginning of a coded gradient, a number from 0 to 255 for each byte."""
        places = b"".join(at.to_bytes(4, "big") for at in self.evaluated_at)
        head = bytes.fromhex(self.incarnation) + self.worker.to_bytes(2, "big") + self.step.to_bytes(4, "big")
        raw = head + bytes([len(self.evaluated_at)]) + places
        vector[: len(raw)] = np.frombuffer(raw, np.uint8)

    @classmethod
    def read(cls, vector: NDArray[np.float32]) -> "Mark | None":
        """What ``write`` put there; None where other numbers stand."""
        head = vector[:MARK_FLOATS]
        if not np.all((head >= 0) & (head <= 255) & (head == np.floor(head))):
            return None
        raw = head.astype(np.uint8).tobytes()
        places = range(_FIXED, _FIXED + 4 * min(raw[_FIXED - 1], PLACES_AT_MOST), 4)
        evaluated_at = tuple([int.from_bytes(raw[begin : begin + 4], "big") for begin in places])
        return cls(raw[:8].hex(), int.from_bytes(raw[8:10], "big"), int.from_bytes(raw[10:14], "big"), evaluated_at)

    def to_list(self) -> list[Any]:
        """As a line has it."""
        return [self.incarnation, self.worker, self.step, list(self.evaluated_at)]

    @classmethod
    def from_list(cls, parts: list[Any] | None) -> "Mark | None":
        """What ``to_list`` made."""
        return None if parts is None else cls(parts[0], parts[1], parts[2], tuple(parts[3]))


@value
class Applied:
    """One update; or, without messages, that a process took up a checkpoint, and of step -1.

    Args:
        master: process that made it.
        at: when.
        step: of it.
        messages: whose each was said to be, its weight, and the mark that stood in its memory.
        sha256: of the parameters after it.
    """

    master: int
    at: float
    step: int
    messages: tuple[tuple[int, float, Mark | None], ...]
    sha256: str


@value
class Sent:
    """One answer.

    Args:
        process: that sent it.
        at: when.
        run, master: that it was for.
        mark: that it carried.
    """

    process: int
    at: float
    run: str
    master: str
    mark: Mark


class Lines:
    """A file of JSON lines that this process appends to; without a directory nothing is written."""

    def __init__(self, directory: str, name: str) -> None:
        self._descriptor = -1
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            path = Path(directory) / f"{name}-{os.getpid()}.jsonl"
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, record: Applied | Sent) -> None:
        """One line, in one system call."""
        if self._descriptor >= 0:
            text = json.dumps(vars(record), default=Mark.to_list, separators=(",", ":"))
            os.write(self._descriptor, text.encode() + b"\n")


def read_applied(directory: Path) -> list[Applied]:
    """Every update of every master, in order of time."""
    found = []
    for line in _lines(directory, "applied"):
        said = tuple([(worker, weight, Mark.from_list(parts)) for worker, weight, parts in line.pop("messages")])
        found.append(Applied(messages=said, **line))
    return sorted(found, key=lambda applied: applied.at)


def read_sent(directory: Path) -> list[Sent]:
    """Every answer of every worker, in order of time."""
    found = []
    for line in _lines(directory, "answers"):
        mark = Mark.from_list(line.pop("mark"))
        assert mark is not None
        found.append(Sent(mark=mark, **line))
    return sorted(found, key=lambda sent: sent.at)


def _lines(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """All whole lines of files that begin so."""
    for path in sorted(directory.glob(f"{name}-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)
