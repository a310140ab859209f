"""A cluster of real processes that loses workers and gets them back. Step times are printed, not asserted."""

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, DIGITS, environment

WORKERS, STRAGGLERS = 12, 3


def free_ports() -> int:
    """The first of four neighbouring ports that are free now."""
    for base in range(20_000, 60_000, 4):
        with socket.socket() as a, socket.socket() as b, socket.socket() as c, socket.socket() as d:
            try:
                for offset, probe in enumerate((a, b, c, d)):
                    probe.bind(("127.0.0.1", base + offset))
            except OSError:
                continue
            return base
    raise AssertionError("no free ports")


class Cluster:
    """``pgc local`` in the background, its records as they come, and workers started by hand."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.port = free_ports()
        command = [str(BIN / "pgc"), "local", "--config", str(DIGITS), "--json", "result.json"]
        for setting in (f"net.port={self.port}", "name=run", *settings):
            command += ["--set", setting]
        self.log = (directory / "log").open("w")
        self.process = subprocess.Popen(command, cwd=directory, env=environment(), stdout=self.log, stderr=self.log)
        self.extra: list[subprocess.Popen[bytes]] = []

    def records(self, kind: str) -> list[dict[str, Any]]:
        path = self.directory / "runs" / "run" / f"{kind}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def until(self, condition: Callable[[], object], seconds: float = 120) -> None:
        """Look until the condition holds; the bound only guards against a hang."""
        limit = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, (self.directory / "log").read_text()[-2000:]
            assert time.monotonic() < limit, (self.directory / "log").read_text()[-2000:]
            time.sleep(0.05)

    def steps(self) -> int:
        return len(self.records("steps"))

    def pid(self, worker: int) -> int:
        """Process of a worker's latest life, from what the master recorded when it joined."""
        found = [re.search(r"worker (\d+) joined from .* \(process (\d+)\)", e["text"]) for e in self.records("events")]
        return [int(match[2]) for match in found if match and int(match[1]) == worker][-1]

    def kill(self, worker: int) -> None:
        os.kill(self.pid(worker), signal.SIGKILL)

    def start(self, worker: int) -> None:
        command = [str(BIN / "pgc-worker"), "--id", str(worker), "--master", f"tcp://127.0.0.1:{self.port}"]
        env = environment() | {"OMP_NUM_THREADS": "1"}
        self.extra.append(subprocess.Popen(command, cwd=self.directory, env=env, stdout=self.log, stderr=self.log))

    def close(self) -> None:
        for process in (self.process, *self.extra):
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    opened: list[Cluster] = []

    def build(*settings: str) -> Cluster:
        opened.append(Cluster(tmp_path, *settings))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def test_killed_workers_are_stragglers_come_back_and_too_many_are_waited_for(
    cluster: Callable[..., Cluster],
) -> None:
    run = cluster(
        f"workers={WORKERS}",
        "scheme.name=pgc-cr",
        f"scheme.stragglers={STRAGGLERS}",
        f"scheme.load={STRAGGLERS + 1}",
        "steps=100000",
        "eval.every=0",
        "net.heartbeat=1",
        "delay.model=constant",
        "delay.mean=0.2",
    )
    run.until(lambda: run.steps() > 20)
    for worker in (1, 5, 9):
        run.kill(worker)
    killed_at = run.steps()
    run.until(lambda: run.steps() > killed_at + 20)
    for worker in (1, 5):
        run.start(worker)
    run.until(lambda: all(used_again(run, worker, killed_at + 5) for worker in (1, 5)))
    for worker in (3, 7, 11):  # with 9 that is one more than may be gone
        run.kill(worker)
    run.until(lambda: waiting(run))
    assert re.search(r"missing 3, 7, 9, 11; ", waiting(run)[-1]["text"])
    stuck_at = run.steps()
    run.start(7)
    run.until(lambda: run.steps() > stuck_at + 10)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=30) == 75
    report(run, killed_at)
    check_first_use(run)


def used_again(run: Cluster, worker: int, since: int) -> bool:
    return any(worker in step["used"] for step in run.records("steps")[since:])


def waiting(run: Cluster) -> list[dict[str, Any]]:
    return [event for event in run.records("events") if event["kind"] == "waiting"]


def report(run: Cluster, killed_at: int) -> None:
    steps = run.records("steps")
    lasted = [step["closed_at"] - step["published_at"] for step in steps]
    median = statistics.median(lasted)
    worst = max(lasted[killed_at - 2 : killed_at + 22])
    print(f"step: median {median:.3f} s; worst of 24 around three SIGKILLs {worst:.3f} s, {worst / median:.2f} times")


def check_first_use(run: Cluster) -> None:
    """Every life of a worker begins with a warm-up, and what is used of it first contains a fresh gradient."""
    used = {(worker, step["step"]) for step in run.records("steps") for worker in step["used"]}
    seen: set[str] = set()
    lives = 0
    for answer in run.records("latencies"):
        if answer["incarnation"] not in seen:
            seen.add(answer["incarnation"])
            lives += 1
            assert answer["evaluated"] == STRAGGLERS + 1
        if (answer["worker"], answer["step"]) in used and answer["outcome"] == "open":
            assert answer["newest_age"] == 0
    assert lives == WORKERS + 3
