"""Programs on terminals of their own, which somebody reads as fast as they are written to."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pgczmq.errors import PgcError

LINES, COLUMNS = 40, 120
LEAVE_SECONDS = 10.0
SAID_BYTES = 4000
_TICKS = os.sysconf("SC_CLK_TCK")


class OnTerminal:
    """A command of this program, ended with the context.

    Args:
        arguments: of ``pgc``.
        directory: where it runs.

    Attributes:
        drawn: bytes that it has written to its terminal so far.
    """

    def __init__(self, arguments: Sequence[str], directory: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from pgczmq.cli.main import main; main()", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env=os.environ | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        os.close(theirs)
        self._what = f"pgc {arguments[0]}"
        self._said = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.drawn = 0

    def __enter__(self) -> Self:
        """Begin to read what it draws."""
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, kindly first, and whatever it has started."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        os.close(self._ours)

    def check(self) -> None:
        """Raises PgcError: it has ended."""
        code = self._process.poll()
        if code is not None:
            said = self._said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise PgcError(f"{self._what} ended with exit code {code}: {said[-1]}")

    @property
    def processor(self) -> float:
        """Processor seconds of its first process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # nobody writes to it any more
            while True:
                more = os.read(self._ours, 2**16)
                self.drawn += len(more)
                self._said = (self._said + more)[-SAID_BYTES:]
