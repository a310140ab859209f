"""What the master has done beside the steps: evaluations of what is learnt, and checkpoints."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from pgczmq.core.engine import Engine
from pgczmq.core.progress import Progress
from pgczmq.net.combiner import Combiner
from pgczmq.net.compute import Aside, Snapshot
from pgczmq.net.tasks import Start

log = logging.getLogger("pgczmq.master")


class Note(Protocol):
    """Records an event of the run."""

    def __call__(self, kind: str, text: str, worker: int | None = None, step: int | None = None) -> None:
        """Take it."""
        ...


class Sideline:
    """Of one run.

    Args:
        engine: knows how far the run is.
        combiner: holds what is evaluated and kept.
        aside: does it.
        start: runs a coroutine beside the others.
        record: takes what should be known of it.

    Attributes:
        unsaved: why the newest checkpoint is not on disk; empty if it is.
    """

    def __init__(self, engine: Engine, combiner: Combiner, aside: Aside, *, start: Start, record: Note) -> None:
        self.unsaved = ""
        self._engine = engine
        self._combiner = combiner
        self._aside = aside
        self._start = start
        self._record = record
        self._saving = asyncio.Lock()
        self._evaluations: set[asyncio.Task[None]] = set()
        self._writings: set[asyncio.Task[None]] = set()

    def evaluate(self, step: int) -> None:
        """Look at the held-out data with the parameters after ``step`` updates, which they are now."""
        self._keep(self._evaluations, self._evaluate(step, self._combiner.snapshot()))

    def checkpoint(self, step: int) -> None:
        """One at a time; a periodic one is left out while the one before is written, the last one never.

        Progress and parameters are taken here and now: they must be of the same step.
        """
        if self._saving.locked() and self._engine.phase != "finished":
            self._record("checkpoint", "left one out: the one before is still being written")
            return
        progress = self._engine.progress
        if progress.steps != step:
            raise AssertionError(f"a checkpoint of step {step} is asked for after {progress.steps} steps")
        self._keep(self._writings, self._save(progress, self._combiner.capture(self._aside.capture)))

    async def evaluated(self, stopped: asyncio.Event) -> None:
        """Wait for evaluations, until somebody wants to stop."""
        if self._evaluations:
            stopping = self._start(_until(stopped))
            while self._evaluations and not stopping.done():
                await asyncio.wait({stopping, *self._evaluations}, return_when=asyncio.FIRST_COMPLETED)

    async def saved(self) -> None:
        """Wait for checkpoints."""
        if self._writings:
            await asyncio.wait(self._writings)

    def _keep(self, tasks: set[asyncio.Task[None]], routine: Coroutine[Any, Any, None]) -> None:
        task = self._start(routine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _evaluate(self, step: int, snapshot: asyncio.Future[Snapshot]) -> None:
        await self._aside.evaluate(step, await snapshot)

    async def _save(self, progress: Progress, capturing: asyncio.Future[Any]) -> None:
        async with self._saving:
            try:
                captured = await capturing
                said = await asyncio.get_running_loop().run_in_executor(None, self._aside.write, progress, captured)
            except (OSError, RuntimeError) as error:  # a full disk, in torch's words or the system's
                self.unsaved = f"a checkpoint could not be written: {error}"
                log.error("%s", self.unsaved)
                self._record("checkpoint", self.unsaved)
                return
        self.unsaved = ""
        self._record("checkpoint", said, step=progress.steps)


async def _until(event: asyncio.Event) -> None:
    await event.wait()
