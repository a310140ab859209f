"""A run of this machine as it went, from its records."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pgczmq.app.tails import Files, about, gather
from pgczmq.errors import ConfigError
from pgczmq.gather.gathering import Gathering
from pgczmq.picture import Seen
from pgczmq.runlog import Record, read_result

RECORDS_A_LOOK = 20_000
"""Played back at most between two looks: what one takes must not be felt."""
LONGEST_LOOK_SECONDS = 0.5
"""More does not pass in a playback between two looks: it stands still while nobody looks."""


class Playback:
    """A recorded run as it went, from its beginning; ``seen`` is a ``picture.Source``.

    Args:
        speed: so many times as fast.
        clock: seconds.

    Raises:
        ConfigError: it is no run directory.
    """

    failure: Exception | None = None

    def __init__(self, directory: Path, speed: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._speed = speed
        self._clock = clock
        self._looked_at = clock()
        self._now = 0.0
        self._gathering = Gathering()
        self._gathering.add(about(directory))
        self._records = Files(directory, None).news()
        self._next: tuple[float, Record] | None = next(self._records, None)
        self._over = False
        self.news = threading.Event()
        self.news.set()

    def __enter__(self) -> Self:
        """It begins with the first look."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to close but files, which close themselves."""

    def seen(self) -> Seen:
        """The run as it was then; a machine that cannot read so fast plays it more slowly."""
        at = self._clock()
        passed, self._looked_at = min(LONGEST_LOOK_SECONDS, at - self._looked_at), at
        self._now += passed * self._speed
        for _ in range(RECORDS_A_LOOK):
            if self._next is None or self._next[0] > self._now:
                break
            gather(self._gathering, self._next[1])
            self._next = next(self._records, None)
        else:
            self._now = min(self._now, self._gathering.at)
        return self._shown()

    def _shown(self) -> Seen:
        if self._next is None:
            self._end()
            return Seen(self._gathering.picture, self._gathering.at)
        speed = "" if self._speed == 1 else f", {self._speed:g} times as fast"
        return Seen(self._gathering.picture, self._now, f"as recorded{speed}")

    def _end(self) -> None:
        if not self._over:
            self._over = True
            with suppress(ConfigError):  # it was killed
                gather(self._gathering, read_result(self._directory))
