"""Where the records of a run that is going on are put, for whoever looks at it now and then."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from pgczmq.gather.gathering import Gathering
from pgczmq.picture import Seen
from pgczmq.runlog import Record

PENDING_AT_MOST = 256
"""Taking in so many records takes a millisecond or two, which no step notices."""


class Intake:
    """Records come in on any thread and are only put aside; whoever wants a picture takes them in.

    Args:
        clock: seconds, for what passes between two records.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending: deque[tuple[float, Record]] = deque()  # appended to and taken from without a lock
        self._lock = threading.Lock()
        self._gathering = Gathering()
        self._reached_at = clock()  # by the clock, when the newest time in a record was learnt

    def put(self, record: Record) -> None:
        """Put a record aside; takes some in only when nobody has looked for very long."""
        self._pending.append((self._clock(), record))
        if len(self._pending) >= PENDING_AT_MOST and self._lock.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._lock.release()

    def seen(self) -> Seen:
        """The run as it is now."""
        with self._lock:
            self._take_in()
            picture = self._gathering.picture
            passed = 0.0 if picture.result else max(0.0, self._clock() - self._reached_at)
            return Seen(picture, picture.at + passed)

    def _take_in(self) -> None:
        while self._pending:
            learnt_at, record = self._pending.popleft()
            before = self._gathering.at
            with suppress(ValueError, TypeError):  # a record that contradicts itself is left out
                self._gathering.add(record)
            if self._gathering.at > before:
                self._reached_at = learnt_at
