"""``pgc local``: a master and all its workers on this machine."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from pgczmq.app import master, processes, worker
from pgczmq.config import RunConfig
from pgczmq.runlog import Result, Sink

log = logging.getLogger("pgczmq.local")

LOOK_SECONDS = 0.2
GOODBYE_SECONDS = 0.8


def run(config: RunConfig, *, sink: Sink, root: Path) -> Result:
    """A whole run in processes of this machine; arguments and errors as ``app.master.run``."""
    return master.run(on_this_machine(config), sink=sink, root=root, crew=LocalWorkers(config.workers))


def on_this_machine(config: RunConfig) -> RunConfig:
    """The same run on loopback, on free ports unless the user chose one, so that several fit side by side."""
    port = config.net.port if "port" in config.net.model_fields_set else 0
    return config.model_copy(update={"net": config.net.model_copy(update={"bind": "127.0.0.1", "port": port})})


class LocalWorkers:
    """Starts the worker processes of a run, and ends them with it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: dict[int, ForkServerProcess] = {}
        self._logs: dict[int, Path] = {}

    def __call__(self, running: master.Running) -> Coroutine[Any, Any, None]:
        """Start them; the coroutine looks after them until it is cancelled."""
        context = processes.start_helper()
        for number in range(self._count):
            self._logs[number] = running.directory / f"worker-{number}.log"
            arguments = ("127.0.0.1", running.port, number, str(self._logs[number]))
            self._processes[number] = processes.spawn(context, worker.local, *arguments)
        return self._look_after(running)

    async def _look_after(self, running: master.Running) -> None:
        """End the run when a worker fails of itself, or when none is left; a killed one is a straggler."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                exits = {number: process.exitcode for number, process in self._processes.items()}
                failed = [number for number, code in exits.items() if code is not None and 0 < code < 128]
                if failed:
                    running.stop(self._what_it_said(failed[0]), exits[failed[0]] or 70)
                    return
                gone = all(code is not None for code in exits.values()) and any(exits.values())
                if gone and not running.ready():
                    running.stop("all local workers are gone", 74)
                    return
        finally:
            await self._end()

    def _what_it_said(self, number: int) -> str:
        path = self._logs[number]
        text = path.read_text(errors="replace").strip() if path.exists() else ""
        lines = text.splitlines() or ["it left no log"]
        said = lines[-1].rpartition(" ERROR ")[2]
        code = self._processes[number].exitcode
        return f"worker {number} ended with exit code {code}: {said} (more in {path})"

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
