"""Coroutines that run beside each other."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs a coroutine beside the others; its failure is everybody's."""


class Tasks:
    """Those of one run, or of one life.

    Args:
        failed: told of the error of one that fails.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, routine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run one."""
        task = asyncio.get_running_loop().create_task(routine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed(task.exception() or RuntimeError("unknown"))
