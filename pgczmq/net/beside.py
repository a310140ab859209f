"""Where computing is done: on one thread beside the event loop, or right here when that is quicker than going there.

Handing a call to a thread and its result back costs about 0.1 ms of processor time; a small model takes less. Whoever
shares a core is put off now and then: that makes no call a long one. Whatever waits does so on the thread.
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

SHORT_SECONDS = 0.0005
SHORT_BEFORE = 8
"""A kind of call that was short so often in a row is made right here, until one of them is not."""

_THIS_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)

Result = TypeVar("Result")
Failed = Callable[[BaseException], None]


def compute_thread() -> ThreadPoolExecutor:
    """One thread to compute on."""
    return ThreadPoolExecutor(1, thread_name_prefix="compute")


class Beside:
    """One call at a time, in the order in which they are asked for.

    Args:
        failed: told of an error in a call, on the event loop.
        thread: where calls are made, behind those that others have asked for there; one of its own by default.
    """

    def __init__(self, failed: Failed, thread: ThreadPoolExecutor | None = None) -> None:
        self._failed = failed
        self._closed = False
        self._thread = compute_thread() if thread is None else thread
        self._there = 0  # calls on the thread that are not finished
        self._short: dict[str, int] = {}  # how often in a row, by kind

    def call(self, kind: str, then: Callable[[Result], None], function: Callable[..., Result], *arguments: Any) -> None:
        """Call the function, and then ``then`` with its result, on the event loop.

        Args:
            kind: names calls that take about as long; "" for one that may take any time.
        """
        self._call(kind, then, self._failed, function, *arguments)

    def start(self, kind: str, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """The same, with a future of the result, or of the error, in place of ``then`` and ``failed``."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def then(result: Result) -> None:
            if not future.done():
                future.set_result(result)

        def failed(error: BaseException) -> None:
            if not future.done():
                future.set_exception(error)

        self._call(kind, then, failed, function, *arguments)
        return future

    def _call(
        self,
        kind: str,
        then: Callable[[Result], None],
        failed: Failed,
        function: Callable[..., Result],
        *arguments: Any,
    ) -> None:
        if self._closed:
            return
        if self._there or not kind or self._short.get(kind, 0) < SHORT_BEFORE:
            self._there += 1
            future = self._thread.submit(self._timed, kind, function, *arguments)
            loop = asyncio.get_running_loop()
            future.add_done_callback(lambda done: _hand_back(loop, self._back, done, then, failed))
            return
        try:
            result = self._timed(kind, function, *arguments)
        except Exception as error:
            failed(error)
        else:
            then(result)

    def close(self) -> None:
        """No further call; one that has begun is not waited for, and nobody hears of it."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def hand_on(self, last: Callable[[], None]) -> None:
        """No further call from here: the thread is for somebody else, once ``last`` was called there.

        A call that has begun is waited for there, and nobody hears of it.
        """
        self._closed = True
        self._thread.submit(last)

    def _timed(self, kind: str, function: Callable[..., Result], *arguments: Any) -> Result:
        before, begun = _used(), time.perf_counter()
        result = function(*arguments)
        is_short = time.perf_counter() - begun < SHORT_SECONDS or _was_put_off(before, _used())
        self._short[kind] = self._short.get(kind, 0) + 1 if is_short else 0
        return result

    def _back(self, done: Future[Result], then: Callable[[Result], None], failed: Failed) -> None:
        self._there -= 1
        error = done.exception()
        if self._closed:
            return
        if error is not None:
            failed(error)
            return
        try:
            then(done.result())
        except Exception as unexpected:  # else it would end in the event loop's log, and nothing would go on
            self._failed(unexpected)


def _used() -> resource.struct_rusage | None:
    """What this thread has used, where the system tells."""
    return None if _THIS_THREAD is None else resource.getrusage(_THIS_THREAD)


def _was_put_off(before: resource.struct_rusage | None, after: resource.struct_rusage | None) -> bool:
    """Whether a call was long only because others had the core: it worked for a short time, and waited for nothing."""
    if before is None or after is None:
        return False
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return worked < SHORT_SECONDS and after.ru_nvcsw == before.ru_nvcsw


def _hand_back(loop: asyncio.AbstractEventLoop, back: Callable[..., None], done: Future[Any], *whom: Any) -> None:
    """On the thread; nobody waits any more when the loop is closed."""
    if not done.cancelled():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(back, done, *whom)
