"""Watching a run from elsewhere: the newest picture that its master sent, and what there is to say about it.

    looking -> pictures -> no news (the master is gone, or cannot be reached) -> pictures, of this run or of another one
                  |
                  +-> the last one, with the run's result

A master takes no notice of it, and nothing that a peer sends ends it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import zmq

from pgczmq.errors import MasterUnreachable, WireError
from pgczmq.net import wire
from pgczmq.net.auth import PLAIN, Handshakes, Security
from pgczmq.net.limits import words
from pgczmq.net.ports import Ports
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.worker import resolve
from pgczmq.picture import Picture, Seen

NEWS_SECONDS = 3.0
"""A master that lives and is reached sends a picture every second at least."""
AGAIN_SECONDS = 10.0
"""After so long without a picture the master is looked for anew."""
CLOSE_SECONDS = 1.0


class Viewer:
    """Keeps looking as long as it is open, on a thread of its own; ``seen`` is a ``picture.Source``.

    Args:
        host, port: the master's control address.
        security: how it connects.
        clock: seconds.

    Attributes:
        failure: why there will never be a picture.
        news: set once there is a picture or a failure.
    """

    def __init__(
        self, host: str, port: int, security: Security = PLAIN, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._port = Ports.from_first(port).metrics
        self._security = security
        self._clock = clock
        self._where = endpoint(host, port)
        self._newest: tuple[float, wire.Metrics] | None = None  # by the clock, when it came
        self._foreign = ""
        self._began_at = clock()
        self._closed = asyncio.Event()
        self.failure: Exception | None = None
        self.news = threading.Event()

    def __enter__(self) -> Self:
        """Begin to look."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="viewer", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more; a name server that does not answer keeps nobody waiting for long."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(CLOSE_SECONDS)

    def seen(self) -> Seen:
        """The newest picture; its time goes on as long as news are expected."""
        newest = self._newest
        if newest is None:
            return Seen(Picture(), 0.0, self._why_nothing(self._clock() - self._began_at))
        came_at, metrics = newest
        age = max(0.0, self._clock() - came_at)
        if metrics.picture.result is not None:
            return Seen(metrics.picture, metrics.now)
        note = self._why_nothing(age) if age > NEWS_SECONDS else ""
        return Seen(metrics.picture, metrics.now + min(age, NEWS_SECONDS), note)

    def _why_nothing(self, seconds: float) -> str:
        if self.failure is not None:
            return str(self.failure)
        if self._foreign:
            return f"what comes from {self._where} is no picture: {self._foreign}"
        return f"no news from {self._where} for {seconds:.0f} s; looking for it"

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._look())

    async def _look(self) -> None:
        while self.failure is None and not self._closed.is_set():
            address = await self._address()
            with Sockets(security=self._security) as sockets:
                line = sockets.viewer(endpoint(address, self._port))
                line.listen(self._take, self._failed)
                handshakes = Handshakes(address, self._port, self._security, who="this viewer")
                await self._first_of(sockets.watch(line, handshakes), self._silence(), self._until_closed())

    async def _first_of(self, *routines: Coroutine[Any, Any, None]) -> None:
        """Run them until one ends, for whatever reason; what failed is told."""
        tasks = [asyncio.create_task(routine) for routine in routines]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failure = error
        self.news.set()
        self._closed.set()

    async def _address(self) -> str:
        """The numeric one; the name itself while nobody knows it."""
        loop = asyncio.get_running_loop()
        with suppress(MasterUnreachable):
            return await loop.run_in_executor(None, resolve, self._host, self._port)
        return self._host

    async def _silence(self) -> None:
        """Wait until nothing has come for long: the connection is broken, or the name means another machine by now."""
        before: object = self
        while self._newest is not before:
            before = self._newest
            await asyncio.sleep(AGAIN_SECONDS)

    async def _until_closed(self) -> None:
        await self._closed.wait()

    def _take(self, frames: Sequence[zmq.Frame]) -> None:
        """Keep the newest picture; whatever else comes is somebody else's."""
        try:
            metrics = wire.to_viewer(frames[0].buffer)
        except WireError as error:
            self._foreign = words(str(error))
            return
        self._foreign = ""
        self._newest = self._clock(), metrics
        self.news.set()
