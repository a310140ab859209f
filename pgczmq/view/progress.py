"""How far a long command is: a bar with the time left on a terminal, else a line now and then."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pgczmq.view import words

SECONDS_BETWEEN_LINES = 10.0


class Steps:
    """Counts finished steps of a known number; use as a context manager.

    Args:
        console: where it is shown.
        what: of what there are so many.
        total: how many.
        clock: seconds.
    """

    def __init__(self, console: Console, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._clock = clock
        self._done = 0
        self._begun_at = self._said_at = clock()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(what, total=total, last="")

    def __enter__(self) -> "Steps":
        """Begin to show it."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the bar."""
        self._progress.stop()

    def advance(self, last: str) -> None:
        """One more is finished; ``last`` says which."""
        self._done += 1
        self._progress.update(self._task, advance=1, last=last)
        now = self._clock()
        due = now - self._said_at >= SECONDS_BETWEEN_LINES or self._done == self._total
        if not self._console.is_terminal and due:
            self._said_at = now
            self._console.print(self._line(now, last), markup=False, highlight=False, soft_wrap=True)

    def _line(self, now: float, last: str) -> str:
        left = (now - self._begun_at) / self._done * (self._total - self._done)
        rest = f"{words.duration(left)} left, last: {last}" if left else "done"
        return f"{self._done} of {self._total} {self._what}, {rest}"
