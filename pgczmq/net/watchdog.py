"""Notices when something blocks the event loop, and tells it from the scheduler's doing."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable

STALL_SECONDS = 0.1
_INTERVAL = 0.25
"""A shorter stall may be missed; a dozen processes that look five times as often cost two percent of two cores."""


class _RunQueue:
    """Tells how long this thread has been ready to run without a core; read many times a second."""

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):  # not every system tells
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def seconds(self) -> float:
        """Since the thread began; 0 where the system does not tell."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        return 0.0

    def close(self) -> None:
        """Nobody asks any more."""
        with contextlib.suppress(OSError):
            os.close(self._file)


async def watch(report: Callable[[float], None]) -> None:
    """Report every stall of the running loop over STALL_SECONDS, without the time spent waiting for a core.

    A process that was stopped or a machine that slept shows up too; that is what happened to the loop.
    """
    with contextlib.closing(_RunQueue()) as queue:
        waited = queue.seconds()
        while True:
            before = time.monotonic()
            await asyncio.sleep(_INTERVAL)
            stalled = time.monotonic() - before - _INTERVAL
            now_waited = queue.seconds()
            if stalled - (now_waited - waited) > STALL_SECONDS:
                report(stalled - (now_waited - waited))
            waited = now_waited
