"""A run directory whose run goes on: records of steps that will be done again are taken out of it.

A process that was killed may have left half a line, and records of more steps than its last checkpoint has.
"""

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgczmq.errors import ConfigError
from pgczmq.runlog import FILES, EvalRecord, EventRecord, LatencyRecord, Record, StepRecord

log = logging.getLogger("pgczmq.runlog")

ASKING_SECONDS = 0.1
"""After so long whoever only asked ``is_in_use`` is done: pgc runs and pgc top ask at any time."""
_TEMPORARY = ".partial-"
_KEPT: dict[type[Record], Callable[[dict[str, Any], int], bool]] = {
    StepRecord: lambda record, step: bool(record["step"] < step),
    LatencyRecord: lambda record, step: bool(record["step"] < step),
    EvalRecord: lambda record, step: bool(record["step"] <= step),  # after so many updates
    EventRecord: lambda record, step: True,
}
_TIME: dict[type[Record], str] = {
    StepRecord: "applied_at",
    LatencyRecord: "arrived_at",
    EvalRecord: "at",
    EventRecord: "at",
}


@dataclass(frozen=True)
class Rewound:
    """What was on record.

    Args:
        at: the last recorded time, of what was taken out too; 0 when nothing is on record.
        kept, undone: steps whose records stay, and those that will be done again.
    """

    at: float
    kept: int
    undone: int


def rewind(directory: Path, step: int) -> Rewound:
    """Take out of a run's records what follows its first ``step`` updates, and lines that are not whole.

    Events stay: they did happen. A file is rewritten under another name first, so that it is never half there.
    """
    at, kept, undone = 0.0, 0, 0
    for kind in FILES:
        last, stayed, went = _rewind_file(directory / FILES[kind], kind, step)
        at = max(at, last)
        if kind is StepRecord:
            kept, undone = stayed, went
    return Rewound(at, kept, undone)


def _rewind_file(path: Path, kind: type[Record], step: int) -> tuple[float, int, int]:
    """Last time, records that stayed and that went, of one file."""
    if not path.exists():
        return 0.0, 0, 0
    at, kept, undone, broken = 0.0, 0, 0, 0
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    with path.open("rb") as before, temporary.open("wb") as after:
        for line in before:
            record = _whole(line)
            if record is None:
                broken += 1
                continue
            at = max(at, record[_TIME[kind]])
            stays = _KEPT[kind](record, step)
            kept, undone = kept + stays, undone + (not stays)
            if stays:
                after.write(line)
        after.flush()
        os.fsync(after.fileno())
    if undone or broken:
        temporary.replace(path)
    else:
        temporary.unlink()
    return at, kept, undone


def _whole(line: bytes) -> dict[str, Any] | None:
    """The record of a line, if it was written to its end."""
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return record if line.endswith(b"\n") and isinstance(record, dict) else None


def is_in_use(directory: Path) -> bool:
    """Whether a process writes there at this moment; any number of others may ask at the same time."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there are no locks here, which ``locked`` says
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """This process alone writes there; however it ends, the lock ends with it.

    Raises:
        ConfigError: another one does.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(ASKING_SECONDS)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"one process at a time writes into a run directory: {directory} is in use. End that one first, "
            "or give this run another name."
        ) from None
    except OSError as error:
        log.warning("%s cannot be locked (%s): see to it that no other run uses it", directory, error.strerror)
