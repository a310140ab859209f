"""Where a run is shown while it goes on: a dashboard that fills the terminal, plain lines, or nothing.

Whoever produces records must never wait for a terminal, nor fall over because of one: a sink only puts things
aside, and a thread of the view's own draws or prints them. What others print or log meanwhile is put aside too, shown
among the events, and printed when the terminal is its old self again.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO, cast

from rich.console import Console

from pgczmq.gather.intake import Intake
from pgczmq.picture import Picture, Seen, Source
from pgczmq.runlog import EventRecord, Record, Sink
from pgczmq.view import words
from pgczmq.view.live import plain
from pgczmq.view.live.aside import Aside, logs_aside, prints_aside
from pgczmq.view.live.dashboard import render
from pgczmq.view.live.keys import Look, pressed
from pgczmq.view.live.lines import Frame, text
from pgczmq.view.live.terminal import Terminal, TerminalGoneError, given_back_when_ended, open_terminal
from pgczmq.view.live.workers import in_order

FRAMES_PER_SECOND = 4
BUSY_SHARE = 0.02  # of a core, at most: the next frame waits so long that the last one was no more
PLAIN_SECONDS = 1.0  # between two looks at a run that is told in lines
STOPPED_SECONDS = 1.0  # a loop that is so late was stopped, and the terminal may be another meanwhile
PATIENCE_SECONDS = 1.0  # a terminal that takes nothing must not keep a finished run from ending
LAST_FRAME_HIGHEST = 24

Clock = Callable[[], float]


def open_view(mode: str, console: Console, *, clock: Clock = time.monotonic) -> AbstractContextManager[Sink]:
    """A place for records, for as long as the context lasts; the last frame stays behind on the terminal.

    Args:
        mode: "live", "plain", "none", or "auto"; "auto" and "live" draw on a terminal that can show it, and are plain
            elsewhere.
        console: where to.
        clock: seconds, for what passes between two records.
    """
    match mode:
        case "auto" | "live":
            terminal = terminal_of(console)
            return _plain(console) if terminal is None else _live(console, terminal, clock)
        case "plain":
            return _plain(console)
        case "none":
            return _none()
        case _:
            raise ValueError(f"there is no view {mode!r}")


def show(source: Source, console: Console) -> None:
    """Draw what a source shows, in this thread, until the person leaves or the terminal is gone.

    Args:
        source: asked whenever a frame is due, but not while the view is paused.
        console: a terminal, as ``can_draw`` says.

    Raises:
        KeyboardInterrupt: Ctrl+C; the terminal is its old self again.
    """
    terminal = terminal_of(console)
    if terminal is None:
        return
    with logs_aside(console) as aside, prints_aside(aside), given_back_when_ended(terminal):
        Screen(source, terminal, console, aside, leaves=True).run()


def can_draw(console: Console) -> bool:
    """Whether this is a terminal that moves its cursor and knows the characters of the dashboard."""
    terminal = terminal_of(console)
    if terminal is None:
        return False
    terminal.close()
    return True


def terminal_of(console: Console) -> Terminal | None:
    """The terminal to draw on; None where there is none that can show a dashboard."""
    if console.is_dumb_terminal or not console.encoding.lower().startswith("utf"):
        return None
    colour = console.color_system is not None and not console.no_color
    return open_terminal(cast(TextIO, console.file), colour=colour)


@contextmanager
def _none() -> Iterator[Sink]:
    yield lambda record: None


# ---------------------------------------------------------------- live


@contextmanager
def _live(console: Console, terminal: Terminal, clock: Clock) -> Iterator[Sink]:
    intake = Intake(clock)
    with logs_aside(console) as aside:
        screen = Screen(intake.seen, terminal, console, aside, leaves=False)
        thread = threading.Thread(target=screen.run, name="view", daemon=True)
        with given_back_when_ended(terminal):
            thread.start()
            try:
                with prints_aside(aside):
                    yield intake.put
            finally:
                screen.stop()
                thread.join(PATIENCE_SECONDS)


class Screen:
    """Draws on a terminal while it is there for it, and tells in plain lines otherwise; hears of keys.

    Args:
        source: of what is drawn.
        terminal: to draw on; closed at the end.
        console: the same, for lines.
        aside: what others say meanwhile.
        leaves: whether leaving the view ends ``run``; it goes on with plain lines otherwise.
    """

    def __init__(self, source: Source, terminal: Terminal, console: Console, aside: Aside, *, leaves: bool) -> None:
        self._source = source
        self._terminal = terminal
        self._console = console
        self._aside = aside
        self._leaves = leaves
        self._look = Look()
        self._seen: Seen | None = None  # what was drawn last
        self._told: Seen | None = None  # what was told last in lines
        self._stopping = False
        self._ending = threading.Lock()
        self._waking, self._wake = os.pipe()  # opened early: select() takes no descriptor above 1023
        self._due = 0.0

    def stop(self) -> None:
        """End ``run`` soon; from any thread."""
        with self._ending:
            if not self._stopping:
                self._stopping = True
                os.write(self._wake, b"x")

    def run(self) -> None:
        """Until ``stop``, or until the person leaves."""
        try:
            while not self._stopping and not (self._look.left and self._leaves):
                self._turn()
            self._end()
        except TerminalGoneError:
            self._terminal.taken = False  # there is nobody left to give it back to, and nobody to tell
        finally:
            self._terminal.close()
            with self._ending:
                self._stopping = True
                os.close(self._waking)
                os.close(self._wake)

    def _turn(self) -> None:
        """One look at the run, at the terminal and at the keys."""
        drawing = self._terminal.is_ours and not self._look.left
        if drawing:
            self._draw_when_due()
        else:
            self._tell_when_due()
        begun = time.monotonic()
        wait = min(PLAIN_SECONDS, max(0.0, self._due - begun))
        if drawing and self._terminal.is_behind:  # nothing is drawn until it has taken what there is
            wait = 1 / FRAMES_PER_SECOND
        hears = drawing and self._terminal.has_keys
        reading = [self._waking, *([self._terminal.descriptor] if hears else [])]
        behind = [self._terminal.descriptor] if drawing and self._terminal.is_behind else []
        ready, takes, _ = select.select(reading, behind, [], wait)
        if time.monotonic() - begun > wait + STOPPED_SECONDS and drawing and self._terminal.is_ours:
            self._terminal.take()
        if takes:
            self._terminal.flush()
        if self._terminal.descriptor in ready and self._terminal.is_ours:
            self._hear()

    # ------------------------------------------------------------ drawing

    def _draw_when_due(self) -> None:
        if not self._terminal.taken:
            self._terminal.take()
        elif self._terminal.is_behind or time.monotonic() < self._due:
            return
        begun = time.thread_time()
        self._terminal.draw(self._frame())
        cost = time.thread_time() - begun
        self._due = time.monotonic() + max(1 / FRAMES_PER_SECOND, cost / BUSY_SHARE)

    def _frame(self) -> Frame:
        """The run as it is now. A view that cannot be drawn says so instead of ending the run."""
        width, height = self._terminal.size
        try:
            if self._seen is None or not self._look.paused:
                self._seen = self._source()
            look = self._look if self._terminal.has_keys else None
            return _frame_of(self._seen, width, height, look, self._aside.events(self._seen.now))
        except Exception as error:
            return Frame((text("this view has a defect: ", "red").foreign(repr(error), width),))

    def _hear(self) -> None:
        for key in self._terminal.hear():
            if key == "suspend":
                self._terminal.stop_job()
            elif key == "redraw":
                self._terminal.take()
            else:
                order = [worker.worker for worker in in_order(self._picture, self._look.sort)]
                self._look = pressed(self._look, key, order)
        self._due = 0.0
        if self._look.left and not self._leaves:
            self._terminal.give_back()
            self._tell_all([self._farewell()])

    def _farewell(self) -> str:
        run = self._picture.run
        again = f"; pgc top {run.directory} shows it again" if run is not None else ""
        return words.clean(f"the view is closed, the run goes on{again}; Ctrl+C ends the run")

    @property
    def _picture(self) -> Picture:
        return Picture() if self._seen is None else self._seen.picture

    # ------------------------------------------------------------ telling

    def _tell_when_due(self) -> None:
        """In lines, as without a terminal: the person has left, or this process is in the background."""
        self._terminal.give_back()
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PLAIN_SECONDS
        seen = self._source()
        self._tell_all(plain.news(self._told or self._seen, seen))
        self._told = seen

    def _tell_all(self, lines: list[str]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                self._aside.say(line)
            self._aside.print_all()

    def _end(self) -> None:
        """Leave, print what was put aside, and what is to stay of the view."""
        was_drawn = self._terminal.taken
        self._terminal.give_back()
        if self._leaves:
            return
        if not was_drawn:
            self._tell_all(plain.news(self._told or self._seen, self._source()))
            return
        with contextlib.suppress(OSError, ValueError):
            self._aside.print_all()
            width, height = self._terminal.size
            seen = self._source()
            self._console.print(_frame_of(seen, width, min(height - 1, LAST_FRAME_HIGHEST), None, ()), end="")


def _frame_of(seen: Seen, width: int, height: int, look: Look | None, said: list[EventRecord] | tuple[()]) -> Frame:
    return render(seen.picture, now=seen.now, width=width, height=height, look=look, note=seen.note, said=said)


# ---------------------------------------------------------------- plain


@contextmanager
def _plain(console: Console) -> Iterator[Sink]:
    log = plain.PlainLog()
    with logs_aside(console) as aside:
        stopped = threading.Event()
        thread = threading.Thread(target=aside.print_until, args=(stopped,), name="view", daemon=True)

        def put(record: Record) -> None:
            with contextlib.suppress(ValueError, TypeError):
                for line in log.feed(record):
                    aside.say(line)

        thread.start()
        try:
            yield put
        finally:
            stopped.set()
            aside.news.set()
            thread.join(PATIENCE_SECONDS)
