"""The master's driver: sockets and clock in, the engine's commands out.

One reader task per socket for its whole life, nothing but the engine decides, and everything slow (combining,
checkpoints, evaluation) runs beside the loop. A peer can make no message that ends the master.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgczmq.core import events
from pgczmq.core.engine import Engine
from pgczmq.core.policies import Statistics
from pgczmq.core.progress import Progress
from pgczmq.net import wire
from pgczmq.net.combiner import Combiner, Spent
from pgczmq.net.compute import Aside, MasterCompute, Snapshot, Update
from pgczmq.net.hub import Hub
from pgczmq.net.payload import Way
from pgczmq.net.reception import Reception
from pgczmq.net.watchdog import watch
from pgczmq.runlog import EventRecord, Sink, StepRecord

log = logging.getLogger("pgczmq.master")

HELD_UP_SECONDS = 0.05
"""A timer that comes later than this was held up by something."""
TICKS_A_BEAT = 4


@dataclass(frozen=True)
class Ending:
    """How a run ended; ``seconds`` from the first publication to the last update."""

    exit_code: int
    reason: str
    diverged: bool
    steps: int
    seconds: float
    loss: float | None
    late_fraction: float


class Master:
    """Drives one engine over one hub.

    Args:
        engine: decides.
        hub: sends and receives.
        compute: holds the parameters; used from one thread of its own.
        aside: evaluation and checkpoints.
        sink: takes the records; must not block.
        heartbeat: seconds between beats.
        started_at: of the run, on time.monotonic; records count from there.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        *,
        compute: MasterCompute,
        aside: Aside,
        sink: Sink,
        heartbeat: float,
        started_at: float,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._begins_at = engine.progress
        self._combiner = Combiner(compute, hub.exchange, self._failed, self._wanted_ways, updates=self._begins_at.steps)
        self._aside = aside
        self._sink = sink
        self._heartbeat = heartbeat
        self._started_at = started_at
        self._params: wire.Params | None = None
        self._reception = Reception(
            engine,
            hub,
            compute=compute,
            feed=self._feed,
            send_open=self._send_params,
            send_beat=self._send_beat,
            sink=sink,
            now=self._now,
        )
        self._queue: deque[events.Event] = deque()
        self._busy = False
        self._finish: asyncio.Future[events.Finish] | None = None
        self._stopped = asyncio.Event()
        self._saving = asyncio.Lock()
        self._unsaved = ""  # why the newest checkpoint is not on disk
        self._tasks: set[asyncio.Task[None]] = set()
        self._evaluations: set[asyncio.Task[None]] = set()
        self._loss = self._begins_at.loss
        self._steps = self._begins_at.steps
        self._opened_at, self._applied_at = 0.0, self._begins_at.lasted
        self._broadcast_at = math.inf  # the open step was published
        self._alarm: asyncio.TimerHandle | None = None
        self._tick_due = self._alarm_due = math.inf
        self._ticked_at = 0.0

    # ------------------------------------------------------------ life

    async def run(self) -> Ending:
        """Serve until the engine says that the run is over, then tell the workers."""
        self._finish = asyncio.get_running_loop().create_future()
        reception = self._reception
        for routine in (reception.read_control(), reception.read_gradients(), self._beat(), watch(self._stalled)):
            self._start(routine)
        self._start(self._hub.doorman.keep(self._hub.blamed))
        try:
            finish = await self._finish
            if finish.exit_code == 0:
                await self._saved()  # a worker that is told that the run is done does not come back for its last steps
            self._farewell(finish)
            await self._settle(finish)
        except Exception:
            self._farewell(events.Finish(70, "the master failed; its log says how"))
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            if self._alarm is not None:
                self._alarm.cancel()
            self._combiner.close()
        return Ending(
            exit_code=finish.exit_code or (70 if self._unsaved else 0),
            reason="; ".join(filter(None, (finish.reason, self._unsaved))),
            diverged=finish.diverged,
            steps=self._steps,
            seconds=self._applied_at - self._opened_at,
            loss=self._loss,
            late_fraction=self._engine.late_fraction,
        )

    @property
    def ready(self) -> list[int]:
        """Workers that can be counted on."""
        return self._engine.ready

    def stop(self, reason: str, exit_code: int = 75) -> None:
        """End the run at the last applied step; from the loop's thread."""
        self._stopped.set()
        self._feed(events.Stop(reason, self._now(), exit_code))

    async def _settle(self, finish: events.Finish) -> None:
        """Wait for checkpoints, and after a complete run for evaluations, unless somebody wants to stop now."""
        if finish.exit_code == 0 and self._evaluations:
            stopped = self._start(self._until_stopped())
            while self._evaluations and not stopped.done():
                await asyncio.wait({stopped, *self._evaluations}, return_when=asyncio.FIRST_COMPLETED)
        await self._saved()

    async def _saved(self) -> None:
        """Wait for checkpoints."""
        writing = [task for task in self._tasks if task.get_name() == "checkpoint"]
        if writing:
            await asyncio.wait(writing)

    async def _until_stopped(self) -> None:
        await self._stopped.wait()

    def _start(self, routine: Any, name: str = "") -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(routine, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._evaluations.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed(task.exception() or RuntimeError("unknown"))

    def _failed(self, error: BaseException) -> None:
        """A part that fails takes the run with it: nothing goes on half alive."""
        if self._finish is None:
            return
        if self._finish.done():
            log.error("the run was over already when this failed", exc_info=error)
            return
        self._finish.set_exception(error)

    def _now(self) -> float:
        return time.monotonic() - self._started_at

    # ------------------------------------------------------------ the master's own clock

    async def _beat(self) -> None:
        """The master's own clock: deadlines, heartbeats, beacons, metrics."""
        tick = 0
        while True:
            self._tick()
            if self._hub.has_unready():
                self._hub.publish(wire.Beacon(**self._hub.mine))
            if tick % TICKS_A_BEAT == 0:
                self._send_beats()
            tick += 1
            await asyncio.sleep(self._heartbeat / TICKS_A_BEAT)

    def _tick(self) -> None:
        """When this comes late, the loop was blocked, or the process stopped: nobody was listened to."""
        now = self._now()
        is_late = now - min(self._tick_due, self._alarm_due) > HELD_UP_SECONDS
        deaf = now - self._ticked_at if is_late else 0.0
        self._ticked_at, self._tick_due = now, now + self._heartbeat / TICKS_A_BEAT
        self._feed(events.Tick(now, deaf))
        self._set_alarm()

    def _set_alarm(self) -> None:
        """For the engine's deadline, which may be over before the next beat."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due = self._engine.deadline
        if due < math.inf:
            self._alarm = asyncio.get_running_loop().call_later(due - self._now(), self._tick)

    def _send_beats(self) -> None:
        if self._engine.phase == "open" and self._now() - self._broadcast_at > self._heartbeat:
            self._hub.publish(wire.Beacon(step=self._engine.open_step, **self._hub.mine))
        for worker, incarnation in self._hub.admitted():
            self._send_beat(worker, incarnation)
        self._hub.publish_metrics(
            wire.Metrics(
                step=self._steps,
                steps=self._engine.steps,
                loss=self._loss,
                ready=self._engine.ready,
                late_fraction=self._engine.late_fraction,
                refused=self._hub.blamed.refused,
                **self._hub.mine,
            )
        )

    def _send_beat(self, worker: int, incarnation: str) -> None:
        beat = wire.Beat(
            ready=not self._hub.is_unready(incarnation),
            open_step=self._engine.open_step,
            arrived=list(self._engine.arrived),
            **self._verdict(()),
        )
        if not self._hub.send_control(incarnation, beat):
            self._feed(events.Left(worker, incarnation, "can no longer be reached", self._now()))

    def _stalled(self, seconds: float) -> None:
        text = f"the event loop was blocked for {seconds:.2f} s"
        log.warning(text)
        self._record("stall", text)

    # ------------------------------------------------------------ what the engine wants

    def _feed(self, event: events.Event) -> None:
        """Hand an event to the engine and carry out its commands; events they cause come after them."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                for command in self._engine.handle(self._queue.popleft()):
                    self._do(command)
        finally:
            self._busy = False

    def _do(self, command: events.Command) -> None:
        match command:
            case events.Use():
                self._combiner.hold(self._reception.take())
                if command.fold:
                    self._combiner.fold(command.step, command.worker)
            case events.Publish():
                self._publish(command)
            case events.Send():
                self._send_params(command.worker, self._hub.incarnation(command.worker))
            case events.Apply():
                self._apply(command)
            case events.Note():
                self._record_note(command)
            case events.Evaluate():
                self._evaluations.add(self._start(self._evaluate(command.step, self._combiner.snapshot())))
            case events.Checkpoint():
                self._checkpoint(command)
            case events.Finish():
                self._finished(command)
            case _:
                self._do_membership(command)

    def _do_membership(self, command: events.Command) -> None:
        match command:
            case events.Admit():
                if self._hub.admit(command.worker, command.incarnation, self._heartbeat):
                    self._record_joined(command.worker, command.incarnation)
                self._hub.publish(wire.Beacon(**self._hub.mine))
            case events.Reject():
                if self._hub.reject(command.incarnation, command.reason):
                    self._record("refused", f"a worker was not let in: {command.reason}", command.worker)
            case events.Probe():
                self._send_beat(command.worker, command.incarnation)
            case events.Refuse():
                message = wire.Refused(step=command.step, reason=command.reason, **self._hub.mine)
                self._hub.send_control(command.incarnation, message)

    def _verdict(self, late: Sequence[tuple[int, int]]) -> dict[str, Any]:
        outcome = self._engine.outcome
        return {
            **self._hub.mine,
            "closed_step": outcome.step,
            "used": list(outcome.used),
            "spare": list(outcome.spare),
            "late": [list(pair) for pair in late],
        }

    def _publish(self, command: events.Publish) -> None:
        self._set_alarm()
        self._params = wire.Params(
            step=command.step,
            k=command.k,
            batch_fraction=command.batch_fraction,
            **self._verdict(command.outcome.late),
        )
        if self._combiner.version.step == command.step:
            self._broadcast()
        else:
            self._start(self._begin())

    def _wanted_ways(self) -> frozenset[Way]:
        """Those of workers that are gone are not: whoever comes back is sent the open step by itself."""
        return self._hub.exchange.wanted(map(self._hub.incarnation, self._engine.ready))

    async def _begin(self) -> None:
        await self._combiner.begin()
        if self._engine.phase != "finished":
            self._applied_at = self._now()
            self._opened_at = self._applied_at - self._begins_at.lasted
            self._broadcast()

    def _broadcast(self) -> None:
        assert self._params is not None
        self._broadcast_at = self._now()
        self._reception.published(self._params.step, self._broadcast_at)
        self._hub.publish_params(self._params, self._combiner.version)
        if self._wanted_ways() - self._combiner.version.sealed.keys():  # somebody came back during the update
            for worker in self._engine.ready:
                self._send_params(worker, self._hub.incarnation(worker))

    def _send_params(self, worker: int, incarnation: str) -> None:
        """Send the open step to one worker, beside the broadcast."""
        version = self._combiner.version
        if self._params is None or self._engine.phase != "open" or version.step != self._params.step:
            return
        if self._hub.exchange.way(incarnation) in version.sealed:
            self._hub.send_params(worker, incarnation, self._params, version)
        else:
            self._start(self._send_another_way(worker, incarnation))

    async def _send_another_way(self, worker: int, incarnation: str) -> None:
        """Nobody's payloads went this worker's way until now."""
        version, way = self._combiner.version, self._hub.exchange.way(incarnation)
        await self._combiner.add_ways(frozenset({way}))
        if way in version.sealed:
            self._send_params(worker, incarnation)

    async def _evaluate(self, step: int, snapshot: asyncio.Future[Snapshot]) -> None:
        await self._aside.evaluate(step, await snapshot)

    def _apply(self, command: events.Apply) -> None:
        received = self._combiner.held_bytes

        def applied(update: Update, spent: Spent) -> None:
            if not update.finite:
                self._feed(events.Spoiled(command.step, update.culprits, self._now()))
                return
            self._record_step(command.closed, update, spent, received)
            self._feed(events.Applied(command.step, self._now(), update.statistics))

        self._combiner.apply(command, applied)

    def _record_step(self, closed: events.ClosedStep, update: Update, spent: Spent, received: int) -> None:
        self._steps = closed.step + 1
        self._loss = closed.loss
        self._applied_at = self._now()
        seen = update.statistics or Statistics(update.norm)
        self._sink(
            StepRecord(
                **vars(closed),
                applied_at=self._applied_at,
                norm=update.norm,
                bytes=received,
                inner=seen.inner,
                distance=seen.distance,
                **vars(spent),
            )
        )

    def _checkpoint(self, command: events.Checkpoint) -> None:
        """One at a time; a periodic one is left out while the one before is written, the last one never.

        Progress and parameters are taken here and now: they must be of the same step.
        """
        if self._saving.locked() and self._engine.phase != "finished":
            self._record("checkpoint", "left one out: the one before is still being written")
            return
        progress = self._engine.progress
        if progress.steps != command.step:
            raise AssertionError(f"a checkpoint of step {command.step} is asked for after {progress.steps} steps")
        self._start(self._save(progress, self._combiner.capture(self._aside.capture)), name="checkpoint")

    async def _save(self, progress: Progress, capturing: asyncio.Future[Any]) -> None:
        async with self._saving:
            try:
                captured = await capturing
                said = await asyncio.get_running_loop().run_in_executor(None, self._aside.write, progress, captured)
            except (OSError, RuntimeError) as error:  # a full disk, in torch's words or the system's
                self._unsaved = f"a checkpoint could not be written: {error}"
                log.error("%s", self._unsaved)
                self._record("checkpoint", self._unsaved)
                return
        self._unsaved = ""
        self._record("checkpoint", said, step=progress.steps)

    def _finished(self, command: events.Finish) -> None:
        if self._hub.blamed.refused:
            self._record("refused", f"{self._hub.blamed.refused} messages were refused in this run")
        self._record("finished", command.reason)
        if self._finish is not None and not self._finish.done():
            self._finish.set_result(command)

    def _farewell(self, finish: events.Finish) -> None:
        """Tell every worker that the run is over."""
        bye = wire.Bye(exit=finish.exit_code, reason=finish.reason, **self._hub.mine)
        for _, incarnation in self._hub.admitted():
            self._hub.send_control(incarnation, bye)
        self._hub.publish(bye)
        self._hub.bye = bye

    def _record_note(self, note: events.Note) -> None:
        self._sink(EventRecord(self._now(), **vars(note)))

    def _record_joined(self, worker: int, incarnation: str) -> None:
        text = f"worker {worker} joined from {self._hub.origin(incarnation)}"
        self._sink(EventRecord(self._now(), "joined", text, worker, seconds=self._hub.away(incarnation)))

    def _record(self, kind: str, text: str, worker: int | None = None, step: int | None = None) -> None:
        self._sink(EventRecord(self._now(), kind, text, worker, step))
