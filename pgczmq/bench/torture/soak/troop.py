"""The programs of a soak: each in one role, started, signalled and started again, and watched in /proc."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pgczmq.bench.torture.soak.fates import Process, Sample

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Program:
    """One process after the other in one role.

    Args:
        role: "master", or "worker 3".
        command: words after the directory of the installed programs.
        directory: where it runs and logs.

    Attributes:
        lives: those that are over.
        expected: how its end will be told when it comes, empty while nobody has done anything to it.
    """

    def __init__(self, role: str, command: Sequence[str], directory: Path) -> None:
        self.role = role
        self.lives: list[Process] = []
        self.expected = ""
        self._command = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._stops: list[tuple[float, float]] = []
        self._stopped_at: float | None = None

    @property
    def log(self) -> Path:
        """What all its lives said."""
        return self._directory / f"{self.role.replace(' ', '-')}.log"

    @property
    def pid(self) -> int | None:
        """Of the present life."""
        return None if self._process is None else self._process.pid

    @property
    def runs(self) -> bool:
        """It lives and is not stopped, nor about to end."""
        return self._process is not None and self._stopped_at is None and not self.expected

    @property
    def stopped(self) -> bool:
        """It lives and is stopped."""
        return self._stopped_at is not None

    @property
    def began(self) -> float:
        """When the present life began, on time.monotonic."""
        return self._began

    def start(self) -> None:
        """A new life."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl+C is for the supervisor
                preexec_fn=_end_with_parent,
            )
        self._began, self._stops, self._stopped_at, self.expected = time.monotonic(), [], None, ""

    def end(self, number: signal.Signals, how: str) -> None:
        """End the present life by a signal; ``how`` says so in the record of it."""
        self.expected = how
        self._signal(number)

    def stop(self) -> None:
        """Hold it up, until ``go_on``."""
        self._stopped_at = time.monotonic()
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After ``stop``."""
        if self._stopped_at is not None:
            self._stops.append((self._stopped_at, time.monotonic()))
            self._stopped_at = None
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def collect(self, seconds: float = 0.0) -> Process | None:
        """The present life, if it is over now, or ends in so many seconds."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        now = time.monotonic()
        how = self.expected or f"exit {code}"
        life = Process(self.role, self._process.pid, self._began, now, how, code, tuple(self._stops))
        self._process = None
        self.lives.append(life)
        return life

    def last_words(self) -> str:
        """The last line of its log."""
        text = self.log.read_text(errors="replace", encoding="utf-8") if self.log.exists() else ""
        return (text.strip().splitlines() or ["nothing"])[-1]

    def sample(self) -> Sample | None:
        """What it holds now; None when it does not live."""
        if self._process is None:
            return None
        proc = Path("/proc") / str(self._process.pid)
        try:
            pages = int((proc / "statm").read_text(encoding="utf-8").split()[1])
            descriptors = len(list((proc / "fd").iterdir()))
        except (OSError, IndexError, ValueError):
            return None  # it has just ended
        if not pages:
            return None  # and nobody has asked for its exit code yet
        age = time.monotonic() - self._began
        return Sample(self.role, self._process.pid, age, pages * os.sysconf("SC_PAGE_SIZE"), descriptors)


def _end_with_parent() -> None:
    """In the child, where the system can do that: it is killed when its supervisor ends, however that comes."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
