"""``pgc local``: a master and all its workers on this machine."""

import asyncio
import contextlib
import logging
import math
import signal
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from pgczmq.app import master, processes, worker
from pgczmq.app.allowed import asked_for
from pgczmq.app.resume import NEVER
from pgczmq.config import RunConfig
from pgczmq.net.faulty import again_after
from pgczmq.runlog import Result, Sink
from pgczmq.train import plain

log = logging.getLogger("pgczmq.local")

LOOK_SECONDS = 0.2
GOODBYE_SECONDS = 0.8


def run(config: RunConfig, *, sink: Sink, root: Path, resume: str = NEVER) -> Result:
    """A whole run in processes of this machine; arguments and errors as ``app.master.run``."""
    if config.device == "cuda" and config.task.name != plain.NAME:
        from pgczmq.train.gradient import resolve_device

        resolve_device(config.device)  # for its complaint, before there is a run directory
    return master.run(on_this_machine(config), sink=sink, root=root, crew=LocalWorkers(config), resume=resume)


def on_this_machine(config: RunConfig) -> RunConfig:
    """The same run on loopback, on free ports unless the user chose one, so that several fit side by side."""
    port = config.net.port if "port" in config.net.model_fields_set else 0
    return config.model_copy(update={"net": config.net.model_copy(update={"bind": "127.0.0.1", "port": port})})


class LocalWorkers:
    """Starts the worker processes of a run, and ends them with it; starts those again that a fault killed."""

    def __init__(self, config: RunConfig) -> None:
        self._count = config.workers
        self._task = config.task.name
        self._allowed = tuple(asked_for(config).values())  # whoever runs this has named it
        self._processes: dict[int, ForkServerProcess] = {}
        self._logs: dict[int, Path] = {}
        self._begins: dict[int, int] = {}  # where in its log a worker's present life begins
        self._is_over = False
        self._due: dict[int, float] = {}  # when a worker that a fault killed is started again; never is infinite

    async def __call__(self, running: master.Running) -> None:
        """Start them, and look after them until this is cancelled."""
        starting = asyncio.ensure_future(asyncio.to_thread(self._start_all, running))  # a thread cannot be cancelled
        try:
            await self._look_after(await asyncio.shield(starting), running)
        finally:
            self._is_over = True
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({starting})
            await self._end()

    def _start_all(self, running: master.Running) -> ForkServerContext:
        context = processes.start_helper(self._task)
        for number in range(self._count):
            if not self._is_over:
                self._start(context, running, number)
        return context

    def _start(self, context: ForkServerContext, running: master.Running, number: int) -> None:
        path = running.directory / f"worker-{number}.log"
        self._logs[number] = path
        self._begins[number] = path.stat().st_size if path.exists() else 0
        self._processes[number] = processes.spawn(
            context, worker.local, "127.0.0.1", running.port, number, str(path), self._allowed, running.security
        )

    async def _look_after(self, context: ForkServerContext, running: master.Running) -> None:
        """End the run when a worker fails of itself, or when none is left; a killed one is a straggler."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            exits = {number: process.exitcode for number, process in self._processes.items()}
            for number in self._killed_and_due(exits):
                self._start(context, running, number)
                del exits[number]
            failed = [number for number, code in exits.items() if _is_failure(code)]
            if failed:
                running.stop(self._what_it_said(failed[0]), exits[failed[0]] or 70)
                return
            gone = all(code is not None for code in exits.values()) and any(exits.values())
            if gone and len(exits) == self._count and not self._awaited() and not running.ready():
                running.stop("all local workers are gone", 74)
                return

    def _killed_and_due(self, exits: Mapping[int, int | None]) -> list[int]:
        """Whom a fault killed so long ago that it is to be started again now."""
        now = time.monotonic()
        for number, code in exits.items():
            if code == -signal.SIGKILL and number not in self._due:
                after = again_after(self._log_of(number))
                self._due[number] = math.inf if after is None else now + after
        due = [number for number, at in self._due.items() if at <= now]
        for number in due:
            del self._due[number]
            log.info("worker %d, which a fault killed, is started again", number)
        return due

    def _awaited(self) -> bool:
        """Somebody will be started again."""
        return any(at < math.inf for at in self._due.values())

    def _log_of(self, number: int) -> str:
        """What a worker's present life, or its last one, has said."""
        path = self._logs[number]
        said = path.read_bytes()[self._begins[number] :] if path.exists() else b""
        return said.decode(errors="replace").strip()

    def _what_it_said(self, number: int) -> str:
        lines = self._log_of(number).splitlines() or ["it left no log"]
        said = lines[-1].rpartition(" ERROR ")[2]
        code = self._processes[number].exitcode
        return f"worker {number} ended with exit code {code}: {said} (more in {self._logs[number]})"

    async def _end(self) -> None:
        """Give the workers a moment to leave of themselves."""
        living = list(self._processes.values())
        with contextlib.suppress(asyncio.CancelledError):
            for _ in range(int(GOODBYE_SECONDS / 0.05)):
                living = [process for process in living if process.exitcode is None]
                if not living:
                    break
                await asyncio.sleep(0.05)
        for process in living:
            process.kill()
        for process in self._processes.values():
            process.join()


def _is_failure(code: int | None) -> bool:
    """Whether a worker that ended so did it of itself, before the run was over."""
    return code is not None and 0 < code < 128 and code != worker.INTERRUPTED
