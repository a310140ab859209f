"""A run on this machine as its master: parts built, sockets bound, driven to the end, result written."""

import asyncio
import contextlib
import ipaddress
import logging
import shlex
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgczmq.app import build, processes
from pgczmq.app.faults import faults_of
from pgczmq.app.interrupts import Interrupts
from pgczmq.app.keys import Access, access_of, access_of_local
from pgczmq.app.model import MasterModel, Trained, master_model
from pgczmq.app.outcome import Keeper, result_of
from pgczmq.app.resume import NEVER, Beginning, begin, find, keeper_of
from pgczmq.config import RunConfig
from pgczmq.core.engine import Engine
from pgczmq.core.progress import Progress
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ClusterError, ConfigError
from pgczmq.gather.intake import Intake
from pgczmq.net.auth import Security
from pgczmq.net.compute import Aside, Snapshot
from pgczmq.net.exchange import Exchange
from pgczmq.net.hub import Assignment, Hub
from pgczmq.net.master import Ending, Master
from pgczmq.net.sockets import Sockets, endpoint, threads_for
from pgczmq.recorder import RunLog
from pgczmq.runlog import (
    EvalRecord,
    EventRecord,
    Record,
    Result,
    RunRecord,
    Sink,
    write_result,
)

if TYPE_CHECKING:
    from pgczmq.app.evaluator import EvaluatorProcess

log = logging.getLogger("pgczmq.master")


@dataclass(frozen=True)
class Running:
    """A run whose sockets are bound, for whoever starts its workers.

    Args:
        port: control port.
        directory: run directory.
        stop: ends the run, with a reason and an exit code; from the event loop's thread.
        ready: how many workers can be counted on.
        security: with which they are let in.
    """

    port: int
    directory: Path
    stop: Callable[[str, int], None]
    ready: Callable[[], int]
    security: Security


Crew = Callable[[Running], Coroutine[Any, Any, None]]
"""Starts whatever belongs to the run beside the master, and looks after it until it is cancelled."""


def check(config: RunConfig) -> Scheme:
    """Everything that can be wrong with a run and can be seen without torch.

    Raises:
        ConfigError: the first thing found.
    """
    scheme = build.scheme_of(config)
    build.delay_of(config)
    if config.scheme.on_new_step == "queue":
        raise ConfigError(
            "a real worker does not queue steps, since its backlog grows without bound: got "
            'scheme.on_new_step="queue". Use "skip" or "abandon", or simulate it with pgc sim.'
        )
    if config.delay.failures:
        raise ConfigError(
            "a real worker is not gone for a time that was planned: got [[delay.failures]]. Leave them out and write "
            '[[faults]] with kind = "kill", or simulate them: pgc sim.'
        )
    faults_of(config)
    build.check_lockstep(config)
    build.check_wire(config, scheme)
    return scheme


def run(config: RunConfig, *, sink: Sink, root: Path, crew: Crew | None = None, resume: str = NEVER) -> Result:
    """Run a master until its run is over.

    Args:
        config: checked with ``check``.
        sink: sees every record as it comes; must not block.
        root: where the run directory is made.
        crew: starts local workers, if any.
        resume: what to go on with, as ``app.resume.find`` takes it.

    Raises:
        ConfigError: something about the task or the addresses does not work, or the run cannot be gone on with.

    On the main thread the first SIGINT, SIGTERM or SIGHUP ends the run with a checkpoint, see ``app.interrupts``.
    """
    scheme = check(config)
    access = access_of(config) if crew is None else access_of_local(config)
    run_id = uuid.uuid4().hex[:12]
    found = find(config, resume, root, run_id=run_id)
    processes.keep_large_blocks()
    processes.open_many_files()
    with Interrupts() as interrupts:
        model = master_model(config, scheme.policy.needs)
        if found is not None and found.checkpoint is not None:
            model.trained.restore(found.checkpoint)
        name = build.run_name(config, time.strftime("%Y%m%d-%H%M%S"))
        with begin(config, found, root, name=name, run_id=run_id) as beginning, RunLog(beginning.directory) as runlog:

            def record(record: Record) -> None:
                runlog.record(record)
                this.intake.put(record)
                sink(record)

            keeper = keeper_of(config, beginning, scheme.coefficients_NC, runlog.sync)
            this = _Run(config, scheme, beginning, record, access, keeper)
            result = asyncio.run(this.run(model, crew, interrupts, when_failed=runlog.when_failed))
            write_result(beginning.directory, result)
            sink(result)
    return result


