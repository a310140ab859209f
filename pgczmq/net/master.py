"""The master's driver: sockets and clock in, the engine's commands out.

One listener per socket for its whole life, nothing but the engine decides, and everything slow (combining,
checkpoints, evaluation) runs beside the loop. A peer can make no message that ends the master.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass

from pgczmq.core import events
from pgczmq.core.engine import Engine
from pgczmq.core.policies import Statistics
from pgczmq.net import wire
from pgczmq.net.combiner import Combiner, Spent
from pgczmq.net.compute import Aside, MasterCompute, Update
from pgczmq.net.hub import Hub
from pgczmq.net.payload import Way
from pgczmq.net.pulse import Pulse, verdict
from pgczmq.net.reception import Reception
from pgczmq.net.showing import Showing
from pgczmq.net.sideline import Sideline
from pgczmq.net.tasks import Tasks
from pgczmq.net.watchdog import watch
from pgczmq.picture import Picture, Seen, Source
from pgczmq.runlog import EventRecord, Sink, StepRecord

log = logging.getLogger("pgczmq.master")


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
        source: of the pictures for viewers.
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
        source: Source = lambda: Seen(Picture(), 0.0),
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._begins_at = engine.progress
        self._tasks = Tasks(self._failed)
        self._combiner = Combiner(compute, hub.exchange, self._failed, self._wanted_ways, updates=self._begins_at.steps)
        self._sideline = Sideline(engine, self._combiner, aside, start=self._tasks.start, record=self._record)
        self._pulse = Pulse(engine, hub, heartbeat, now=self._now, feed=self._feed)
        self._showing = Showing(hub, source)
        self._sink = sink
        self._heartbeat = heartbeat
        self._started_at = started_at
        self._params: wire.Params | None = None
        self._unanswered: set[tuple[int, str]] = set()  # who asked for the open step while it was being applied
        self._reception = Reception(
            engine,
            hub,
            compute=compute,
            feed=self._feed,
            send_open=self._send_params,
            send_beat=self._pulse.send_beat,
            sink=sink,
            now=self._now,
        )
        self._queue: deque[events.Event] = deque()
        self._busy = False
        self._finish: asyncio.Future[events.Finish] | None = None
        self._stopped = asyncio.Event()
        self._loss = self._begins_at.loss
        self._steps = self._begins_at.steps
        self._opened_at, self._applied_at = 0.0, self._begins_at.lasted

    # ------------------------------------------------------------ life

    async def run(self) -> Ending:
        """Serve until the engine says that the run is over, then tell the workers."""
        self._finish = asyncio.get_running_loop().create_future()
        reception = self._reception
        self._hub.listen(reception.take_control, reception.take_gradients, self._failed)
        for routine in (self._pulse.beat(), self._showing.show(), watch(self._stalled)):
            self._tasks.start(routine)
        self._tasks.start(self._hub.doorman.keep(self._hub.blamed))
        try:
            finish = await self._finish
            if finish.exit_code == 0:
                # A worker that is told that the run is done does not come back for its last steps.
                await self._sideline.saved()
            self._farewell(finish)
            if finish.exit_code == 0:
                await self._sideline.evaluated(self._stopped)
            await self._sideline.saved()
        except Exception:
            self._farewell(events.Finish(70, "the master failed; its log says how"))
            raise
        finally:
            self._hub.ignore()
            self._tasks.cancel()
            self._pulse.close()
            self._combiner.close()
        return Ending(
            exit_code=finish.exit_code or (70 if self._sideline.unsaved else 0),
            reason="; ".join(filter(None, (finish.reason, self._sideline.unsaved))),
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
                self._sideline.evaluate(command.step)
            case events.Checkpoint():
                self._sideline.checkpoint(command.step)
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
                self._pulse.send_beat(command.worker, command.incarnation)
            case events.Refuse():
                message = wire.Refused(step=command.step, reason=command.reason, **self._hub.mine)
                self._hub.send_control(command.incarnation, message)

    def _publish(self, command: events.Publish) -> None:
        self._pulse.set_alarm()
        self._params = wire.Params(
            step=command.step,
            k=command.k,
            batch_fraction=command.batch_fraction,
            **verdict(command.outcome),
            **self._hub.mine,
        )
        if self._combiner.version.step == command.step:
            self._broadcast()
        else:
            self._tasks.start(self._begin())

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
        at = self._now()
        self._pulse.broadcast(at)
        self._reception.published(self._params.step, at)
        self._hub.publish_params(self._params, self._combiner.version)
        self._showing.published()
        if self._wanted_ways() - self._combiner.version.sealed.keys():  # somebody came back during the update
            for worker in self._engine.ready:
                self._send_params(worker, self._hub.incarnation(worker))

    def _send_params(self, worker: int, incarnation: str) -> None:
        """Send the open step to one worker, beside the broadcast."""
        version = self._combiner.version
        if self._engine.phase == "applying":  # its step may have to open again
            self._unanswered.add((worker, incarnation))
        if self._params is None or self._engine.phase != "open" or version.step != self._params.step:
            return
        if self._hub.exchange.way(incarnation) in version.sealed:
            self._hub.send_params(worker, incarnation, self._params, version)
        else:
            self._tasks.start(self._send_another_way(worker, incarnation))

    async def _send_another_way(self, worker: int, incarnation: str) -> None:
        """Nobody's payloads went this worker's way until now."""
        version, way = self._combiner.version, self._hub.exchange.way(incarnation)
        await self._combiner.add_ways(frozenset({way}))
        if way in version.sealed:
            self._send_params(worker, incarnation)

    def _apply(self, command: events.Apply) -> None:
        received = self._combiner.held_bytes

        def applied(update: Update, spent: Spent) -> None:
            unanswered, self._unanswered = self._unanswered, set()
            if not update.finite:
                self._feed(events.Spoiled(command.step, update.culprits, self._now()))
                for worker, incarnation in unanswered:
                    self._send_params(worker, incarnation)
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

    # ------------------------------------------------------------ what is told

    def _stalled(self, seconds: float) -> None:
        text = f"the event loop was blocked for {seconds:.2f} s"
        log.warning(text)
        self._record("stall", text)

    def _record_note(self, note: events.Note) -> None:
        self._sink(EventRecord(self._now(), **vars(note)))

    def _record_joined(self, worker: int, incarnation: str) -> None:
        text = f"worker {worker} joined from {self._hub.origin(incarnation)}"
        self._sink(EventRecord(self._now(), "joined", text, worker, seconds=self._hub.away(incarnation)))

    def _record(self, kind: str, text: str, worker: int | None = None, step: int | None = None) -> None:
        self._sink(EventRecord(self._now(), kind, text, worker, step))
