"""What a run leaves behind when it is killed, and what stands in its way."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import BIN, environment

QUICK = ["--set", "workers=2", "--set", "task.name=linear-regression", "--set", "ui.mode=none", "--set", "name=run"]


def children(directory: Path) -> list[int]:
    """Processes that work in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink() == directory:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_nothing_lives_on_when_the_master_is_killed(tmp_path: Path) -> None:
    command = [str(BIN / "pgc"), "local", *QUICK, "--set", "steps=1000000"]
    master = subprocess.Popen(command, cwd=tmp_path, env=environment(), start_new_session=True)
    steps = tmp_path / "runs" / "run" / "steps.jsonl"
    limit = time.monotonic() + 60
    while not (steps.exists() and steps.stat().st_size):
        assert time.monotonic() < limit and master.poll() is None
        time.sleep(0.05)
    assert len(children(tmp_path)) >= 4  # master, helper, two workers
    os.kill(master.pid, signal.SIGKILL)
    master.wait()
    while children(tmp_path):
        assert time.monotonic() < limit, children(tmp_path)
        time.sleep(0.05)


def test_files_with_the_names_of_libraries_stand_in_nobodys_way(
    tmp_path: Path, pgc_local: Callable[..., dict[str, Any]]
) -> None:
    for name in ("random", "torch", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not this one')\n")
    result = pgc_local("workers=2", "task.name=linear-regression", "steps=3", "scheme.name=dgd")
    assert (result["exit"], result["steps"]) == (0, 3)


def test_a_checkpoint_after_every_step_neither_overlaps_nor_ends_the_run(
    pgc_local: Callable[..., dict[str, Any]],
) -> None:
    result = pgc_local("workers=2", "task.name=linear-regression", "steps=40", "checkpoint.every=1", "scheme.name=dgd")
    assert (result["exit"], result["steps"]) == (0, 40)
    saved = sorted(path.name for path in (Path(result["run"]) / "checkpoints").iterdir())
    assert saved[-1] == "step_000040" and len(saved) <= 3
