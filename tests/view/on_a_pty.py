"""A process on a terminal of its own, and what it writes there."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

PATIENCE = 30.0  # only guards against a hang
VIEWED = Path(__file__).parent / "viewed.py"
Settings = list[int | list[bytes | int]]


class OnAPty:
    """``viewed.py`` on a new terminal, which is its controlling one; use as a context manager.

    Args:
        commands: for it, each carried out after a ``go``.
        size: cells and lines.
        environ: besides this process's.
        stdin: something else than the terminal.
    """

    def __init__(
        self,
        *commands: str,
        size: tuple[int, int] = (80, 24),
        environ: dict[str, str] | None = None,
        stdin: int | None = None,
    ) -> None:
        self.terminal, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(*size)
        told, self._tell = os.pipe()
        kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, str(VIEWED), str(told), *commands],
            stdin=self.slave if stdin is None else stdin,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
            pass_fds=[told],
            env=kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | (environ or {}),
        )
        os.close(told)
        self.written = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in (self.terminal, self.slave, self._tell):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.terminal, keys)

    def go(self) -> None:
        """The sign for the next command, or for the end."""
        os.write(self._tell, b"x")

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self.slave)
        os.close(self.terminal)

    @property
    def settings(self) -> Settings:
        """Of the terminal, now."""
        return termios.tcgetattr(self.slave)

    @property
    def is_taken(self) -> bool:
        """Whether keys are read as they are pressed."""
        flags = self.settings[3]
        assert isinstance(flags, int)
        return not flags & termios.ICANON

    def until(self, condition: Callable[[], object]) -> None:
        """Read what is written until the condition holds."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < limit, self.text[-2000:]
            if select.select([self.terminal], [], [], 0.02)[0]:
                self.written += os.read(self.terminal, 65536).decode(errors="replace")

    @property
    def text(self) -> str:
        """What was written, without what moves the cursor and colours things."""
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", self.written)

    def until_written(self, text: str) -> None:
        """Read until this was written."""
        self.until(lambda: text in self.text)

    def forget(self) -> None:
        """What was written so far is of no interest any more."""
        self.written = ""

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        self.until(lambda: self.process.poll() is not None)
        while select.select([self.terminal], [], [], 0.05)[0]:
            self.written += os.read(self.terminal, 65536).decode(errors="replace")
        return self.process.returncode
