"""The records in a run directory in the order of their times, while they are written.

Files are only read, and nobody who writes them takes notice.
"""

import heapq
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pgczmq.app import build
from pgczmq.config import RunConfig, loads
from pgczmq.errors import ConfigError
from pgczmq.gather.gathering import Gathering
from pgczmq.runlog import (
    FILES,
    EvalRecord,
    EventRecord,
    LatencyRecord,
    Record,
    RunRecord,
    StepRecord,
    from_json,
    read_result,
)

_ORDER: dict[type[Record], tuple[int, str]] = {
    EventRecord: (0, "at"),
    LatencyRecord: (1, "arrived_at"),
    StepRecord: (2, "applied_at"),
    EvalRecord: (3, "at"),
}
"""Which comes first of those with the same time, and what that is called."""


class Rewritten(Exception):  # it is no error: the run goes on
    """The run is done again from an earlier step on: what was read is not what happened any more."""


def is_run(directory: Path) -> bool:
    """Whether this is a run directory."""
    return (directory / "config.toml").is_file()


def about(directory: Path) -> RunRecord:
    """What a run is, from its configuration; the number of its parameters is not on record, its metric at its end.

    Raises:
        ConfigError: it is no run directory.
    """
    path = directory / "config.toml"
    try:
        config = loads(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{directory} is not a run directory: cannot read config.toml: {error.strerror}.") from None
    return RunRecord(
        name=directory.resolve().name,
        directory=str(directory),
        scheme=config.scheme.name,
        task=config.task.name,
        workers=config.workers,
        stragglers=_stragglers(config),
        steps=config.steps,
        parameters=0,
        metric=_metric(directory),
    )


def _metric(directory: Path) -> str:
    try:
        return read_result(directory).metric
    except ConfigError:
        return "accuracy"


def _stragglers(config: RunConfig) -> int:
    """Whom a step can do without; no code of the user's is run to find out."""
    if config.scheme.name == build.ASYNC:
        return 0
    return config.scheme.stragglers if ":" in config.scheme.name else config.workers - build.scheme_of(config).k


class Tail:
    """The records of one kind, as far as they are written; asked again, those since then.

    Args:
        skipping: all but the last so many bytes of what is there at first; None for nothing.
    """

    def __init__(self, directory: Path, kind: type[Record], skipping: int | None = None) -> None:
        self._path = directory / FILES[kind]
        self._kind = kind
        self._skipping = skipping
        self._inode: int | None = None
        self.read = self.size = 0  # bytes, of those that were there when it was asked

    def records(self) -> Iterator[tuple[float, int, Any]]:
        """Time, rank among those of the same time, and record.

        Raises:
            Rewritten: the file is another one, or shorter than before.
        """
        rank, at = _ORDER[self._kind]
        try:
            file = self._path.open("rb")
        except OSError:
            return  # not there yet
        with file:
            status = os.fstat(file.fileno())
            if self._inode not in (None, status.st_ino) or status.st_size < self.read:
                raise Rewritten
            self._inode, self.size = status.st_ino, status.st_size
            if self._skipping is not None and not self.read:
                self.read = max(0, self.size - self._skipping)  # in the middle of a line, which is then no record
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                record = self._parsed(line)
                if isinstance(getattr(record, at, None), int | float):
                    yield getattr(record, at), rank, record

    def _parsed(self, line: bytes) -> Any:
        try:
            return from_json(self._kind, line, str(self._path))
        except ConfigError:
            return None


class Files:
    """All the records in a run directory; ``news`` gives those since it was asked before."""

    def __init__(self, directory: Path, latencies_bytes: int | None) -> None:
        self._tails = [Tail(directory, kind, latencies_bytes if kind is LatencyRecord else None) for kind in _ORDER]

    def news(self) -> Iterator[tuple[float, Record]]:
        """In the order of their times."""
        merged = heapq.merge(*(tail.records() for tail in self._tails), key=lambda entry: entry[:2])
        return ((at, record) for at, _, record in merged)

    @property
    def read(self) -> float:
        """Share of the bytes that were there."""
        return sum(tail.read for tail in self._tails) / max(1, sum(tail.size for tail in self._tails))


def gather(gathering: Gathering, record: Record) -> None:
    """A line that somebody has spoiled is left out."""
    with suppress(Exception):
        gathering.add(record)
