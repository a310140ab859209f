"""Notices when something blocks the event loop, and tells it from the scheduler's doing."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

STALL_SECONDS = 0.1
_INTERVAL = 0.05


def _run_queue_seconds() -> float:
    """Time this thread has been ready to run without a core, seconds; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
        return int(text.split()[1]) / 1e9
    return 0.0


async def watch(report: Callable[[float], None]) -> None:
    """Report every stall of the running loop over STALL_SECONDS, without the time spent waiting for a core.

    A process that was stopped or a machine that slept shows up too; that is what happened to the loop.
    """
    waited = _run_queue_seconds()
    while True:
        before = time.monotonic()
        await asyncio.sleep(_INTERVAL)
        stalled = time.monotonic() - before - _INTERVAL
        now_waited = _run_queue_seconds()
        if stalled - (now_waited - waited) > STALL_SECONDS:
            report(stalled - (now_waited - waited))
        waited = now_waited
