"""The workers of a simulated run: carries out what their pipelines ask for, in virtual time.

Nothing is decided here. Parameters reach every worker in no time, in the order of worker numbers, unless
``Durations.parameters`` says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pgczmq.core.delays import NoDelay
from pgczmq.core.events import Arrived
from pgczmq.core.pipeline import (
    Answer,
    Delay,
    DelayOver,
    Evaluated,
    EvaluatePlace,
    Pipeline,
    Published,
    Report,
    WorkerCommand,
    WorkerEvent,
)
from pgczmq.core.schemes import Scheme
from pgczmq.sim.training import Training
from pgczmq.sim.virtual import ARRIVES, WORKS, Agenda, Durations


@dataclass(slots=True, eq=False)
class Life:
    """One life of a worker, and where the time of its step in hand went, in seconds."""

    worker: int
    incarnation: str
    pipeline: Pipeline
    alive: bool = True
    step: int = -1
    begun_at: float = 0.0
    compute: float = 0.0
    delay: float = 0.0


class Sender(Protocol):
    """Whoever a message is of."""

    @property
    def alive(self) -> bool:
        """Whether its messages on the way still arrive."""
        ...


@dataclass(slots=True, eq=False)
class Message:
    """An answer on its way, and what its latency record needs."""

    life: Sender
    event: Arrived
    payload: Any
    sent_at: float
    begun_at: float
    compute: float
    delay: float


class Workers(Protocol):
    """What a simulation asks of its workers; they answer by delivering messages."""

    @property
    def incarnations(self) -> list[tuple[int, str]]:
        """(worker, incarnation) of everybody alive."""
        ...

    def come(self, worker: int) -> str:
        """A worker begins a life; returns its incarnation."""
        ...

    def go(self, worker: int) -> str:
        """A worker dies; returns the incarnation that was."""
        ...

    def publish(self, step: int, batch_fraction: float) -> None:
        """The parameters of a step are for everybody."""
        ...

    def send(self, worker: int) -> None:
        """The parameters published last are for one worker."""
        ...

    def oldest_in_hand(self, otherwise: int) -> int:
        """The earliest step that somebody is working on."""
        ...

    def forget(self) -> None:
        """All of them, idle at the moment, lose what they retain."""
        ...


class Crew:
    """All workers there are at the moment.

    Args:
        scheme: what they hold, evaluate and do when they are behind.
        agenda: of the run.
        durations: how long everything takes.
        training: computes.
        deliver: takes a message when it is with the master.
    """

    def __init__(
        self,
        scheme: Scheme,
        agenda: Agenda,
        *,
        durations: Durations,
        training: Training,
        deliver: Callable[[Message], None],
    ) -> None:
        self._scheme = scheme
        self._agenda = agenda
        self._durations = durations
        self._training = training
        self._deliver = deliver
        self._lives: dict[int, Life] = {}  # by number
        self._born = [0] * scheme.workers
        self._published = Published(-1, 1.0)

    @property
    def incarnations(self) -> list[tuple[int, str]]:
        """(worker, incarnation) of everybody alive."""
        return [(life.worker, life.incarnation) for life in self._lives.values()]

    def come(self, worker: int) -> str:
        """A worker begins a life with nothing retained; returns its incarnation."""
        pipeline = Pipeline(
            worker,
            self._scheme.placement.held[worker],
            schedule=self._scheme.schedule,
            on_new_step=self._scheme.on_new_step,
            delay=self._durations.delay or NoDelay().seconds,
        )
        life = Life(worker, f"{worker}.{self._born[worker]}", pipeline)
        self._born[worker] += 1
        in_order = not self._lives or worker > next(reversed(self._lives))
        self._lives[worker] = life
        if not in_order:
            self._lives = dict(sorted(self._lives.items()))
        return life.incarnation

    def go(self, worker: int) -> str:
        """A worker dies, and with it its messages on the way; returns the incarnation that was."""
        life = self._lives.pop(worker)
        life.alive = False
        self._training.forget(worker)
        return life.incarnation

    def publish(self, step: int, batch_fraction: float) -> None:
        """The parameters of a step reach everybody, sooner or later."""
        published = self._published = Published(step, batch_fraction)
        parameters, now = self._durations.parameters, self._agenda.now
        if parameters is None:
            self._begin(published)
            return
        for life in self._lives.values():
            self._agenda.add(now + parameters(life.worker, step), WORKS, self._tell, life, published)

    def _begin(self, published: Published) -> None:
        """Everybody evaluates before anybody goes on: evaluations are a tenth slower with other work between them."""
        told = [(life, life.pipeline.handle(published)) for life in self._lives.values()]
        begun = [
            (life, command, self._compute(life, command))
            for life, commands in told
            for command in commands
            if isinstance(command, EvaluatePlace)  # new parameters lead to nothing else
        ]
        for life, command, loss in begun:
            self._obey(life, self._computed(life, command, loss))

    def send(self, worker: int) -> None:
        """The parameters published last reach one worker."""
        life = self._lives[worker]
        self._obey(life, life.pipeline.handle(self._published))

    def oldest_in_hand(self, otherwise: int) -> int:
        """The earliest step that somebody is working on."""
        in_hand = [life.pipeline.step for life in self._lives.values() if not life.pipeline.idle]
        return min(in_hand, default=otherwise)

    def forget(self) -> None:
        """All of them, idle at the moment, lose what they retain."""
        for life in self._lives.values():
            life.pipeline.forget()
            self._training.forget(life.worker)

    def _tell(self, life: Life, event: WorkerEvent) -> None:
        """Something ended for a worker that may be gone by now."""
        if life.alive:
            self._obey(life, life.pipeline.handle(event))

    def _obey(self, life: Life, commands: list[WorkerCommand]) -> None:
        """Carry a pipeline's commands out; the last one may lead to more at this very moment."""
        while commands:
            following: list[WorkerCommand] = []
            for command in commands:
                match command:
                    case EvaluatePlace():
                        following = self._computed(life, command, self._compute(life, command))
                    case Delay():
                        life.delay = command.seconds
                        over_at = self._agenda.now + command.seconds
                        self._agenda.add(over_at, WORKS, self._tell, life, DelayOver(command.step))
                    case Answer() | Report():
                        self._send(life, command)
            commands = following

    def _compute(self, life: Life, command: EvaluatePlace) -> float:
        """The loss; the gradient is retained, and what comes of it is for ``_computed``."""
        worker, step = life.worker, command.step
        if life.step != step:
            life.step, life.begun_at, life.compute, life.delay = step, self._agenda.now, 0.0, 0.0
        return self._training.evaluate(worker, step, command.place, command.batch_fraction)

    def _computed(self, life: Life, command: EvaluatePlace, loss: float) -> list[WorkerCommand]:
        """An evaluation takes its time; if that is none, the pipeline goes on at once."""
        evaluated = Evaluated(loss)
        duration = self._durations.evaluation
        seconds = 0.0 if duration is None else duration(life.worker, command.step, 1, command.batch_fraction)
        if seconds <= 0:
            return life.pipeline.handle(evaluated)
        life.compute += seconds
        self._agenda.add(self._agenda.now + seconds, WORKS, self._tell, life, evaluated)
        return []

    def _send(self, life: Life, command: Answer | Report) -> None:
        worker, now, step = life.worker, self._agenda.now, command.step
        payload, norm = self._training.encode(worker) if isinstance(command, Answer) else (None, None)
        duration, fraction = self._durations.communication, self._published.batch_fraction
        travel = 0.0 if duration is None else duration(worker, step, len(command.losses), fraction)
        at = now + travel
        arrived = Arrived(worker, life.incarnation, step, command.ages, command.losses, norm, at)
        message = Message(life, arrived, payload, now, life.begun_at, life.compute, life.delay)
        if travel > 0:
            self._agenda.add(at, ARRIVES, self._deliver, message)
        else:
            self._deliver(message)