class _Run:
    """The parts of one run, from building them to its result."""

    def __init__(
        self, config: RunConfig, scheme: Scheme, beginning: Beginning, record: Sink, access: Access, keeper: Keeper
    ) -> None:
        self._config = config
        self._scheme = scheme
        self._beginning = beginning
        self._directory = beginning.directory
        self._record = record
        self._access = access
        self._keeper = keeper
        self._evaluator: EvaluatorProcess | None = None
        self._evaluation: EvalRecord | None = None
        self._begun = 0.0
        self.intake = Intake()  # of its records, for viewers

    async def run(
        self,
        model: MasterModel,
        crew: Crew | None,
        interrupts: Interrupts,
        *,
        when_failed: Callable[[Callable[[str], None]], None],
    ) -> Result:
        """Serve, and say how it went; ``when_failed`` takes whom to call when nothing can be recorded any more."""
        trained = model.trained
        self._record(self._about(model))
        for event in self._beginning.events:
            self._record(event)
        for rule in faults_of(self._config).rules:
            self._record(EventRecord(self._beginning.at, "fault", f"planned: {rule}"))
        with ExitStack() as stack:
            if model.start_evaluator is not None:
                self._evaluator = await asyncio.to_thread(model.start_evaluator)
                stack.callback(self._evaluator.close)
            threads = threads_for(4 * trained.parameter_count, processes.cores())
            sockets = stack.enter_context(Sockets(threads, self._access.master))
            sockets.farewell = 0.5
            net = self._config.net
            exchange = Exchange(trained, payload=net.payload, wire_dtype=net.wire_dtype, workers=self._config.workers)
            stack.callback(exchange.close)
            hub = self._hub(sockets, exchange)
            self._begun = time.monotonic() - self._beginning.at
            master = self._master(hub, trained)
            interrupts.end(lambda number: master.stop(f"interrupted by {number.name}"))
            when_failed(_stopper(master.stop))
            running = Running(
                hub.ports.control, self._directory, master.stop, lambda: len(master.ready), self._access.local
            )
            result = self._result(await self._serve(master, crew, running), model)
            self.intake.put(result)
            hub.show(self.intake.seen())
        return result

    async def _serve(self, master: Master, crew: Crew | None, running: Running) -> Ending:
        if crew is None:
            log.info("listening on %s port %d", self._config.net.bind, running.port)
            log.info("to watch from anywhere: pgc top %s", _address(self._config.net.bind, running.port))
            return await master.run()
        log.info("to watch from another terminal: pgc top %s", shlex.quote(str(self._directory)))
        looking_after = asyncio.get_running_loop().create_task(self._look_after(crew, running))
        try:
            return await master.run()
        finally:
            looking_after.cancel()
            await asyncio.wait({looking_after})

    async def _look_after(self, crew: Crew, running: Running) -> None:
        """The crew's failure is the run's: nothing goes on half alive."""
        try:
            await crew(running)
        except Exception as error:
            log.exception("looking after the local workers failed")
            running.stop(f"looking after the local workers failed: {type(error).__name__}: {error}", 70)

    def _about(self, model: MasterModel) -> RunRecord:
        config = self._config
        return RunRecord(
            name=self._directory.name,
            directory=str(self._directory),
            scheme=config.scheme.name,
            task=config.task.name,
            workers=config.workers,
            stragglers=config.workers - self._scheme.k,
            steps=config.steps,
            parameters=model.trained.parameter_count,
            metric=model.metric,
        )

    def _hub(self, sockets: Sockets, exchange: Exchange) -> Hub:
        scheme, net = self._scheme, self._config.net
        rows = scheme.coefficients_NC.tolist()
        assignments = [Assignment(held, tuple(row)) for held, row in zip(scheme.placement.held, rows, strict=True)]
        return Hub(
            sockets,
            bind=net.bind,
            port=net.port,
            run=self._beginning.run_id,
            master=uuid.uuid4().hex[:16],
            config=self._config.to_toml(),
            assignments=assignments,
            exchange=exchange,
        )

    def _master(self, hub: Hub, trained: Trained) -> Master:
        config = self._config
        planned, beginning = build.delay_of(config).seconds, self._beginning

        def write(progress: Progress, state: Any) -> str:
            return self._keeper.write(progress, lambda directory: trained.write_files(directory, state))

        return Master(
            Engine(self._scheme, build.rules_of(config), planned, beginning.at, beginning.progress),
            hub,
            compute=trained,
            aside=Aside(self._evaluate, trained.checkpoint_state, write),
            sink=self._record,
            heartbeat=config.net.heartbeat,
            started_at=self._begun,
            source=self.intake.seen,
        )

    async def _evaluate(self, step: int, snapshot: Snapshot) -> None:
        if self._evaluator is None:
            return
        if step == self._config.steps:
            self._evaluator.hurry()  # nobody trains beside it any more, and the run waits for it
        try:
            answer = await self._evaluator.evaluate(step, snapshot)
        except ClusterError as error:  # said and recorded, but no reason to throw away what was trained
            log.error("%s", error)
            self._record(EventRecord(time.monotonic() - self._begun, "evaluation", str(error), step=step))
            return
        at = time.monotonic() - self._begun
        if answer is None:
            text = (
                f"step {step} was not evaluated: the evaluator was still starting or busy with an earlier one; "
                f"eval.every={self._config.eval.every}"
            )
            self._record(EventRecord(at, "evaluation", text, step=step))
            return
        loss, metric, seconds = answer
        self._evaluation = EvalRecord(step, at, loss, metric, seconds)
        self._record(self._evaluation)
        self._keeper.evaluated(self._evaluation)

    def _result(self, ending: Ending, model: MasterModel) -> Result:
        return result_of(
            self._config,
            ending,
            k=self._scheme.k,
            evaluation=self._evaluation,
            metric=model.metric,
            weights_sha256=model.trained.sha256(),
            run=str(self._directory),
        )


def _address(bind: str, port: int) -> str:
    """Where viewers reach a master that listens there."""
    host = bind.strip("[]")
    return endpoint(socket.gethostname() if ipaddress.ip_address(host).is_unspecified else host, port)


def _stopper(stop: Callable[[str, int], None]) -> Callable[[str], None]:
    """Ends a run from any thread: with nothing on record it could not be gone on with."""
    loop = asyncio.get_running_loop()

    def tell(reason: str) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(stop, reason, 70)

    return tell
