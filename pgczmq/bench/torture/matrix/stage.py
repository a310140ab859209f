"""The real programs of one small run, started, watched and started again as a supervisor would."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from pgczmq.bench.torture.machine import FIRST_PORT, LAST_PORT, PORTS, taken_ports, working_in
from pgczmq.bench.torture.matrix.links import Link
from pgczmq.errors import ClusterError

LOOK_SECONDS = 0.02
BASE = {
    "name": "run",
    "workers": 2,
    "steps": 20,
    "scheme.name": "pgc-cr",
    "scheme.stragglers": 0,
    "scheme.load": 2,
    "task.name": "soak",
    "net.heartbeat": 0.2,
    "net.step_timeout": 600,
    "net.start_timeout": 600,
    "checkpoint.every": 5,
    "eval.every": 0,
    "ui.mode": "none",
}
"""Nothing goes on without each of the workers: what is broken must really come back. And it must warm up then."""
MASTER_TIMEOUT = 15
"""Seconds; a worker that is not told that the run is over gives up then."""
RESUME = ("--resume", "auto")
_ports = itertools.count(FIRST_PORT + os.getpid() * PORTS % (LAST_PORT - FIRST_PORT), PORTS)


class Hang(ClusterError):
    """What should come does not."""


@dataclass
class Program:
    """One process after the other in one role.

    Args:
        name: master, or worker-N; also of its log file.
        process: the present one, if any.
        codes: exit codes of the earlier ones.
    """

    name: str
    log: Path
    process: subprocess.Popen[bytes] | None = None
    codes: list[int] = field(default_factory=list)

    @property
    def lives(self) -> bool:
        """Whether it runs, or is stopped."""
        return self.process is not None and self.process.poll() is None

    def said(self) -> str:
        """All its logs."""
        return self.log.read_text(errors="replace", encoding="utf-8") if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """A signal to the present process, if there is one."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def collect(self) -> int | None:
        """The exit code of a process that has ended since; None when there is none."""
        if self.process is None or self.process.poll() is None:
            return None
        code = self.process.returncode
        self.process = None
        self.codes.append(code)
        return code


class Stage:
    """A run in a directory of its own; use as a context manager, which ends whatever is left.

    Args:
        directory: empty; programs run there.
        settings: keys of the run that differ from BASE.
        patience: seconds without what is waited for that count as a hang.
        given_up: once it is set, every wait ends in Hang.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        *,
        patience: float,
        given_up: threading.Event | None = None,
    ) -> None:
        self.directory = directory
        self.patience = patience
        self._given_up = given_up or threading.Event()
        self.gates = directory / "gates"
        self.gates.mkdir()
        self.settings: dict[str, Any] = {**BASE, "task.args.gates": str(self.gates), **settings}
        self.steps = int(self.settings["steps"])
        self.master = Program("master", directory / "master.log")
        self.workers = [Program(f"worker-{n}", directory / f"worker-{n}.log") for n in range(self.settings["workers"])]
        self.links: list[Link] = []

    def __enter__(self) -> "Stage":
        """Open the links; no program runs yet."""
        for base in itertools.islice(_ports, (LAST_PORT - FIRST_PORT) // PORTS):
            self.port = FIRST_PORT + (base - FIRST_PORT) % (LAST_PORT - FIRST_PORT)
            with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
                self.links = [opened.enter_context(Link(_host(n), self.port)) for n in range(len(self.workers))]
                if not taken_ports(self.port):
                    self._opened = opened.pop_all()
                    return self
        raise ClusterError("no four neighbouring ports are free on this machine.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what still lives."""
        for program in self.programs:
            if program.process is not None:
                program.process.kill()
                program.process.wait()
        self._opened.close()

    @property
    def programs(self) -> list[Program]:
        """Everybody."""
        return [self.master, *self.workers]

    # ------------------------------------------------------------ starting

    def start_master(self) -> None:
        """From the newest checkpoint, if there is one."""
        command = ["pgc-master", *RESUME]
        for key, value in {**self.settings, "net.port": self.port}.items():
            command += ["--set", f"{key}={json.dumps(value) if isinstance(value, str) else value}"]
        self._start(self.master, command)

    def start_worker(self, number: int) -> None:
        """Under its number, over its link."""
        address = f"tcp://{_host(number)}:{self.port}"
        command = ["pgc-worker", "--id", str(number), "--master", address, "--master-timeout", str(MASTER_TIMEOUT)]
        for setting in ("task.name", "task.args.gates"):
            command += ["--allow", str(self.settings[setting])]
        self._start(self.workers[number], command)

    def start_all(self) -> None:
        """The whole run."""
        self.start_master()
        for number in range(len(self.workers)):
            self.start_worker(number)

    def start_again(self, program: Program) -> None:
        """What a supervisor does."""
        if program is self.master:
            self.start_master()
        else:
            self.start_worker(self.workers.index(program))

    def _start(self, program: Program, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")}
        words = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        with program.log.open("ab") as log:
            program.process = subprocess.Popen(
                words, cwd=self.directory, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def links_of(self, program: Program) -> list[Link]:
        """All that lead to this process."""
        return self.links if program is self.master else [self.links[self.workers.index(program)]]

    def set_free(self) -> None:
        """Open all gates, and let go what traps hold up."""
        for file in self.gates.iterdir():
            file.unlink(missing_ok=True)
        for link in self.links:
            link.release()

    # ------------------------------------------------------------ watching

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Look until it holds.

        Raises:
            Hang: it does not for ``patience`` seconds.
        """
        limit = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > limit:
                raise Hang(f"{what} did not come in {self.patience:g} s. {self._who_is_where()}")
            self.pause(LOOK_SECONDS)

    def pause(self, seconds: float) -> None:
        """Do nothing.

        Raises:
            Hang: nobody waits for this any more.
        """
        if self._given_up.wait(seconds):
            raise Hang("interrupted")

    def _who_is_where(self) -> str:
        """What programs do, and the last thing that each said."""
        found = []
        for program in self.programs:
            state = "runs" if program.lives else "does not run"
            *_, last = program.said().splitlines() or ["nothing"]
            found.append(f"{program.name} {state}, ended with {program.codes}, said: {last}")
        return "; ".join(found)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """What the run has written of one kind, without a half-written last line."""
        path = self.directory / "runs" / "run" / f"{kind}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def noted(self, kind: str, text: str = "") -> bool:
        """Whether the master recorded an event of this kind, with this in its text."""
        return any(event["kind"] == kind and re.search(text, event["text"]) for event in self.records("events"))

    def leftovers(self) -> list[str]:
        """What is still there of programs that have ended: processes that work in the directory, ports."""
        found = [f"process {pid}" for pid in working_in(self.directory)]
        return found + [f"port {port}" for port in taken_ports(self.port)]


def _host(number: int) -> str:
    """Where worker ``number`` finds the master."""
    return f"127.0.0.{number + 2}"
