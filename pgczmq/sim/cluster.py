"""The driver of a simulated run: one engine, one crew, one agenda. Nothing is decided here."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from pgczmq.core import events
from pgczmq.core.delays import Failure
from pgczmq.core.engine import Engine
from pgczmq.core.policies import Plan, Statistics
from pgczmq.core.schemes import Scheme
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, Sink, StepRecord
from pgczmq.sim.crew import Crew, Message, Workers
from pgczmq.sim.training import Training, Update
from pgczmq.sim.virtual import COMES_OR_GOES, UPDATES, Agenda, Aside, Durations, Ending

Hire = Callable[[Agenda, Callable[[Message], None]], Workers]
"""Makes the workers of a run from its agenda and from what takes their messages when they are with the master."""


class Simulation:
    """One run.

    Args:
        engine: decides; its clock begins at ``started_at``.
        scheme: the engine's.
        durations: how long everything takes.
        training: computes.
        aside: held-out data and checkpoints.
        sink: takes the records; None when nobody wants any.
        failures: who is gone when; those of one worker do not overlap.
        hire: makes the workers; None for those that do what the scheme says, in ``durations``.
        started_at: when the workers come, seconds: later than 0 when a run goes on.
        forget_at: the step at whose publication all workers lose what they retain; of a run in lockstep.
    """

    def __init__(
        self,
        engine: Engine,
        scheme: Scheme,
        *,
        durations: Durations,
        training: Training,
        aside: Aside | None = None,
        sink: Sink | None = None,
        failures: Iterable[Failure] = (),
        hire: Hire | None = None,
        started_at: float = 0.0,
        forget_at: int | None = None,
    ) -> None:
        self._engine = engine
        self._scheme = scheme
        self._update_seconds = durations.update
        self._training = training
        self._aside = aside or Aside()
        self._sink = sink
        self._agenda = Agenda(started_at)
        self._forget_at = forget_at
        self._arriving: deque[Message] = deque()  # those that come at this very moment
        deliver = self._arriving.append
        self._crew: Workers = (
            Crew(scheme, self._agenda, durations=durations, training=training, deliver=deliver)
            if hire is None
            else hire(self._agenda, deliver)
        )
        self._caused: deque[events.Event] = deque()
        self._incoming: Any = None
        self._held: dict[int, Any] = {}
        self._published_at: dict[int, float] = {}  # by step
        self._begins_at = engine.progress
        self._opened_at = started_at - self._begins_at.lasted  # step 0 was published, or would have been
        self._stopped = ""
        self._deadline = engine.deadline
        self._finish: events.Finish | None = None
        self._steps = self._begins_at.steps
        self._loss = self._begins_at.loss
        self._applied_at = started_at
        self._plan(failures)

    def run(self) -> Ending:
        """Let everything happen, in order, until the engine says that the run is over."""
        agenda, arriving = self._agenda, self._arriving
        while self._finish is None:
            next_at = agenda.next_at
            if self._stopped:
                self._interrupt()
            elif arriving and next_at >= agenda.now:
                self._arrive(arriving.popleft())
            elif next_at > self._deadline:
                self._pass_deadline()
            else:
                agenda.do_next()
        return Ending(
            exit_code=self._finish.exit_code,
            reason=self._finish.reason,
            diverged=self._finish.diverged,
            steps=self._steps,
            seconds=self._applied_at - self._opened_at if self._steps else 0.0,
            loss=self._loss,
            late_fraction=self._engine.late_fraction,
        )

    def stop(self, reason: str) -> None:
        """End the run at the last applied step; may be called by a signal's handler."""
        self._stopped = reason

    def _interrupt(self) -> None:
        reason, self._stopped = self._stopped, ""
        self._feed(events.Stop(reason, self._agenda.now))

    def _pass_deadline(self) -> None:
        """The engine has to know what time it is; nobody was silent meanwhile."""
        at = self._agenda.now = self._deadline * (1 + 1e-9) + 1e-9
        for worker, incarnation in self._crew.incarnations:
            self._feed(events.Heard(worker, incarnation, at))
        self._deadline = float("inf")
        self._feed(events.Tick(at))
        if self._finish is None and self._engine.phase != "applying":
            self._deadline = self._engine.deadline
            if self._deadline <= at:
                raise AssertionError("the deadline is over, but nothing came of it")

    # ------------------------------------------------------------ who is there

    def _plan(self, failures: Iterable[Failure]) -> None:
        """Everybody is there when the run begins, except those who fail at that time."""
        now = self._agenda.now
        failures = [failure for failure in failures if failure.back_at is None or failure.back_at > now]
        late = {failure.worker for failure in failures if failure.down_at <= now}
        for worker in range(self._scheme.workers):
            if worker not in late:
                self._agenda.add(now, COMES_OR_GOES, self._come, worker)
        for failure in failures:
            if failure.down_at > now:
                self._agenda.add(failure.down_at, COMES_OR_GOES, self._go, failure.worker)
            if failure.back_at is not None:
                self._agenda.add(failure.back_at, COMES_OR_GOES, self._come, failure.worker)

    def _come(self, worker: int) -> None:
        incarnation = self._crew.come(worker)
        self._feed(events.Joined(worker, incarnation, self._agenda.now))
        self._feed(events.Ready(worker, incarnation, self._agenda.now))

    def _go(self, worker: int) -> None:
        self._feed(events.Left(worker, self._crew.go(worker), "failed", self._agenda.now))

    # ------------------------------------------------------------ the master

    def _arrive(self, message: Message) -> None:
        if not message.life.alive:
            return  # lost with its sender
        self._incoming = message.payload
        if self._sink is None:
            self._feed(message.event)
            return
        engine, event = self._engine, message.event
        in_time = engine.phase == "open" and event.step == engine.open_step and event.norm is not None
        known = engine.messages
        self._feed(event)
        if engine.messages > known:
            self._sink(self._latency(message, "open" if in_time else "late"))

    def _latency(self, message: Message, outcome: str) -> LatencyRecord:
        event = message.event
        published_at = self._published_at[event.step]
        return LatencyRecord(
            worker=event.worker,
            step=event.step,
            published_at=published_at,
            wait=message.begun_at - published_at,
            compute=message.compute,
            delay=message.delay,
            send=event.at - message.sent_at,
            arrived_at=event.at,
            evaluated=len(event.losses),
            partitions=tuple([partition for partition, _ in event.losses]),
            outcome=outcome,
            newest_age=min(event.ages, default=0),
            incarnation=event.incarnation,
        )

    def _feed(self, event: events.Event) -> None:
        """Hand an event to the engine and carry out its commands; events they cause come after them."""
        commands = self._engine.handle(event)
        while True:
            for command in commands:
                _CARRIED_OUT[type(command)](self, command)
            if not self._caused:
                return
            commands = self._engine.handle(self._caused.popleft())

    def _use(self, command: events.Use) -> None:
        self._held[command.worker] = self._incoming

    def _publish(self, command: events.Publish) -> None:
        self._training.publish(command.step, self._crew.oldest_in_hand(command.step))
        if not self._published_at:
            self._opened_at = self._agenda.now - self._begins_at.lasted
        self._published_at[command.step] = self._agenda.now
        if command.step == self._forget_at:
            self._crew.forget()
        self._deadline = self._engine.deadline
        self._crew.publish(command.step, command.batch_fraction)

    def _send(self, command: events.Send) -> None:
        self._crew.send(command.worker)

    def _apply(self, command: events.Apply) -> None:
        held, weights, closed = self._held, command.weights, command.closed
        messages = [
            (worker, weight, held[worker])
            for worker, weight in zip(weights.workers, weights.values, strict=True)
            if weight != 0.0
        ]
        update = self._training.apply(command.step, messages, Plan(closed.k, closed.batch_fraction))
        if closed.closed_at > self._agenda.now:  # as planned, in deterministic mode
            self._agenda.now = closed.closed_at
        seconds = 0.0 if self._update_seconds is None else self._update_seconds(command.step)
        if seconds > 0:
            self._deadline = float("inf")
            self._agenda.add(self._agenda.now + seconds, UPDATES, self._updated_at_last, closed, update)
        else:
            self._updated(closed, update)

    def _updated_at_last(self, closed: events.ClosedStep, update: Update) -> None:
        self._updated(closed, update)
        self._feed(self._caused.popleft())
        self._deadline = self._engine.deadline

    def _updated(self, closed: events.ClosedStep, update: Update) -> None:
        """The update of a step is done, or could not be; the engine hears it next."""
        held, now = self._held, self._agenda.now
        if not update.finite:
            for worker in update.culprits:
                held.pop(worker, None)
            self._caused.append(events.Spoiled(closed.step, update.culprits, now))
            return
        received = len(held) * self._training.message_bytes
        self._held = {}
        self._steps, self._loss, self._applied_at = closed.step + 1, closed.loss, now
        if self._sink is not None:
            self._sink(_step_record(closed, update, at=now, received=received))
        self._caused.append(events.Applied(closed.step, now, update.statistics))

    def _look(self, command: events.Evaluate) -> None:
        if self._aside.evaluate is not None and self._sink is not None:
            loss, metric = self._aside.evaluate()
            self._sink(EvalRecord(command.step, self._agenda.now, loss, metric, seconds=0.0))

    def _save(self, command: events.Checkpoint) -> None:
        said = self._aside.checkpoint(self._engine.progress)
        if said:
            self._record("checkpoint", said, step=command.step)

    def _note(self, command: events.Note) -> None:
        if self._sink is not None:
            self._sink(EventRecord(self._agenda.now, **vars(command)))

    def _admit(self, command: events.Admit) -> None:
        self._record("joined", f"worker {command.worker} joined", command.worker)

    def _finished(self, command: events.Finish) -> None:
        self._finish = command
        self._record("finished", command.reason)

    def _ignore(self, command: events.Command) -> None:
        """Nobody reads a refusal here, and nobody has a rival."""

    def _record(self, kind: str, text: str, worker: int | None = None, step: int | None = None) -> None:
        if self._sink is not None:
            self._sink(EventRecord(self._agenda.now, kind, text, worker, step))


def _step_record(closed: events.ClosedStep, update: Update, *, at: float, received: int) -> StepRecord:
    seen = update.statistics or Statistics(update.norm)
    return StepRecord(
        **vars(closed), applied_at=at, norm=update.norm, bytes=received, inner=seen.inner, distance=seen.distance
    )


_CARRIED_OUT: dict[type[events.Command], Callable[[Simulation, Any], None]] = {
    events.Use: Simulation._use,
    events.Publish: Simulation._publish,
    events.Send: Simulation._send,
    events.Apply: Simulation._apply,
    events.Evaluate: Simulation._look,
    events.Checkpoint: Simulation._save,
    events.Note: Simulation._note,
    events.Admit: Simulation._admit,
    events.Finish: Simulation._finished,
    events.Reject: Simulation._ignore,
    events.Probe: Simulation._ignore,
    events.Refuse: Simulation._ignore,
}
