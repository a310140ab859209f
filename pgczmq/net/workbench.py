"""A worker at work: carries out what the pipeline asks for, and sees to it that answers arrive.

Compute runs on one thread beside the loop. The newest parameters replace older ones that were not begun; the
last answer is kept until its step closes. When the master does not list it, it is asked; when it says that it lacks it,
the answer is sent again.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio

from pgczmq.core import pipeline
from pgczmq.core.pipeline import Pipeline
from pgczmq.net import wire
from pgczmq.net.beside import Beside
from pgczmq.net.compute import WorkerCompute
from pgczmq.net.conditions import Conditions, Sending
from pgczmq.net.payload import Lease, Sealed
from pgczmq.net.ways import Ends

log = logging.getLogger("pgczmq.worker")

BEATS_BEFORE_QUERY = 2
SENDINGS_AT_MOST = 3
"""Of an answer that the master refuses each time."""
BEATS_BETWEEN_PULLS = 30
"""A pulled copy of the parameters may be long on its way."""

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine beside the others; its failure is the worker's."""


@dataclass(frozen=True)
class Prepared:
    """What the application builds for an admitted worker.

    Args:
        compute: evaluates gradients.
        pipeline: decides.
        heartbeat: seconds between signs of life.
        conditions: that it works under.
    """

    compute: WorkerCompute
    pipeline: Pipeline
    heartbeat: float
    conditions: Conditions = field(default_factory=Conditions)


@dataclass
class _Sent:
    """The last answer, kept to be sent again.

    Args:
        sending: how many times it has been sent.
        has_left: whether it, or the last query about it, has left this process.
        beats: that have come since then and did not list it.
    """

    step: int
    frames: Sequence[Any]
    sending: int
    has_left: Callable[[], bool]
    beats: int = 0


@dataclass
class _Clock:
    """Where the time of the step in hand went, seconds.

    Evaluations and the delay are measured between the pipeline's events, so that they add up without gaps: what the
    simulator needs to tell the same story again.
    """

    step: int
    received_at: float
    wait: float
    since: float  # the last event
    evaluations: list[float] = field(default_factory=list)
    encoding: float = 0.0
    delay: float = 0.0

    def lap(self, at: float) -> float:
        """The time since the last event; a new one begins."""
        seconds, self.since = at - self.since, at
        return seconds


