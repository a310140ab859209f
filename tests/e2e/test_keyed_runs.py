"""Whole runs of the installed programs with keys: who has one trains, who has none ends with exit code 72."""

import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, environment
from test_survival import free_ports

WORKERS = 3
SETTINGS = ("task.name=soak", f"workers={WORKERS}", "steps=30", "scheme.name=dgd", "eval.every=0", "name=run")
LEFT_SECONDS = 60
"""Only guards against a hang."""


class Site:
    """Programs that run in one directory, each with a log of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str, **extra: str) -> subprocess.Popen[bytes]:
        env = environment() | {"OMP_NUM_THREADS": "1"} | extra
        with (self.directory / f"{name}.log").open("w") as log:
            process = subprocess.Popen([str(BIN / command[0]), *command[1:]], cwd=self.directory, env=env, stderr=log)
        self.started.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def until(self, name: str, text: str) -> None:
        limit = time.monotonic() + LEFT_SECONDS
        while text not in self.log(name):
            assert time.monotonic() < limit, self.log(name)
            time.sleep(0.02)

    def worker(self, number: int, connection: str, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            f"worker-{connection}", "pgc-worker", "--id", str(number), *more, PGC_CONNECT=self.file(connection)
        )

    def file(self, connection: str) -> str:
        return str(self.directory / "pgc-keys" / connection / "pgc-connect.json")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for process in site.started:
        process.kill()
        process.wait()


def settings(*given: str) -> list[str]:
    return [part for setting in given for part in ("--set", setting)]


def test_a_whole_run_with_keys_and_a_list_and_nobody_else_gets_in(site: Site) -> None:
    port = free_ports()
    names = [part for name in ("vm-0", "vm-1", "vm-2", "gone") for part in ("--worker", name)]
    made = site.start("keygen", "pgc", "keygen", "--master", f"tcp://127.0.0.1:{port}", *names)
    assert made.wait(LEFT_SECONDS) == 0, site.log("keygen")
    allowed = site.directory / "pgc-keys" / "workers.allow"
    allowed.write_text("".join(line for line in allowed.read_text().splitlines(True) if not line.startswith("gone")))
    (site.directory / "plain").mkdir()
    master = site.start(
        "master", "pgc-master", *settings(*SETTINGS, "net.security=curve", f"net.port={port}", "ui.mode=plain")
    )
    site.until("master", "listening on")

    address = ("--master", f"tcp://127.0.0.1:{port}")
    turned_away = [site.worker(0, "gone"), site.start("plain", "pgc-worker", "--id", "1", *address)]
    assert [process.wait(LEFT_SECONDS) for process in turned_away] == [72, 72]
    assert "does not know this worker's key" in site.log("worker-gone")
    assert "wants a key, and this worker has none" in site.log("plain")

    workers = [site.worker(number, f"vm-{number}") for number in range(WORKERS)]
    assert [process.wait(LEFT_SECONDS) for process in (*workers, master)] == [0] * 4, site.log("master")
    said = site.log("master")
    assert all(f"let in the key of vm-{number} from 127.0.0.1" in said for number in range(WORKERS))
    assert "whose key is not on the list" in said and "came without encryption" in said
    assert len((site.directory / "runs" / "run" / "steps.jsonl").read_text().splitlines()) == 30
    check_no_key_is_written(site.directory)


def check_no_key_is_written(directory: Path) -> None:
    """Anywhere but in the key files: not in the logs, not in what the run leaves."""
    keys = {
        value
        for file in (directory / "pgc-keys").rglob("*.json")
        for name, value in json.loads(file.read_text()).items()
        if name.endswith("_key")
    }
    assert len(keys) == 1 + 1 + 4  # the master's two, and the workers' secret ones
    for folder, _, files in os.walk(directory):
        for name in files if "pgc-keys" not in folder else ():
            text = (Path(folder) / name).read_bytes().decode(errors="replace")
            assert not [key for key in keys if key in text], name


def test_a_local_run_with_keys_of_its_own(site: Site) -> None:
    run = site.start("local", "pgc", "local", *settings(*SETTINGS, "net.security=curve", "ui.mode=none"))
    assert run.wait(LEFT_SECONDS) == 0, site.log("local")
    assert sorted(path.name for path in site.directory.iterdir()) == ["local.log", "runs"]


def test_what_is_missing_is_said_before_anything_starts(site: Site) -> None:
    master = site.start("master", "pgc-master", *settings(*SETTINGS, "net.bind=0.0.0.0"))
    assert master.wait(LEFT_SECONDS) == 2
    assert "Make keys with pgc keygen --master tcp://THIS-HOST:5555" in site.log("master")
    assert not (site.directory / "runs").exists()
    made = site.start("keygen", "pgc", "keygen", "--master", "tcp://127.0.0.1:1", "--worker", "vm-0")
    assert made.wait(LEFT_SECONDS) == 0
    assert stat.S_IMODE(Path(site.file("vm-0")).stat().st_mode) == 0o600
    Path(site.file("vm-0")).chmod(0o644)
    assert site.worker(0, "vm-0").wait(LEFT_SECONDS) == 2
    assert "others can read or write it. Run: chmod 600" in site.log("worker-vm-0")
