"""Programs that a test starts in one directory, as a launcher or a person would, each with a log of its own."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conftest import BIN, environment
from test_survival import free_ports

LEFT_SECONDS = 60
"""Only guards against a hang."""
CLUSTERS = Path(__file__).resolve().parents[2] / "examples" / "clusters"
LAUNCHERS = ("SLURM", "OMPI", "PMI", "PGC")
"""What the variables begin with that number processes: this test may have been launched by one of these."""


class Site:
    """Where programs run; ``close`` ends those that have not.

    Args:
        directory: of the files and logs.
        port: of the master; the next three are free, too.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports()
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[str], *, extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program of the project, or any other by its path; what it says is in NAME.log."""
        env = {key: value for key, value in environment().items() if not key.startswith(LAUNCHERS)}
        env |= {"OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{env['PATH']}"} | (extra or {})
        with (self.directory / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.directory, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self._started.append(process)
        return process

    def end_of(self, process: subprocess.Popen[bytes], name: str) -> int:
        """Its exit code, as a shell says it."""
        try:
            code = process.wait(LEFT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} goes on:\n{self.log(name)}") from None
        return code if code >= 0 else 128 - code

    def log(self, name: str) -> str:
        file = self.directory / f"{name}.log"
        return file.read_text() if file.exists() else ""

    def until(self, condition: Callable[[], object]) -> None:
        limit = time.monotonic() + LEFT_SECONDS
        while not condition():
            logs = "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in self.directory.glob("*.log"))
            assert time.monotonic() < limit, logs
            time.sleep(0.02)

    def steps(self, run: str) -> int:
        """Steps that a run has on record."""
        file = self.directory / "runs" / run / "steps.jsonl"
        return file.read_text().count("\n") if file.exists() else 0

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def settings(*given: str) -> list[str]:
    """As options."""
    return [word for setting in given for word in ("--set", setting)]


SOAK = ("task.name=soak", "scheme.name=dgd", "eval.every=0", "ui.mode=plain")
"""A run without torch, which starts and ends in no time."""
