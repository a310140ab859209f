"""What a run in shared memory leaves behind: nothing, however it ends."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BIN, environment
from test_leftovers import QUICK, children

from pgczmq.net import memory

pytestmark = pytest.mark.skipif(not memory.AVAILABLE, reason="shared memory needs Linux")
SHARED = ("/memfd:pgczmq", "/dev/shm/")


def opened_by(processes: list[int] | None = None) -> set[tuple[str, int]]:
    """(name, inode) of the shared memory that these processes have open, or any."""
    folders = [Path(f"/proc/{one}") for one in processes] if processes else list(Path("/proc").glob("[0-9]*"))
    found = set()
    for entry in (entry for folder in folders for entry in folder.glob("fd/*")):
        try:
            name = str(entry.readlink())
            if name.startswith(SHARED):
                found.add((name, entry.stat().st_ino))
        except OSError:  # closed meanwhile
            continue
    return found


def socket_names(processes: list[int]) -> set[str]:
    """Abstract names at which these processes listen."""
    mine = set()
    for entry in (entry for one in processes for entry in Path(f"/proc/{one}/fd").glob("*")):
        try:
            mine.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {line[7] for line in lines if len(line) == 8 and line[6] in mine and line[7].startswith("@pgczmq-")}


def until(condition: Callable[[], object]) -> None:
    """Look until it holds; the bound only guards against a hang."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def interrupt(master: int, everybody: list[int]) -> None:
    os.kill(master, signal.SIGINT)


def kill_all(master: int, everybody: list[int]) -> None:
    for process in everybody:
        os.kill(process, signal.SIGKILL)


def kill_the_master_beside_a_stopped_worker(master: int, everybody: list[int]) -> None:
    os.kill(max(everybody), signal.SIGSTOP)
    os.kill(master, signal.SIGKILL)
    os.kill(max(everybody), signal.SIGCONT)


@pytest.mark.parametrize("end", [interrupt, kill_all, kill_the_master_beside_a_stopped_worker])
def test_nothing_is_left_in_shared_memory(tmp_path: Path, end: Callable[[int, list[int]], None]) -> None:
    command = [str(BIN / "pgc"), "local", *QUICK, "--set", "net.payload=shm", "--set", "steps=1000000"]
    master = subprocess.Popen(command, cwd=tmp_path, env=environment(), start_new_session=True)
    steps = tmp_path / "runs" / "run" / "steps.jsonl"
    try:
        until(lambda: master.poll() is not None or (steps.exists() and steps.stat().st_size))
        everybody = children(tmp_path)
        opened, names = opened_by(everybody), socket_names(everybody)
        assert {name for name, _ in opened} >= {"/memfd:pgczmq (deleted)", "/memfd:pgczmq-card (deleted)"}
        assert names, "headers go over sockets without a file"
        end(master.pid, everybody)
        master.wait()
        until(lambda: not children(tmp_path))
    finally:
        kill_all(master.pid, children(tmp_path))
        master.wait()
    assert not opened & opened_by()
    assert not names & set(Path("/proc/net/unix").read_text().split())
    assert not [name for name, _ in opened if name.startswith("/dev/shm/") and Path(name).exists()]
