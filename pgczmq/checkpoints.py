"""Checkpoints of a run: one directory each, there as a whole or not at all, with a checksum for every file.

checkpoints/step_000200/...            what the model wrote: model.pt and optimizer.pt, or the like
                        state.json     what the caller adds: plain JSON
                        manifest.json  size and sha256 of each of these
            undone/step_000300/        set aside when the run went on from an earlier one
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgczmq.errors import PgcError

STATE = "state.json"
MANIFEST = "manifest.json"
UNDONE = "undone"
_TEMPORARY = ".partial-"
_NAME = re.compile(r"step_(\d{6,})")


@dataclass(frozen=True)
class Newest:
    """The newest whole checkpoint, if there is one, and what is wrong with those that are newer."""

    path: Path | None
    damaged: tuple[str, ...]


def write(
    directory: Path,
    step: int,
    *,
    files: Callable[[Path], None],
    state: Mapping[str, Any],
    keep: int | None = None,
    best: int | None = None,
) -> Path:
    """Write the checkpoint of a step; then, and not before, remove old ones.

    One of this step that is whole stays as it is: it was written a moment ago, and nothing has happened since.

    Args:
        directory: where the checkpoints of a run are; made if missing. One process writes there.
        step: the number of steps done; it names the checkpoint.
        files: writes the model's files into a directory.
        state: plain JSON, for whoever resumes.
        keep: how many checkpoints to keep, counting this one; None keeps all.
        best: the step of one that is kept beside them.

    Returns:
        The checkpoint's directory.

    Raises:
        OSError, RuntimeError: a full disk, in the system's words or torch's. No earlier checkpoint is touched then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for stale in directory.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(stale)
    path = _path(directory, step)
    if not _is_whole(path):
        _write_directory(path, files, state)
    for number in steps(directory)[:-keep] if keep else []:
        if number not in (step, best):
            shutil.rmtree(_path(directory, number))
    return path


def _write_directory(path: Path, files: Callable[[Path], None], state: Mapping[str, Any]) -> None:
    """Write one checkpoint under a temporary name beside ``path``, sync it, and give it its name."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    temporary.mkdir()
    try:
        files(temporary)
        _write_json(temporary / STATE, state)
        names = sorted(file.name for file in temporary.iterdir())
        _write_json(temporary / MANIFEST, {name: _described(temporary / name) for name in names})
        for name in (*names, MANIFEST, "."):
            _sync(temporary / name)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # whatever is next needs the room
        raise
    if path.exists():
        shutil.rmtree(path)  # damaged
    temporary.rename(path)
    _sync(path.parent)


def verify(path: Path) -> None:
    """Check a checkpoint's files against its manifest.

    Raises:
        PgcError: names the file that is missing or damaged.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        expected = {name: (entry["size"], entry["sha256"]) for name, entry in manifest.items()}
        expected[STATE]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PgcError(f"checkpoint {path} is damaged: {MANIFEST} cannot be read ({error!r}).") from None
    for name, (size, digest) in expected.items():
        try:
            found = _described(path / name)
        except OSError as error:
            raise PgcError(f"checkpoint {path} is damaged: {name} cannot be read ({error.strerror}).") from None
        if found != {"size": size, "sha256": digest}:
            raise PgcError(
                f"checkpoint {path} is damaged: {name} is not what was written ({found['size']} bytes, "
                f"{size} were written)."
            )


def _is_whole(path: Path) -> bool:
    try:
        verify(path)
    except PgcError:
        return False
    return True


def newest(directory: Path) -> Newest:
    """The checkpoint of the most steps that is whole."""
    damaged = []
    for step in reversed(steps(directory)):
        path = _path(directory, step)
        try:
            verify(path)
        except PgcError as error:
            damaged.append(str(error))
        else:
            return Newest(path, tuple(damaged))
    return Newest(None, tuple(damaged))


def read_state(path: Path) -> dict[str, Any]:
    """What the caller of ``write`` gave as ``state``."""
    state: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
    return state


def steps(directory: Path) -> list[int]:
    """Steps of the checkpoints in a directory, ascending, whole or not."""
    if not directory.is_dir():
        return []
    matches = [_NAME.fullmatch(path.name) for path in directory.iterdir() if path.is_dir()]
    return sorted(int(match[1]) for match in matches if match)


def set_aside(directory: Path, after: int) -> list[str]:
    """Move the checkpoints of more than so many steps out of the way, damaged or not; returns their names.

    The run goes on from an earlier one: they are of steps that will be done again, and must not be found.
    """
    undone = directory / UNDONE
    names = [_path(directory, step).name for step in steps(directory) if step > after]
    for name in names:
        undone.mkdir(exist_ok=True)
        if (undone / name).exists():
            shutil.rmtree(undone / name)
        (directory / name).rename(undone / name)
    return names


def _path(directory: Path, step: int) -> Path:
    return directory / f"step_{step:06d}"


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(dict(value), indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
