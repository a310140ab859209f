"""Where computing is done: on one thread beside the event loop, or right here when that is quicker than going there.

Handing a call to a thread and its result back costs about 0.1 ms of processor time; a small model takes less.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

SHORT_SECONDS = 0.0002
SHORT_BEFORE, LONG_COUNTS = 8, 4
"""So many more short calls of a kind than long ones, each of which counts for several, and they are made right here."""

Result = TypeVar("Result")


class Beside:
    """One call at a time, in the order in which they are asked for.

    Args:
        failed: told of an error in a call, on the event loop.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._there = 0  # calls on the thread that are not finished
        self._short: dict[str, int] = {}  # how much more often short than long, by kind

    def call(self, kind: str, then: Callable[[Result], None], function: Callable[..., Result], *arguments: Any) -> None:
        """Call the function, and then ``then`` with its result, on the event loop.

        Args:
            kind: names calls that take about as long.
        """
        if self._there or self._short.get(kind, 0) < SHORT_BEFORE:
            self._there += 1
            future = self._thread.submit(self._timed, kind, function, *arguments)
            loop = asyncio.get_running_loop()
            future.add_done_callback(lambda done: _hand_back(loop, self._back, done, then))
            return
        try:
            result = self._timed(kind, function, *arguments)
        except Exception as error:
            self._failed(error)
        else:
            then(result)

    async def run(self, kind: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """The same, to be awaited; never returns when the function fails."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def then(value: Result) -> None:
            if not result.done():
                result.set_result(value)

        self.call(kind, then, function, *arguments)
        return await result

    def close(self) -> None:
        """No further call; one that has begun is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _timed(self, kind: str, function: Callable[..., Result], *arguments: Any) -> Result:
        begun = time.perf_counter()
        result = function(*arguments)
        change = 1 if time.perf_counter() - begun < SHORT_SECONDS else -LONG_COUNTS
        self._short[kind] = max(0, min(2 * SHORT_BEFORE, self._short.get(kind, 0) + change))
        return result

    def _back(self, done: Future[Result], then: Callable[[Result], None]) -> None:
        self._there -= 1
        error = done.exception()
        if error is not None:
            self._failed(error)
        else:
            then(done.result())


def _hand_back(
    loop: asyncio.AbstractEventLoop, back: Callable[..., None], done: Future[Result], then: Callable[[Result], None]
) -> None:
    """On the thread; nobody waits any more when the loop is closed."""
    if not done.cancelled():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(back, done, then)
