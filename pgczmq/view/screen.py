"""Where a run is shown while it goes on: a live dashboard, plain lines, or nothing.

Whoever produces records must never wait for a terminal, nor fall over because of one: a sink only puts things
aside, and a thread of the view's own draws or prints them.
"""

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, TextIO, cast

from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from pgczmq.runlog import Record, Sink
from pgczmq.view.dashboard import render
from pgczmq.view.plain import PlainLog
from pgczmq.view.state import RunView

FRAMES_PER_SECOND = 4
PENDING_AT_MOST = 4096
PATIENCE_SECONDS = 1.0  # a terminal that takes nothing must not keep a finished run from ending

Clock = Callable[[], float]


def open_view(mode: str, console: Console, *, clock: Clock = time.monotonic) -> AbstractContextManager[Sink]:
    """A place for records, for as long as the context lasts; the last frame stays on the screen.

    Args:
        mode: "live", "plain", "none", or "auto": live on a terminal that can show it, plain elsewhere.
        console: where to; its output is the caller's choice.
        clock: seconds, for what passes between two records.
    """
    if mode == "auto":
        mode = "live" if can_draw(console) else "plain"
    match mode:
        case "live":
            return _live(console, clock)
        case "plain":
            return _plain(console)
        case "none":
            return _none()
        case _:
            raise ValueError(f"there is no view {mode!r}")


def can_draw(console: Console) -> bool:
    """Whether this is a terminal that moves its cursor and knows the characters of the dashboard."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")


@contextmanager
def _none() -> Iterator[Sink]:
    yield lambda record: None


# ---------------------------------------------------------------- live


class LiveFeed:
    """The two sides of a live view: records come in on any thread, frames go out on the one that draws.

    Args:
        console: whose size a frame has to fit.
        clock: seconds.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._pending: deque[tuple[float, Record]] = deque()  # appended to and taken from without a lock
        self._lock = threading.Lock()  # guards the view, never held while anything is written
        self._view = RunView()
        self._reached_at = clock()  # by the clock, when the newest time in a record was learnt

    def put(self, record: Record) -> None:
        """Put a record aside; takes some in only when nobody has drawn for very long."""
        self._pending.append((self._clock(), record))
        if len(self._pending) >= PENDING_AT_MOST and self._lock.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._lock.release()

    def frame(self) -> RenderableType:
        """The run as it is now. A view that cannot be drawn says so instead of ending the run."""
        width, height = self._console.size
        with self._lock:
            try:
                self._take_in()
                now = self._view.latest_at + max(0.0, self._clock() - self._reached_at)
                # One line stays free, for the cursor and what the terminal writes there (^C).
                return render(self._view, now=now, width=width, height=height - 1)
            except Exception as error:
                return Text(f"this view has a defect: {error!r}", style="red", no_wrap=True, overflow="ellipsis")

    def _take_in(self) -> None:
        while self._pending:
            learnt_at, record = self._pending.popleft()
            before = self._view.latest_at
            with suppress(ValueError, TypeError):  # a record that contradicts itself is left out
                self._view.add(record)
            if self._view.latest_at > before:
                self._reached_at = learnt_at


@contextmanager
def _live(console: Console, clock: Clock) -> Iterator[Sink]:
    feed = LiveFeed(console, clock)
    live = Live(
        console=console,
        get_renderable=feed.frame,
        refresh_per_second=FRAMES_PER_SECOND,
        vertical_overflow="crop",
    )
    live.start(refresh=True)
    try:
        with _logs_above(console):
            yield feed.put
    finally:
        with suppress(OSError, ValueError):  # the terminal is gone; that is not the run's failure
            live.stop()


@contextmanager
def _logs_above(console: Console) -> Iterator[None]:
    """Send log handlers that write to this terminal through the console, or they would tear the frame.

    ``Live`` replaces sys.stdout and sys.stderr, but handlers keep the stream that they were made with.
    """
    proxies = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, FileProxy)]
    originals = [proxy.rich_proxied_file for proxy in proxies]
    moved: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in originals:
            moved.append((handler, handler.stream))
            handler.setStream(_proxy(console, handler.stream))
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


def _proxy(console: Console, stream: IO[str]) -> TextIO:
    return cast(TextIO, FileProxy(console, stream))


# ---------------------------------------------------------------- plain


@contextmanager
def _plain(console: Console) -> Iterator[Sink]:
    log = PlainLog()
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    writer = threading.Thread(target=_write, args=(console, waiting), name="view", daemon=True)
    writer.start()

    def put(record: Record) -> None:
        with suppress(ValueError, TypeError):
            for line in log.feed(record):
                waiting.put(line)

    try:
        yield put
    finally:
        waiting.put(None)
        writer.join(PATIENCE_SECONDS)


def _write(console: Console, waiting: "queue.SimpleQueue[str | None]") -> None:
    """Print lines until there is a None; once the reader is gone, throw them away."""
    while (line := waiting.get()) is not None:
        try:
            console.out(line, highlight=False)
        except (OSError, ValueError):
            break
