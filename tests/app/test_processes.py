"""The helper that processes are forked from, and leaving without or with one."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pgczmq.app import processes

SCRIPT = """
import os, tempfile
from pgczmq.app import processes
from pgczmq.cli.common import leave

if __name__ == "__main__":
    processes.PRELOADED.clear()
    processes.start_helper()
    assert os.listdir(os.environ["TMPDIR"])
    tempfile.tempdir = "/nowhere/to/be/found"
    leave(75)
"""
LEAVE = "from pgczmq.app import processes; from pgczmq.cli.common import leave"
NOWHERE = "import tempfile; tempfile.tempdir = '/nowhere/to/be/found'"


@pytest.mark.parametrize("begin", [NOWHERE, "pass"])
def test_a_process_without_a_helper_leaves_with_its_exit_code(begin: str, tmp_path: Path) -> None:
    """And makes no directory only to delete it: where none can be made that would fail."""
    left = subprocess.run(
        [sys.executable, "-c", f"{LEAVE}; {begin}; leave(75)"],
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (left.returncode, left.stderr) == (75, "")


def test_what_a_helper_needed_on_disk_is_removed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with tempfile.TemporaryDirectory(dir="/tmp") as there:
        left = subprocess.run(
            [sys.executable, str(script)], env={"TMPDIR": there}, capture_output=True, text=True, timeout=60
        )
        assert (left.returncode, left.stderr) == (75, "")
        assert list(Path(there).iterdir()) == []


def test_that_is_removed_too_when_whoever_needed_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("leave(75)", "os.kill(os.getpid(), 9)"))
    with tempfile.TemporaryDirectory(dir="/tmp") as there:
        left = subprocess.run([sys.executable, str(script)], env={"TMPDIR": there}, timeout=60)
        assert left.returncode == -9
        ends_at = time.monotonic() + 60
        while list(Path(there).iterdir()):
            assert time.monotonic() < ends_at, "the helper ended without clearing away"
            time.sleep(0.05)


def test_a_helper_is_there_where_the_name_of_its_socket_would_be_too_long(tmp_path: Path) -> None:
    """And what it needed is removed from where it was put instead."""
    script, there = tmp_path / "script.py", tmp_path / ("temporary" * 12)
    script.write_text(SCRIPT.replace('assert os.listdir(os.environ["TMPDIR"])', "print(processes._directory)"))
    there.mkdir()
    left = subprocess.run(
        [sys.executable, str(script)], env={"TMPDIR": str(there)}, capture_output=True, text=True, timeout=60
    )
    assert (left.returncode, left.stderr) == (75, "")
    assert left.stdout.startswith("/tmp/") and not Path(left.stdout.strip()).exists()


def test_sockets_are_put_where_their_names_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, put in (("/scratch/me", "/scratch/me"), ("/scratch" * 12, "/tmp")):
        monkeypatch.setattr(tempfile, "tempdir", place)
        assert processes.place_for_sockets() == put


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 4096, 4096), (4096, 4096, 4096)])
def test_a_master_may_have_as_many_files_open_as_it_is_let(soft: int, hard: int, then: int) -> None:
    script = (
        "import resource; from pgczmq.app import processes; what = resource.RLIMIT_NOFILE; "
        f"resource.setrlimit(what, ({soft}, {hard})); processes.open_many_files(); print(*resource.getrlimit(what))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.split() == [str(then), str(hard)]
