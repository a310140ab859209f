"""A run on the hosts of a lab, as the programs that people start, and what it has written so far.

Everything that is seen is stamped with ``time.monotonic`` of this process, since a master that is started again begins
to count anew.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgczmq.bench.hosts.lab import Lab
from pgczmq.config import RunConfig
from pgczmq.errors import ClusterError
from pgczmq.runlog import FILES, EventRecord, LatencyRecord, StepRecord

MASTER = "master"
LOOK_SECONDS = 0.02
END_SECONDS = 60.0
"""The longest that programs may take to end once their run is over."""


def worker_host(number: int) -> str:
    """Where a worker runs."""
    return f"worker{number}"


def hosts(workers: int) -> list[str]:
    """The lab's, one for each program."""
    return [MASTER, *map(worker_host, range(workers))]


@dataclass(frozen=True)
class Answer:
    """One that came in time, and when that was seen."""

    at: float
    worker: int
    step: int


@dataclass
class Seen:
    """What the run has written so far.

    Args:
        steps: number of each step that was applied, and when that was seen.
        answers: those that came in time.
        events: kind and text of each.
    """

    steps: list[tuple[float, int]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last step that was applied; -1 before the first."""
        return self.steps[-1][1] if self.steps else -1


class Tail:
    """New whole lines of a file that somebody else writes; all of them, when another file has taken its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = -1
        self._read = 0

    def records(self) -> Iterator[Mapping[str, Any]]:
        """What has been written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._read:
                self._inode, self._read = about.st_ino, 0
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    yield json.loads(line)


class Site:
    """A master and its workers on hosts of their own.

    Args:
        lab: with the hosts that ``hosts`` names.
        directory: where they write.
        config: the run; where it listens is the lab's business.
    """

    def __init__(self, lab: Lab, directory: Path, config: RunConfig) -> None:
        # Namespaces do not divide the memory: workers in others would find that they can share the master's.
        net = config.net.model_copy(update={"bind": lab.address(MASTER), "payload": "tcp"})
        config = config.model_copy(update={"net": net, "name": "run"})
        self.lab = lab
        self.config = config
        self.run = directory / "runs" / config.name
        self.seen = Seen()
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._directory = directory
        self._file = directory / "run.toml"
        self._file.write_text(config.to_toml(), encoding="utf-8")
        self._tails = {kind: Tail(self.run / FILES[kind]) for kind in (StepRecord, LatencyRecord, EventRecord)}

    # ------------------------------------------------------------ programs

    def start_master(self, *options: str) -> None:
        """Start ``pgc-master``, in addition to the configuration with these options."""
        self.master = self._start(MASTER, "master", ["--config", str(self._file), "--insecure", *options])

    def start_worker(self, number: int) -> None:
        """Start ``pgc-worker``."""
        address = f"tcp://{self.lab.address(MASTER)}:{self.config.net.port}"
        options = ["--id", str(number), "--master", address]
        self.workers[number] = self._start(worker_host(number), "worker", options)

    def start(self) -> None:
        """Start all of them."""
        self.start_master()
        for number in range(self.config.workers):
            self.start_worker(number)

    def _start(self, host: str, program: str, options: list[str]) -> subprocess.Popen[bytes]:
        command = f"from pgczmq.cli.main import {program}_main as main; main()"
        with (self._directory / f"{host}.log").open("ab") as log:
            argv = [sys.executable, "-c", command, *options]
            return self.lab.popen(host, argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._directory)

    def stop(self) -> None:
        """Interrupt the run."""
        assert self.master is not None
        self.master.send_signal(signal.SIGTERM)

    def end(self, expected: int) -> list[str]:
        """Wait until all programs have ended; returns what is wrong with how they did.

        Args:
            expected: their exit code.
        """
        assert self.master is not None
        wrong = [_wrong_ending(MASTER, self.master, expected)]
        wrong += [_wrong_ending(worker_host(number), process, expected) for number, process in self.workers.items()]
        return [sentence for sentence in wrong if sentence]

    # ------------------------------------------------------------ what they do

    def look(self) -> None:
        """Take in what has been written since the last look."""
        now = time.monotonic()
        for record in self._tails[StepRecord].records():
            if record["step"] > self.seen.last:  # a master that is started again does some once more
                self.seen.steps.append((now, record["step"]))
        for record in self._tails[LatencyRecord].records():
            if record["outcome"] == "open":
                self.seen.answers.append(Answer(now, record["worker"], record["step"]))
        self.seen.events += [(record["kind"], record["text"]) for record in self._tails[EventRecord].records()]

    def now(self) -> float:
        """``time.monotonic``, after a look: what has been written until now has been seen before."""
        self.look()
        return time.monotonic()

    def watch(self, seconds: float) -> None:
        """Go on looking for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_SECONDS)

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Go on looking until something holds.

        Raises:
            ClusterError: it does not within so many seconds, or a program ended.
        """
        deadline = time.monotonic() + seconds
        while True:
            ended = self._ended()
            self.look()
            if condition():
                return
            if ended:
                raise ClusterError(f"{ended} before it came to this: {what}")
            if time.monotonic() > deadline:
                raise ClusterError(f"within {seconds:g} s it did not come to this: {what}")
            time.sleep(LOOK_SECONDS)

    def _ended(self) -> str:
        """Which program has ended, and how; "" while all live."""
        assert self.master is not None
        programs = {MASTER: self.master} | {worker_host(number): one for number, one in self.workers.items()}
        codes = {name: process.poll() for name, process in programs.items()}
        return ", ".join(f"{name} ended with {code}" for name, code in codes.items() if code is not None)


def _wrong_ending(name: str, process: subprocess.Popen[bytes], expected: int) -> str:
    try:
        code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{name} did not end within {END_SECONDS:g} s"
    return "" if code == expected else f"{name} ended with {code}, not with {expected}"
