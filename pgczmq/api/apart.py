"""Work in a fresh interpreter of its own, followed from this one: nothing of it stays behind here.

A run wants a main thread for its signals, an event loop, large blocks of memory, a helper that its workers are forked
from, and the newest version of the user's files. A notebook's process has none of these to give away: its loop runs
already, and it has imported the user's module long ago. So the work is done in a process and a session of its own
(``child.py``); what it has to say comes back over a pipe.
"""

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from types import FrameType, TracebackType
from typing import IO, Any

from pgczmq.errors import ConfigError, PgcError

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from pgczmq.api.child import main; main(int(sys.argv[1]))"
)
FAREWELL_SECONDS = 3.0
"""How long a process that has been told to stop is waited for: a run is gone within two."""
AFTERMATH_SECONDS = 0.5
LAST_WORDS = frozenset({"answer", "error", "interrupted", "defect", "ended"})
"""Kinds of messages after which there is nothing to stop any more."""


def refuse_inside(call: str) -> None:
    """See to it that a program whose task a run imports does not begin another run.

    Raises:
        ConfigError: this process works for a run.
    """
    processes = sys.modules.get("pgczmq.app.processes")
    if processes is not None and processes.of_a_run:
        raise ConfigError(
            f"a run imports the file of its task, and this one begins a run by that: pgczmq.{call} at its top level. "
            'Put what begins it under if __name__ == "__main__":.'
        )


def apart(work: str, arguments: dict[str, Any], see: Callable[[str, Any], None]) -> Any:
    """What comes of a piece of work in a process of its own.

    SIGINT, in the main thread, asks it to stop; a second one goes where it would have gone before, and the work is
    ended.

    Args:
        work: a key of ``child.WORK``.
        arguments: it is called with; can be pickled.
        see: takes what it tells meanwhile, a kind and what it says; must not block.

    Raises:
        PgcError: as the work raised it, or its process was killed.
        KeyboardInterrupt: it was stopped, and has nothing to show.
        RuntimeError: it has a defect.
    """
    with _Child(work, arguments) as child:
        return child.follow(see)


class _Child:
    """The process, and the threads here that listen to it; a context manager."""

    def __init__(self, work: str, arguments: dict[str, Any]) -> None:
        self._asked = self._is_followed = self._is_over = False
        self._presses = 0
        self._before: Callable[[int, FrameType | None], Any] | int | None = None  # of SIGINT; None: not heard here
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = _started(theirs.fileno())
        assert self._process.stdout is not None
        self._threads = [
            threading.Thread(target=_receive, args=(self._pipe, self._messages.put), name="apart", daemon=True),
            threading.Thread(target=_print, args=(self._process.stdout,), name="apart-output", daemon=True),
        ]
        self._job = work, arguments

    def __enter__(self) -> "_Child":
        """Tell it what to do, and hear Ctrl+C until it is over."""
        try:
            for thread in self._threads:
                thread.start()
            with contextlib.suppress(OSError):  # then it has ended, as ``follow`` will hear
                self._pipe.send(self._job)
            before = signal.getsignal(signal.SIGINT)
            if threading.current_thread() is threading.main_thread() and before not in (signal.SIG_IGN, None):
                self._before = before
                signal.signal(signal.SIGINT, self._press)
        except BaseException:  # Ctrl+C
            self._end()
            raise
        return self

    def _press(self, number: int, frame: FrameType | None) -> None:
        """Ctrl+C; a third one, while the work is being ended, says nothing new."""
        self._presses += 1
        if self._presses == 1:
            self._stop()
        elif self._presses == 2 and self._is_followed:
            if not callable(self._before):
                os._exit(128 + number)  # the system's own way
            self._before(number, frame)

    def _stop(self) -> None:
        """Ask it to stop, or, the second time, to end at once."""
        self._asked = True
        with contextlib.suppress(OSError):
            self._pipe.send("stop")

    def follow(self, see: Callable[[str, Any], None]) -> Any:
        """What comes of it; see ``apart``."""
        self._is_followed = True
        while True:
            kind, what = self._messages.get()
            self._is_over = kind in LAST_WORDS
            match kind:
                case "answer":
                    return what
                case "error":
                    raise what
                case "interrupted":
                    raise KeyboardInterrupt
                case "defect":
                    raise RuntimeError(f"this is a defect of pgczmq; please report it with what follows.\n{what}")
                case "ended":
                    raise self._untimely()
                case "log":
                    _log(*what)
                case _:
                    see(kind, what)

    def _untimely(self) -> BaseException:
        code = self._process.wait()
        if self._asked:
            return KeyboardInterrupt()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return PgcError(
            f"the process of the run has ended {how}, perhaps for lack of memory; what it said stands above. The same "
            'call with resume="auto" goes on from its last checkpoint.'
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing of it: neither process nor thread."""
        self._is_followed = False
        try:
            if not self._is_over:
                self._stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(FAREWELL_SECONDS)
        finally:
            self._end()

    def _end(self) -> None:
        _end_group(self._process.pid)
        self._process.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(FAREWELL_SECONDS)
        self._pipe.close()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _started(descriptor: int) -> subprocess.Popen[bytes]:
    """The process; it has the other end of the pipe."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT, str(descriptor), json.dumps(sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[descriptor],
        start_new_session=True,  # so that Ctrl+C is for this process to pass on
    )


def _end_group(group: int) -> None:
    """The workers of a run that has ended see that for themselves; whoever does not, in time, is killed."""
    until = time.monotonic() + AFTERMATH_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)


def _receive(pipe: Connection, put: Callable[[tuple[str, Any]], None]) -> None:
    """On a thread: take messages until the process has ended."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            put(pipe.recv())
    put(("ended", None))


def _print(output: IO[bytes]) -> None:
    """On a thread: what the process prints is printed here, where a notebook or a live view can place it."""
    with output:
        for line in output:
            with contextlib.suppress(OSError, ValueError):  # nobody can read it here either
                sys.stdout.write(line.decode(errors="replace"))


def _log(name: str, level: int, message: str) -> None:
    """Log here what was logged there."""
    logging.getLogger(name).log(level, "%s", message)
