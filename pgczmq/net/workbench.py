"""A worker at work: carries out what the pipeline asks for.

Compute runs on one thread beside the loop. The newest parameters replace older ones that were not begun.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

from pgczmq.core import pipeline
from pgczmq.core.pipeline import Pipeline
from pgczmq.core.values import value
from pgczmq.net import wire
from pgczmq.net.answers import Answers
from pgczmq.net.beside import Beside
from pgczmq.net.compute import WorkerCompute
from pgczmq.net.conditions import Conditions
from pgczmq.net.line import Line
from pgczmq.net.payload import Lease, Sealed
from pgczmq.net.tasks import Start
from pgczmq.net.timesheet import StepTimes, Timesheet
from pgczmq.net.ways import Ends

log = logging.getLogger("pgczmq.worker")

BEATS_BETWEEN_PULLS = 30
"""A pulled copy of the parameters may be long on its way."""


@dataclass(frozen=True)
class Prepared:
    """What the application builds for an admitted worker.

    Args:
        compute: evaluates gradients.
        pipeline: decides.
        conditions: that it works under.
    """

    compute: WorkerCompute
    pipeline: Pipeline
    conditions: Conditions = field(default_factory=Conditions)


@value
class _Params:
    """The parameters of a step, as long as the lease holds."""

    step: int
    lease: Lease


class Workbench:
    """The steps of one worker, from the moment it is prepared.

    Args:
        prepared: compute and pipeline.
        mine: what all its messages carry: run, master, worker, incarnation.
        ends: how payloads come and go.
        gradients: the socket for answers and pulls.
        beside: where compute runs.
        start: runs a coroutine beside the others.

    Attributes:
        answers: where they go, and where the master's words about them belong.
    """

    def __init__(
        self,
        prepared: Prepared,
        mine: dict[str, Any],
        *,
        ends: Ends,
        gradients: Line,
        beside: Beside,
        start: Start,
    ) -> None:
        self._compute: WorkerCompute = prepared.compute
        self._pipeline: Pipeline = prepared.pipeline
        self._conditions = prepared.conditions
        self._mine = mine
        self._ends = ends
        self.answers = Answers(gradients, mine, prepared.conditions)
        self._beside = beside
        self._start = start
        self._beats_waited = 0  # for parameters
        self._pulled = -1
        self._loaded = -1
        self._newest: _Params | None = None
        self._in_hand: _Params | None = None
        self._received_at = 0.0
        self._times = Timesheet()
        self._queue: deque[tuple[pipeline.WorkerEvent, float]] = deque()
        self._busy = False
        self.state = "idle"

    @property
    def step(self) -> int:
        """The step in hand, or the last one begun; -1 before the first."""
        return self._pipeline.step

    # ------------------------------------------------------------ what comes in

    def take_params(self, message: wire.Params, frames: Sequence[zmq.Frame]) -> None:
        """Parameters came, broadcast or pulled; the sizes are right."""
        self._beats_waited = 0
        at = time.monotonic()
        newest = self._newest
        if newest is None or message.step > newest.step:
            lease = self._ends.incoming.lease(message.step, message.block, frames)
            if lease is None:
                return  # written over: newer ones are on their way
            if newest is not None and newest.step > self._pipeline.step:
                self._times.skip(newest.step, self._received_at, at)
            if newest is not None and newest is not self._in_hand:
                newest.lease.release()
            self._newest = _Params(message.step, lease)
            self._received_at = at
        self._feed(pipeline.Published(message.step, message.batch_fraction), at)

    def take_beat(self, beat: wire.Beat) -> None:
        """The master says which step is open and whose answers are in: pull what was lost, ask after what may be."""
        self._feed(pipeline.Opened(beat.open_step), time.monotonic())
        self._beats_waited += 1
        if self._pipeline.is_behind and self._beats_waited > BEATS_BETWEEN_PULLS:
            self._pull(beat.open_step)
        self.answers.take_beat(beat)

    def take_beacon(self, step: int) -> None:
        """The parameters of a step went before this over the same socket: if they have not come, they are lost."""
        newest = -1 if self._newest is None else self._newest.step
        if step > max(newest, self._pulled) and self._pipeline.idle:
            self._pull(step)

    def _pull(self, step: int) -> None:
        log.info("pulling step %d: its broadcast did not come", step)
        self._beats_waited, self._pulled = 0, step
        self.answers.send([wire.pack(wire.Pull(**self._mine))])

    def close(self) -> None:
        """Nothing is read any more: for the compute thread, behind the last call there, when nothing else will come."""
        for params in (self._newest, self._in_hand):
            if params is not None:
                params.lease.release()
        self._newest = self._in_hand = None

    # ------------------------------------------------------------ what the pipeline wants

    def _feed(self, event: pipeline.WorkerEvent, at: float) -> None:
        """Hand an event to the pipeline and carry out its commands; events they cause come after them."""
        self._queue.append((event, at))
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                event, at = self._queue.popleft()
                for command in self._pipeline.handle(event):
                    self._do(command, at)
                if self._pipeline.idle:
                    self.state = "idle"
                    self._put_away()
                    self._times.give_up(at)
        finally:
            self._busy = False

    def _do(self, command: pipeline.WorkerCommand, at: float) -> None:
        if isinstance(command, pipeline.EvaluatePlace):
            self._take_in_hand(command.step, at)
            self._evaluate(command)
            return
        self._put_away()
        match command:
            case pipeline.Delay():
                self.state = "delayed"
                self._start(self._sleep(command))
            case pipeline.Answer():
                self._answer(command, self._times.put_down())
            case pipeline.Report():
                self.answers.send([wire.pack(self._header(command, self._times.put_down()))])

    async def _sleep(self, command: pipeline.Delay) -> None:
        await asyncio.sleep(command.seconds)
        at = time.monotonic()
        times = self._times.in_hand
        if times is not None and times.step == command.step:
            times.delay = times.lap(at)
        self._feed(pipeline.DelayOver(command.step), at)

    def _take_in_hand(self, step: int, at: float) -> None:
        """A step begins with the newest parameters there are; later ones must not replace them half-way."""
        assert self._newest is not None
        if self._in_hand is None or self._in_hand.step != step:
            self._put_away()
            self._in_hand = self._newest
            self._times.begin(step, self._received_at, at)
        self.state = "computing"

    def _put_away(self) -> None:
        """The parameters in hand are not read any more."""
        if self._in_hand is not None:
            self._in_hand.lease.release()

    def _evaluate(self, command: pipeline.EvaluatePlace) -> None:
        assert self._in_hand is not None and self._in_hand.step == command.step
        lease, upcoming = self._in_hand.lease, self._pipeline.upcoming()
        self._beside.call(self._conditions.evaluating, self._evaluated, self._compute_place, command, upcoming, lease)

    def _evaluated(self, loss: float | None) -> None:
        at = time.monotonic()
        times = self._times.in_hand
        assert times is not None
        times.evaluations.append(times.lap(at))
        if loss is None:
            log.info("the parameters of step %d were taken back: evaluated for nothing", times.step)
        self._feed(pipeline.Lost() if loss is None else pipeline.Evaluated(loss), at)

    def _compute_place(
        self, command: pipeline.EvaluatePlace, upcoming: pipeline.EvaluatePlace | None, lease: Lease
    ) -> float | None:
        """On the compute thread: evaluate at the step's parameters; None when they were taken back meanwhile."""
        compute, memory = self._compute, lease.memory
        try:
            if self._loaded != command.step:
                compute.load(*self._ends.size.split(memory))
                self._loaded = command.step
            room, _ = self._ends.size.split(self._ends.outgoing.room())
            if upcoming is not None:
                compute.prefetch(upcoming.step, upcoming.place, upcoming.batch_fraction)
            self._conditions.begins(command.step)
            loss = compute.evaluate(command.step, command.place, command.batch_fraction, room)
        except Exception:
            if lease.holds():
                raise
        else:
            if lease.holds():
                return loss
        compute.forget(command.place)
        return None

    def _answer(self, command: pipeline.Answer, times: StepTimes) -> None:
        begun = time.monotonic()

        def answer(encoded: tuple[float, Sealed]) -> None:
            norm, sealed = encoded
            times.encoding = time.monotonic() - begun
            header = self._header(command, times, norm, sealed.block)
            self.answers.send_answer(command.step, [wire.pack(header), *sealed.frames])

        self._beside.call("encode", answer, self._encode, command.step)

    def _encode(self, step: int) -> tuple[float, Sealed]:
        """On the compute thread."""
        vector, buffers = self._ends.size.split(self._ends.outgoing.room())
        norm = self._compute.encode(vector, buffers)
        self._conditions.encoded(step, vector)
        return norm, self._ends.outgoing.seal(step)

    def _header(
        self,
        command: pipeline.Answer | pipeline.Report,
        times: StepTimes,
        norm: float | None = None,
        block: int | None = None,
    ) -> wire.Gradient:
        return wire.Gradient(
            step=command.step,
            ages=list(command.ages),
            fresh=[partition for partition, _ in command.losses],
            losses=[loss for _, loss in command.losses],
            norm=norm,
            block=block,
            **times.told(),
            **self._times.tell_dropped(command.step),
            **self._mine,
        )