@dataclass(frozen=True)
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
    """

    def __init__(
        self,
        prepared: Prepared,
        mine: dict[str, Any],
        *,
        ends: Ends,
        gradients: zmq.asyncio.Socket,
        beside: Beside,
        start: Start,
    ) -> None:
        self._compute: WorkerCompute = prepared.compute
        self._pipeline: Pipeline = prepared.pipeline
        self._conditions = prepared.conditions
        self._mine = mine
        self._ends = ends
        self._gradients = gradients
        self._beside = beside
        self._start = start
        self._beats_waited = 0  # for parameters
        self._pulled = -1
        self._sent: _Sent | None = None
        self._loaded = -1
        self._newest: _Params | None = None
        self._in_hand: _Params | None = None
        self._received_at = 0.0
        self._clock: _Clock | None = None  # of the step in hand
        self._dropped: deque[_Clock] = deque(maxlen=wire.DROPPED_AT_MOST)
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
                self._dropped.append(_Clock(newest.step, self._received_at, 0.0, at))
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
        self._ask_if_unlisted(beat)

    def take_beacon(self, step: int) -> None:
        """The parameters of a step went before this over the same socket: if they have not come, they are lost."""
        newest = -1 if self._newest is None else self._newest.step
        if step > max(newest, self._pulled) and self._pipeline.idle:
            self._pull(step)

    def _pull(self, step: int) -> None:
        log.info("pulling step %d: its broadcast did not come", step)
        self._beats_waited, self._pulled = 0, step
        self._send([wire.pack(wire.Pull(**self._mine))])

    def take_refusal(self, message: wire.Refused) -> None:
        """The master did not take an answer: spoiled on its way, or, when that happens too often, wrong in itself."""
        log.warning("the master refused the answer to step %d: %s", message.step, message.reason)
        sent = self._sent
        if sent is not None and sent.step == message.step and sent.sending >= SENDINGS_AT_MOST:
            self._sent = None

    def take_again(self, message: wire.Again) -> None:
        """The master lacks an answer; unless that was about an earlier sending of it, this one is lost."""
        sent = self._sent
        if sent is not None and (sent.step, sent.sending) == (message.step, message.sending):
            log.info("sending the answer to step %d again", sent.step)
            self._send_answer(sent.step, sent.frames, sent.sending + 1)

    def _ask_if_unlisted(self, beat: wire.Beat) -> None:
        """An answer that has left this process and is not listed two beats later is lost, or still on its way.

        A slow link keeps many megabytes for that long, so it is asked for behind the answer before it is sent again.
        """
        sent = self._sent
        if sent is not None and sent.step < beat.open_step:
            self._sent = None
        if sent is None or sent.step != beat.open_step or self._mine["worker"] in beat.arrived:
            return
        if sent.has_left():
            sent.beats += 1
        if sent.beats >= BEATS_BEFORE_QUERY:
            query = wire.Query(step=sent.step, sending=sent.sending, **self._mine)
            sent.has_left, sent.beats = self._tracked([wire.pack(query)]), 0

    def _send_answer(self, step: int, frames: Sequence[Any], sending: int = 1) -> None:
        self._sent = _Sent(step, frames, sending, self._tracked(frames))

    def _tracked(self, frames: Sequence[Any]) -> Callable[[], bool]:
        """Send; returns what tells whether it has left this process."""
        sending = self._send(frames)
        return lambda: sending.done() and sending.result().done

    def _send(self, frames: Sequence[Any]) -> Sending:
        """Send now, or as soon as the master can be reached."""
        sending = self._conditions.send(self._gradients, frames)
        if not sending.done():
            self._start(_wait(sending))
        return sending

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
                    self._give_up(at)
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
                self._answer(command, self._put_down())
            case pipeline.Report():
                self._send([wire.pack(self._header(command, self._put_down()))])

    async def _sleep(self, command: pipeline.Delay) -> None:
        await asyncio.sleep(command.seconds)
        at = time.monotonic()
        if self._clock is not None and self._clock.step == command.step:
            self._clock.delay = self._clock.lap(at)
        self._feed(pipeline.DelayOver(command.step), at)

    def _take_in_hand(self, step: int, at: float) -> None:
        """A step begins with the newest parameters there are; later ones must not replace them half-way."""
        assert self._newest is not None
        if self._in_hand is None or self._in_hand.step != step:
            self._put_away()
            self._in_hand = self._newest
            self._give_up(at)
            self._clock = _Clock(step, self._received_at, at - self._received_at, at)
        self.state = "computing"

    def _give_up(self, at: float) -> None:
        """The step in hand, if there is one, will not be answered."""
        if self._clock is not None:
            self._clock.delay = self._clock.lap(at)
            self._dropped.append(self._clock)
            self._clock = None

    def _put_down(self) -> _Clock:
        """The step in hand is answered."""
        assert self._clock is not None
        clock, self._clock = self._clock, None
        return clock

    def _put_away(self) -> None:
        """The parameters in hand are not read any more."""
        if self._in_hand is not None:
            self._in_hand.lease.release()

    def _evaluate(self, command: pipeline.EvaluatePlace) -> None:
        assert self._in_hand is not None and self._in_hand.step == command.step
        lease, upcoming = self._in_hand.lease, self._pipeline.upcoming()
        self._beside.call("evaluate", self._evaluated, self._compute_place, command, upcoming, lease)

    def _evaluated(self, loss: float | None) -> None:
        at = time.monotonic()
        assert self._clock is not None
        self._clock.evaluations.append(self._clock.lap(at))
        if loss is None:
            log.info("the parameters of step %d were taken back: evaluated for nothing", self._clock.step)
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

    def _answer(self, command: pipeline.Answer, clock: _Clock) -> None:
        begun = time.monotonic()

        def answer(encoded: tuple[float, Sealed]) -> None:
            norm, sealed = encoded
            clock.encoding = time.monotonic() - begun
            header = self._header(command, clock, norm, sealed.block)
            self._send_answer(command.step, [wire.pack(header), *sealed.frames])

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
        clock: _Clock,
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
            wait=clock.wait,
            compute=sum(clock.evaluations) + clock.encoding,
            delay=clock.delay,
            received_at=clock.received_at,
            evaluations=clock.evaluations,
            **self._told_dropped(command.step),
            **self._mine,
        )

    def _told_dropped(self, step: int) -> dict[str, Any]:
        """What was given up between the answer before and this step, once; what came later is for the next answer."""
        if not self._dropped:
            return {}
        earlier = {clock.step: clock for clock in self._dropped if clock.step < step}
        later = [clock for clock in self._dropped if clock.step >= step]
        self._dropped.clear()
        self._dropped.extend(later)
        told = [earlier[number] for number in sorted(earlier)]
        return {
            "dropped": [clock.step for clock in told],
            "dropped_received_at": [clock.received_at for clock in told],
            "dropped_delay": [clock.delay for clock in told],
            "dropped_evaluated": [len(clock.evaluations) for clock in told],
            "dropped_evaluations": [seconds for clock in told for seconds in clock.evaluations],
        }


async def _wait(sending: Sending) -> None:
    await sending
