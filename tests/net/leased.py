"""What tests of shared memory have in common: payloads that show when they are torn, processes, and what they hold."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pgczmq.net.memory import PAGE

HERE = Path(__file__).parent
WORD = 8  # bytes
_OF_STEP, _OF_PLACE = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F  # odd, so that no two steps or places are alike

Part = tuple[int, int]
"""Which of how many parts of a payload."""
WHOLE, FIRST_HALF, SECOND_HALF = (0, 1), (0, 2), (1, 2)


def pattern(step: int, words: slice) -> np.ndarray:
    """Eight bytes for every place, others in every step: a check of all that was read, not of a sum of it."""
    places = np.arange(words.start, words.stop, dtype=np.uint64)
    return places * np.uint64(_OF_PLACE) + np.uint64((step + 1) * _OF_STEP % 2**64)


def fill(payload: np.ndarray, step: int, part: Part = WHOLE) -> None:
    """Write a step's pattern."""
    words = _words(payload, part)
    payload.view(np.uint64)[words] = pattern(step, words)


def shows(payload: np.ndarray, step: int, part: Part = WHOLE) -> bool:
    """Whether every word is that of the step."""
    words = _words(payload, part)
    return bool(np.array_equal(payload.view(np.uint64)[words], pattern(step, words)))


def _words(payload: np.ndarray, part: Part) -> slice:
    which, parts = part
    count = len(payload) // WORD // parts
    return slice(which * count, (which + 1) * count)


# ---------------------------------------------------------------- what processes hold


def memory_files(process: int | str = "self") -> dict[int, int]:
    """Memory files of this program that a process has open: bytes in use by inode."""
    found = {}
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            if str(entry.readlink()).startswith("/memfd:pgczmq"):
                about = entry.stat()
                found[about.st_ino] = 512 * about.st_blocks
        except OSError:  # closed meanwhile
            continue
    return found


def held_anywhere() -> set[int]:
    """Inodes of memory files of this program that any process has open."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found |= memory_files(entry.name).keys()
            except OSError:  # ended meanwhile, or of somebody else
                continue
    return found


def rounded(nbytes: int) -> int:
    """Bytes of a block with a payload of so many."""
    return PAGE + -(-nbytes // PAGE) * PAGE


def waits_for_lock(process: int) -> bool:
    """Whether a process waits for a file lock just now."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {process} " in line for line in lines)


# ---------------------------------------------------------------- processes


class Child:
    """A Python file of this folder as a process of its own; killed at the end of the block."""

    def __init__(self, file: str, *arguments: object, before: tuple[str, ...] = ()) -> None:
        command = [*before, sys.executable, str(HERE / file), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, *what: object) -> None:
        """Say one command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """One answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process is gone: {self.process.poll()}"
        return json.loads(line)

    def ask(self, *what: object) -> Any:
        """A command and its answer."""
        self.tell(*what)
        return self.hear()

    def stop(self) -> None:
        """As Ctrl+Z does; returns when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        stopped, status = os.waitpid(self.pid, os.WUNTRACED)
        assert stopped == self.pid and os.WIFSTOPPED(status)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """At once, whatever it does; returns when it is gone."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
