"""What a supervisor learns of a run while it goes on, from the records that it writes."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_JOINED = re.compile(r"worker (\d+) joined from .*\(process (\d+)\)")
TAIL_BYTES = 16_384


@dataclass(frozen=True)
class Seen:
    """A worker became ready, for the first time or again.

    Args:
        worker: its number.
        pid: of its process; None before it is known.
        at: when that was seen, on time.monotonic.
    """

    worker: int
    pid: int | None
    at: float


class Watch:
    """Follows ``events.jsonl`` and ``steps.jsonl`` of a run directory.

    Attributes:
        ready: workers that the master counts on, as far as it has said.
        pids: of the process that last joined under each number.
        steps: updates recorded; those done again after a resume count once.
        applied_at: when the last of them was applied, in the run's own time, which never goes back.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offset = 0
        self.ready: set[int] = set()
        self.pids: dict[int, int] = {}
        self.steps = 0
        self.applied_at = 0.0

    def look(self) -> list[Seen]:
        """Who has become ready since the last look."""
        last = last_line(self._directory / "steps.jsonl")
        if last is not None:
            self.steps, self.applied_at = int(last["step"]) + 1, float(last["applied_at"])
        return [seen for event in self._new_events() if (seen := self._take(event)) is not None]

    def _take(self, event: dict[str, Any]) -> Seen | None:
        worker = event["worker"]
        if worker is None:
            return None
        match event["kind"]:
            case "joined":
                joined = _JOINED.match(event["text"])
                if joined is not None:
                    self.pids[worker] = int(joined[2])
                self.ready.discard(worker)
            case "left":
                self.ready.discard(worker)
            case "ready":
                self.ready.add(worker)
                return Seen(worker, self.pids.get(worker), time.monotonic())
        return None

    def _new_events(self) -> Iterator[dict[str, Any]]:
        path = self._directory / "events.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # half-written: it is read as a whole the next time
                self._offset += len(line)
                yield json.loads(line)


def last_line(path: Path) -> dict[str, Any] | None:
    """The last whole line of a file of JSON lines; None when there is none yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    whole = [line for line in lines[1 if size > TAIL_BYTES else 0 :] if line.endswith(b"\n")]
    table: dict[str, Any] | None = json.loads(whole[-1]) if whole else None
    return table
