"""Checkpoints on disk: whole or not there, checked, pruned, and not lost to a full disk. No torch."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgczmq import checkpoints
from pgczmq.errors import PgcError

CONTENT = b"parameters, let us say"


def files(directory: Path) -> None:
    (directory / "model.bin").write_bytes(CONTENT)
    (directory / "more.bin").write_bytes(CONTENT * 100)


def write(directory: Path, *steps: int, keep: int | None = None, best: int | None = None) -> None:
    for step in steps:
        checkpoints.write(directory, step, files=files, state={"step": step}, keep=keep, best=best)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_checkpoint_is_the_models_files_a_state_and_a_manifest(tmp_path: Path) -> None:
    path = checkpoints.write(tmp_path / "all", 200, files=files, state={"step": 200, "run": "x"})
    assert path.name == "step_000200"
    assert names(path) == ["manifest.json", "model.bin", "more.bin", "state.json"]
    assert checkpoints.read_state(path) == {"step": 200, "run": "x"}
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest) == {"model.bin", "more.bin", "state.json"}
    assert all(len(entry["sha256"]) == 64 and entry["size"] > 0 for entry in manifest.values())
    assert names(path.parent) == ["step_000200"]


def test_the_newest_are_kept_and_the_best(tmp_path: Path) -> None:
    write(tmp_path, 100, 200, 300, keep=2)
    assert names(tmp_path) == ["step_000200", "step_000300"]
    write(tmp_path, 400, 500, 1_000_000, keep=1, best=300)
    assert names(tmp_path) == ["step_000300", "step_1000000"]
    write(tmp_path, 1_000_001, keep=1)
    assert names(tmp_path) == ["step_1000001"]


@pytest.mark.parametrize("name", ["model.bin", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_named_and_the_one_before_is_taken(tmp_path: Path, name: str, damage: str) -> None:
    write(tmp_path, 1, 2)
    file = tmp_path / "step_000002" / name
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:middle])
    else:
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(PgcError, match="step_000002 is damaged"):
        checkpoints.verify(tmp_path / "step_000002")
    found = checkpoints.newest(tmp_path)
    assert found.path == tmp_path / "step_000001"
    assert len(found.damaged) == 1
    if name != "manifest.json":
        assert name in found.damaged[0]


def test_a_write_that_was_killed_is_not_found_and_is_cleared_away(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "step_000001").rename(tmp_path / ".partial-step_000001")
    assert checkpoints.newest(tmp_path) == checkpoints.Newest(None, ())
    write(tmp_path, 2)
    assert names(tmp_path) == ["step_000002"]


def test_a_whole_one_of_the_same_step_stays_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 1)
    before = (tmp_path / "step_000001" / "model.bin").stat().st_ino
    write(tmp_path, 1)
    assert (tmp_path / "step_000001" / "model.bin").stat().st_ino == before
    (tmp_path / "step_000001" / "model.bin").write_bytes(b"")
    write(tmp_path, 1)
    assert checkpoints.newest(tmp_path) == checkpoints.Newest(tmp_path / "step_000001", ())
    assert names(tmp_path) == ["step_000001"]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path / "never") == checkpoints.Newest(None, ())


def test_later_ones_are_set_aside_and_not_found(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    assert checkpoints.set_aside(tmp_path, 1) == ["step_000002", "step_000003"]
    assert checkpoints.newest(tmp_path).path == tmp_path / "step_000001"
    write(tmp_path, 3)
    assert checkpoints.set_aside(tmp_path, 1) == ["step_000003"]  # the place is taken by the one before
    assert names(tmp_path / "undone") == ["step_000002", "step_000003"]
    checkpoints.verify(tmp_path / "undone" / "step_000003")


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """No file of this process may become larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [10, 1000])
def test_a_full_disk_is_an_error_that_loses_no_earlier_checkpoint(tmp_path: Path, room: int) -> None:
    write(tmp_path, 1, 2, keep=2)
    with largest_file(room), pytest.raises(OSError, match="File too large"):
        write(tmp_path, 3, keep=1)
    assert names(tmp_path) == ["step_000001", "step_000002"]  # and what was half-written gives its room back
    assert checkpoints.newest(tmp_path) == checkpoints.Newest(tmp_path / "step_000002", ())
    write(tmp_path, 3, keep=2)
    assert names(tmp_path) == ["step_000002", "step_000003"]
