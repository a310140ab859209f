"""Checkpoints: one directory each, there as a whole or not at all, with a checksum for every file.

    step_000200/model.pt        the model's named state dict
                optimizer.pt    the optimizer's name and its state over the flat parameters
                state.json      what the caller adds: plain JSON
                manifest.json   size and sha256 of each of these

Both ``.pt`` files are read by ``torch.load(..., weights_only=True)``.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pgczmq.errors import PgcError

FILES = ("model.pt", "optimizer.pt", "state.json")
MANIFEST = "manifest.json"
_TEMPORARY = ".partial-"
_NAME = re.compile(r"step_(\d{6,})")


@dataclass(frozen=True)
class CheckpointState:
    """Tensors of a learner, cloned: nobody changes them while they are written."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]


@dataclass(frozen=True)
class Newest:
    """The newest whole checkpoint, if there is one, and what is wrong with those that are newer."""

    path: Path | None
    damaged: tuple[str, ...]


def write(
    directory: Path, step: int, *, learner: CheckpointState, state: Mapping[str, Any], keep: int | None = None
) -> Path:
    """Write the checkpoint of a step, and remove all but the newest.

    Args:
        directory: where the checkpoints of a run are; made if missing. One process writes there.
        step: the number of steps done; it names the checkpoint.
        learner: from ``Learner.checkpoint_state``.
        state: plain JSON, for whoever resumes.
        keep: how many checkpoints to keep, counting this one and those of fewer steps; None keeps all.

    Returns:
        The checkpoint's directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for stale in directory.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(stale)
    path = directory / f"step_{step:06d}"
    write_directory(path, learner, state=state)
    older = [number for number in _steps(directory) if number <= step]
    for number in older[:-keep] if keep else []:
        shutil.rmtree(directory / f"step_{number:06d}")
    return path


def write_directory(path: Path, learner: CheckpointState, *, state: Mapping[str, Any]) -> None:
    """Write one checkpoint under a temporary name beside ``path``, sync it, and give it its name."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    torch.save(dict(learner.model), temporary / "model.pt")
    torch.save(dict(learner.optimizer), temporary / "optimizer.pt")
    _write_json(temporary / "state.json", dict(state))
    _write_json(temporary / MANIFEST, {name: _described(temporary / name) for name in FILES})
    for name in (*FILES, MANIFEST, "."):
        _sync(temporary / name)
    _replace(temporary, path)
    _sync(path.parent)


def verify(directory: Path) -> None:
    """Check a checkpoint's files against its manifest.

    Raises:
        PgcError: names the file that is missing or damaged.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        expected = {name: (manifest[name]["size"], manifest[name]["sha256"]) for name in FILES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PgcError(f"checkpoint {directory} is damaged: {MANIFEST} cannot be read ({error!r}).") from None
    for name, (size, digest) in expected.items():
        try:
            found = _described(directory / name)
        except OSError as error:
            raise PgcError(f"checkpoint {directory} is damaged: {name} cannot be read ({error.strerror}).") from None
        if found != {"size": size, "sha256": digest}:
            raise PgcError(
                f"checkpoint {directory} is damaged: {name} is not what was written ({found['size']} bytes, "
                f"{size} were written)."
            )


def newest(directory: Path) -> Newest:
    """The checkpoint of the most steps that is whole."""
    damaged = []
    for step in reversed(_steps(directory)):
        path = directory / f"step_{step:06d}"
        try:
            verify(path)
        except PgcError as error:
            damaged.append(str(error))
        else:
            return Newest(path, tuple(damaged))
    return Newest(None, tuple(damaged))


def read(directory: Path) -> CheckpointState:
    """A checkpoint's tensors, after checking its files.

    Raises:
        PgcError: a file is missing or damaged.
    """
    verify(directory)
    model, optimizer = (torch.load(directory / name, weights_only=True, map_location="cpu") for name in FILES[:2])
    return CheckpointState(model, optimizer)


def read_state(directory: Path) -> dict[str, Any]:
    """What the caller of ``write`` gave as ``state``."""
    state: dict[str, Any] = json.loads((directory / "state.json").read_text())
    return state


def _steps(directory: Path) -> list[int]:
    """Steps of the checkpoints in a directory, ascending."""
    if not directory.is_dir():
        return []
    matches = [_NAME.fullmatch(path.name) for path in directory.iterdir() if path.is_dir()]
    return sorted(int(match[1]) for match in matches if match)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


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


def _replace(temporary: Path, path: Path) -> None:
    """Rename; a directory in the way, from before a resume, is moved aside first and then removed."""
    if not path.exists():
        temporary.rename(path)
        return
    aside = path.with_name(f"{_TEMPORARY}old-{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    temporary.rename(path)
    shutil.rmtree(aside)
