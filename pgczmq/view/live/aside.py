"""What is logged and printed while a view has the terminal: put aside, shown among the events, printed later.

A log line must not tear a frame, and whoever logs must not wait for a terminal that takes nothing.
"""

import contextlib
import io
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import TextIO, cast

from rich.console import Console

from pgczmq.picture import EVENTS
from pgczmq.runlog import EventRecord

KEPT = 2000
"""Lines that are kept for later; of more, the oldest are lost."""


class Aside:
    """A bounded list of lines and log records; taken from by one thread, added to by any.

    Args:
        console: where they go in the end.
        handlers: what log records go to in the end.
    """

    def __init__(self, console: Console, handlers: list[logging.Handler]) -> None:
        self._console = console
        self._handlers = handlers
        self._waiting: deque[str | logging.LogRecord] = deque(maxlen=KEPT)
        self._unseen: deque[EventRecord] = deque(maxlen=EVENTS)
        self._events: deque[EventRecord] = deque(maxlen=EVENTS)
        self.news = threading.Event()

    def say(self, line: str) -> None:
        """A line to print."""
        self._waiting.append(line)
        self.news.set()

    def printed(self, line: str) -> None:
        """A line that somebody else printed."""
        self._unseen.append(EventRecord(0.0, "printed", line))
        self.say(line)

    def logged(self, record: logging.LogRecord) -> None:
        """A log record; from WARNING on it is an event too."""
        if record.levelno >= logging.WARNING:
            kind = "error" if record.levelno >= logging.ERROR else "warning"
            with contextlib.suppress(Exception):  # its arguments are the caller's
                self._unseen.append(EventRecord(0.0, kind, record.getMessage()))
        self._waiting.append(record)
        self.news.set()

    def events(self, now: float) -> list[EventRecord]:
        """The newest of what was said, each with the time at which this was first asked after it."""
        while self._unseen:
            said = self._unseen.popleft()
            self._events.append(EventRecord(now, said.kind, said.text))
        return list(self._events)

    def print_all(self) -> None:
        """Print what was put aside, in order.

        Raises:
            OSError, ValueError: nobody reads it any more.
        """
        while self._waiting:
            said = self._waiting.popleft()
            if isinstance(said, str):
                print(said, file=self._console.file, flush=True)  # rich would end the process at a broken pipe
            else:
                for handler in self._handlers:
                    if said.levelno >= handler.level:
                        handler.handle(said)

    def print_until(self, stopped: threading.Event) -> None:
        """Print whatever comes, as it comes; once nobody reads it any more, throw it away."""
        while True:
            self.news.wait()
            self.news.clear()
            last = stopped.is_set()
            try:
                self.print_all()
            except (OSError, ValueError):
                return
            if last:
                return


class _Handler(logging.Handler):
    def __init__(self, aside: Aside) -> None:
        super().__init__()
        self._aside = aside

    def emit(self, record: logging.LogRecord) -> None:
        self._aside.logged(record)


class _Stream(io.TextIOBase):
    """Stands in for stdout or stderr: whole lines are put aside."""

    def __init__(self, aside: Aside, original: TextIO) -> None:
        self._aside = aside
        self._original = original
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._aside.printed(line)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._original.fileno()

    def finish(self) -> None:
        """What has no end of line yet."""
        if self._begun:
            self._aside.printed(self._begun)
            self._begun = ""


@contextlib.contextmanager
def logs_aside(console: Console) -> Iterator[Aside]:
    """Put aside what the root logger's handlers would write."""
    logger = logging.getLogger()
    handlers = list(logger.handlers)
    console.file = console.file  # rich asks for sys.stderr each time otherwise, which may be another meanwhile
    aside = Aside(console, handlers)
    logger.handlers = [_Handler(aside)] if handlers else []
    try:
        yield aside
    finally:
        logger.handlers = handlers


@contextlib.contextmanager
def prints_aside(aside: Aside) -> Iterator[None]:
    """Put aside what is printed on stdout and stderr, where those are terminals."""
    originals = sys.stdout, sys.stderr
    out, err = (_Stream(aside, stream) if stream.isatty() else stream for stream in originals)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        if sys.stdout is out:
            sys.stdout = originals[0]
        if sys.stderr is err:
            sys.stderr = originals[1]
        for stream in (out, err):
            if isinstance(stream, _Stream):
                stream.finish()
