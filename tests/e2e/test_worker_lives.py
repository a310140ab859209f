"""Workers as processes of their own: their master is killed and comes back, they are stopped, and told to go."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, ROOT, environment
from test_survival import free_ports

SETTINGS = ("task.name=soak", "workers=3", "scheme.name=pgc-cr", "scheme.load=2", "scheme.stragglers=1")
FOR_EVER = ("steps=100000000", "net.heartbeat=0.5", "delay.model=constant", "delay.mean=0.02", "ui.mode=none")


class Scene:
    """A master and workers in a directory, each started and ended by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports()
        self.started: list[subprocess.Popen[bytes]] = []

    def _start(self, log: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / log).open("a") as file:
            process = subprocess.Popen(command, cwd=self.directory, env=environment(), stdout=file, stderr=file)
        self.started.append(process)
        return process

    def master(self, name: str, *settings: str) -> subprocess.Popen[bytes]:
        options = [f"--set={setting}" for setting in (*SETTINGS, *FOR_EVER, f"net.port={self.port}", *settings)]
        return self._start("master.log", str(BIN / "pgc-master"), f"--set=name={name}", *options)

    def worker(self, number: int, *options: str) -> subprocess.Popen[bytes]:
        address = f"tcp://localhost:{self.port}"
        return self._start(
            f"worker-{number}.log", str(BIN / "pgc-worker"), "--id", str(number), "--master", address, *options
        )

    def said(self, number: int) -> str:
        return (self.directory / f"worker-{number}.log").read_text()

    def records(self, name: str, kind: str) -> list[dict[str, Any]]:
        path = self.directory / "runs" / name / f"{kind}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def events(self, name: str, kind: str, worker: int) -> list[dict[str, Any]]:
        return [one for one in self.records(name, "events") if (one["kind"], one["worker"]) == (kind, worker)]

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Look until the condition holds; the bound only guards against a hang."""
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, self._logs()
            time.sleep(0.05)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in self.directory.glob("*.log"))

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    opened = Scene(tmp_path)
    yield opened
    opened.close()


def test_workers_are_stopped_find_a_new_master_and_leave_when_told(scene: Scene) -> None:
    first = scene.master("first")
    workers = [scene.worker(number) for number in range(3)]
    scene.until(lambda: len(scene.records("first", "steps")) > 5)
    workers[1].send_signal(signal.SIGSTOP)  # past three heartbeats: gone, and back when it goes on
    scene.until(lambda: scene.events("first", "left", 1))
    workers[1].send_signal(signal.SIGCONT)
    scene.until(lambda: scene.events("first", "ready", 1)[1:])
    assert scene.events("first", "ready", 1)[1]["seconds"] > 0
    workers[1].send_signal(signal.SIGSTOP)  # and now for so long that its master is another one
    first.kill()
    second = scene.master("second")
    scene.until(lambda: len(scene.records("second", "steps")) > 5 or scene.events("second", "ready", 2))
    workers[1].send_signal(signal.SIGCONT)
    scene.until(lambda: scene.events("second", "ready", 1))
    scene.until(lambda: any(1 in step["used"] for step in scene.records("second", "steps")))
    workers[2].send_signal(signal.SIGTERM)
    assert workers[2].wait(timeout=30) == 143
    scene.until(lambda: scene.events("second", "left", 2))
    assert scene.events("second", "left", 2)[0]["text"] == "worker 2 left: signal SIGTERM"
    check_lives(scene)
    second.send_signal(signal.SIGINT)
    assert second.wait(timeout=30) == 75
    assert [workers[number].wait(timeout=30) for number in (0, 1)] == [75, 75]


def check_lives(scene: Scene) -> None:
    """Nothing of a former life is used, and the way back is told and measured."""
    lives = [{record["incarnation"] for record in scene.records(run, "latencies")} for run in ("first", "second")]
    assert len(lives[0]) == len(lives[1]) == 3 and not lives[0] & lives[1]
    for number in range(3):
        found = re.findall(r"is back in run \w+ after ([\d.]+) s", scene.said(number))
        assert len(found) == 1
        print(f"worker {number} had a master again after {found[0]} s")
        assert scene.events("second", "joined", number)[0]["seconds"] > 0
        assert scene.said(number).count("looking for it again") == 1


def test_a_worker_runs_what_its_user_allows_and_says_what_else_it_would_have_run(scene: Scene) -> None:
    shutil.copy(ROOT / "examples" / "my_scheme.py", scene.directory)
    scene.master("run", "scheme.name=my_scheme:whatever_is_there", "workers=4")
    careful = scene.worker(0)
    assert careful.wait(timeout=60) == 71
    assert "scheme.name = 'my_scheme:whatever_is_there'" in scene.said(0)
    assert "add --allow my_scheme:whatever_is_there" in scene.said(0)
    scene.until(lambda: scene.events("run", "left", 0))
    assert "only if its own user allows it" in scene.events("run", "left", 0)[0]["text"]
    trusting = scene.worker(0, "--allow", "my_scheme:whatever_is_there")
    scene.until(lambda: scene.events("run", "ready", 0))
    trusting.send_signal(signal.SIGTERM)
    assert trusting.wait(timeout=30) == 143
