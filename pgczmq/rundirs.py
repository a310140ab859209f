"""Run directories as they lie there: which there are, how it is with each, and what it was asked to do.

Nothing of a configuration is checked or imported here: a run of another version, or of somebody else, can be listed.
"""

import contextlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pgczmq.errors import ConfigError
from pgczmq.rewind import is_in_use
from pgczmq.runlog import Result, read_result

State = Literal["done", "diverged", "running", "interrupted", "failed", "died"]
"""How it is with a run.

``running``: a process holds the lock of its directory. ``died``: nobody does, and there is no result. The others say
what their result says; ``failed`` is any exit code but 0 and 75.
"""

INTERRUPTED = 75
ABOUT_A_LINE = 4096
"""Bytes that are read at first to find the last line of a file."""


@dataclass(frozen=True)
class RunDirectory:
    """A run at a glance.

    Args:
        path: of the directory.
        name: the directory's own.
        state: see ``State``.
        resumable: it did not end well, nobody works on it, and it has a checkpoint.
        settings: the configuration that it left, as a table of tables; empty when it left none.
        result: None before it ended.
        steps, loss: recorded so far; the loss is the held-out one where the result has one.
    """

    path: Path
    name: str
    state: State
    resumable: bool
    settings: Mapping[str, Any]
    result: Result | None
    steps: int
    loss: float | None

    def setting(self, section: str, key: str) -> Any:
        """One of the settings; None when there is none."""
        table = self.settings.get(section)
        return table.get(key) if isinstance(table, Mapping) else None

    @property
    def simulated(self) -> bool:
        """Its seconds are virtual: a simulation's result says so, else its answers have no receipt."""
        if self.result is not None:
            return self.result.virtual_seconds is not None
        return _first(self.path / "latencies.jsonl").get("received_at", 0.0) is None


def find(root: Path) -> list[RunDirectory]:
    """The runs in a folder, the newest last; nothing when there is no such folder.

    New is what began last or was gone on with last: whose configuration was written last.
    """
    found = []
    with contextlib.suppress(OSError):
        found = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    dated = [(at, path) for path in map(Path, found) if (at := _written_at(path)) is not None]
    return [look(path) for _, path in sorted(dated)]


def look(path: Path) -> RunDirectory:
    """How it is with one run.

    Raises:
        ConfigError: there is no run directory.
    """
    if _written_at(path) is None:
        given = "a file" if path.is_file() else "a folder without them" if path.is_dir() else "not there"
        raise ConfigError(
            f"a run is named by its directory, which holds config.toml and steps.jsonl: got {path}, which is {given}. "
            "pgc runs lists those in ./runs."
        )
    result = _result(path)
    state = _state(path, result)
    resumable = state in {"interrupted", "failed", "died"} and any(_checkpoints(path))
    if result is not None:
        steps, loss = result.steps, result.loss
    else:
        steps, loss = _so_far(path)
    return RunDirectory(path, path.resolve().name, state, resumable, _settings(path), result, steps, loss)


def look_at_result(file: Path) -> RunDirectory:
    """How it was with a run of which there is what ``--json`` wrote.

    Raises:
        ConfigError: it holds no result.
    """
    result = read_result(file)
    return RunDirectory(file, file.name, _state_of(result), False, {}, result, result.steps, result.loss)


def _written_at(path: Path) -> float | None:
    """When the run's configuration was written; None where there is no run."""
    for name in ("config.toml", "steps.jsonl"):
        with contextlib.suppress(OSError):
            return (path / name).stat().st_mtime
    return None


def _result(path: Path) -> Result | None:
    try:
        return read_result(path)
    except ConfigError:  # none, or not written by this program
        return None


def _state(path: Path, result: Result | None) -> State:
    if result is None:
        return "running" if is_in_use(path) else "died"
    return _state_of(result)


def _state_of(result: Result) -> State:
    if result.diverged:
        return "diverged"
    if result.exit == 0:
        return "done"
    return "interrupted" if result.exit == INTERRUPTED else "failed"


def _checkpoints(path: Path) -> Iterator[Path]:
    return (path / "checkpoints").glob("step_*/manifest.json")


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _so_far(path: Path) -> tuple[int, float | None]:
    """Steps, and the last loss, as the last whole line of the records says."""
    with contextlib.suppress(OSError), (path / "steps.jsonl").open("rb") as file:
        last = _table(_last_line(file))
        step, loss = last.get("step"), last.get("loss")
        if isinstance(step, int):
            return step + 1, float(loss) if isinstance(loss, int | float) else None
    return 0, None


def _last_line(file: BinaryIO) -> bytes:
    """The last one that ends; empty when none does."""
    end, size = file.seek(0, os.SEEK_END), ABOUT_A_LINE
    while True:
        file.seek(max(0, end - size))
        *lines, _ = file.read().split(b"\n")  # the last one is empty, or half-written
        if len(lines) > 1 or size >= end:
            return lines[-1] if lines else b""
        size *= 4


def _first(path: Path) -> Mapping[str, Any]:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return _table(file.readline())
    return {}


def _table(line: bytes) -> Mapping[str, Any]:
    try:
        table = json.loads(line)
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}
