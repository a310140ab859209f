"""A run of this machine as it is, from its records: while they are written, or when it is over."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pgczmq.app.tails import Files, Rewritten, about, gather
from pgczmq.errors import ConfigError
from pgczmq.gather.gathering import Gathering
from pgczmq.picture import Picture, Seen
from pgczmq.rewind import is_in_use
from pgczmq.runlog import FILES, Record, read_result

LOOK_SECONDS = 0.25
NEWS_SECONDS = 10.0
"""Without a new record for so long, whoever watches is told, and the time stands still."""
DIED = "the run has died: no process works on it, and it left no result"
LATENCIES_BYTES = 8 * 2**20
"""Of latencies the last so many are enough for what is shown of them; runs of many steps have a hundred times more."""


class Following:
    """Reads a run directory on a thread of its own, from its beginning, and goes on as it is written.

    ``seen`` is a ``picture.Source``.

    Args:
        clock: seconds.

    Attributes:
        failure: why there will never be a picture; of a run directory there always is one.
        news: set once all that was there has been read.

    Raises:
        ConfigError: it is no run directory.
    """

    failure: Exception | None = None

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._about = about(directory)
        self._lock = threading.Lock()  # of the gathering
        self._begin()
        self._learnt_at = clock() - _age(directory)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self.news = threading.Event()

    def __enter__(self) -> Self:
        """Begin to read."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read no more."""
        self._closed.set()
        self._thread.join()

    def seen(self) -> Seen:
        """The run as it is; nothing but its name while what is there is still being read."""
        if not self.news.is_set():
            return Seen(Picture(run=self._about), 0.0, f"reading {self._directory}: {100 * self._files.read:.0f} %")
        with self._lock:
            picture = self._gathering.picture
        if picture.result is not None:
            return Seen(picture, picture.at)
        if self._died:
            return Seen(picture, picture.at, DIED, died=True)
        passed = self._quiet()
        note = f"nothing new in {self._directory} for {_words(passed)}" if passed > NEWS_SECONDS else ""
        return Seen(picture, picture.at + min(passed, NEWS_SECONDS), note)

    def _quiet(self) -> float:
        """Seconds since anything was recorded."""
        return max(0.0, self._clock() - self._learnt_at)

    def look(self) -> None:
        """Take in whatever is new; from one thread only."""
        while not self._closed.is_set():
            try:
                self._take()
                self.news.set()
                return
            except Rewritten:
                self._begin()

    def _follow(self) -> None:
        while not self._closed.is_set():
            self.look()
            self._closed.wait(LOOK_SECONDS)

    def _begin(self) -> None:
        with suppress(ConfigError):  # a run that is gone on with may have another number of steps
            self._about = about(self._directory)
        with self._lock:
            self._gathering = Gathering()
            self._gathering.add(self._about)
        self._files = Files(self._directory, LATENCIES_BYTES)
        self._over = self._died = False

    def _take(self) -> None:
        result = self._directory / "result.json"
        ended = result.exists()  # looked at first: then all that is recorded of the run is there
        if self._over and not ended:
            raise Rewritten  # it is gone on with
        for _, record in self._files.news():
            self._add(record)
            if self.news.is_set():
                self._learnt_at = self._clock()
            if self._closed.is_set():
                return
        if ended and not self._over:
            self._over = True
            with suppress(ConfigError):
                self._add(read_result(result))
        self._died = self._quiet() > NEWS_SECONDS and not is_in_use(self._directory)

    def _add(self, record: Record) -> None:
        with self._lock:
            gather(self._gathering, record)


def _age(directory: Path) -> float:
    """Seconds since anything was recorded there."""
    times = [path.stat().st_mtime for path in (directory / name for name in FILES.values()) if path.exists()]
    return max(0.0, time.time() - max(times)) if times else 0.0


def _words(seconds: float) -> str:
    """A long time in the unit that fits."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
