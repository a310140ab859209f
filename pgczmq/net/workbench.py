"""A worker at work: carries out what the pipeline asks for, and sees to it that answers arrive.

Compute runs on one thread beside the loop. The newest parameters replace older ones that were not begun; the
last answer is kept until its step closes and is sent again when the master does not list it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio

from pgczmq.core import pipeline
from pgczmq.core.pipeline import Pipeline
from pgczmq.net import wire
from pgczmq.net.compute import WorkerCompute

log = logging.getLogger("pgczmq.worker")

BEATS_BEFORE_RESEND = 2
BEATS_BETWEEN_PULLS = 3

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine beside the others; its failure is the worker's."""


@dataclass(frozen=True)
class Prepared:
    """What the application builds for an admitted worker.

    Args:
        compute: evaluates gradients.
        pipeline: decides.
        heartbeat: seconds between signs of life.
    """

    compute: WorkerCompute
    pipeline: Pipeline
    heartbeat: float


@dataclass
class _Sent:
    """The last answer, kept to be sent again."""

    step: int
    frames: Sequence[Any]
    tracker: zmq.MessageTracker | None = None
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


class Workbench:
    """The steps of one worker, from the moment it is prepared.

    Args:
        prepared: compute and pipeline.
        mine: what all its messages carry: run, master, worker, incarnation.
        gradients: the socket for answers and pulls.
        thread: where compute runs, one call at a time.
        start: runs a coroutine beside the others.
    """

    def __init__(
        self,
        prepared: Prepared,
        mine: dict[str, Any],
        *,
        gradients: zmq.asyncio.Socket,
        thread: Executor,
        start: Start,
    ) -> None:
        self._compute: WorkerCompute = prepared.compute
        self._pipeline: Pipeline = prepared.pipeline
        self._mine = mine
        self._gradients = gradients
        self._thread = thread
        self._start = start
        self._beats_since_pull = 0
        self._sent: _Sent | None = None
        self._loaded = -1
        self._params: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        self._in_hand: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        self._received_at = 0.0
        self._clock: _Clock | None = None  # of the step in hand
        self._dropped: deque[_Clock] = deque(maxlen=wire.DROPPED_AT_MOST)
        self.state = "idle"

    @property
    def step(self) -> int:
        """The step in hand, or the last one begun; -1 before the first."""
        return self._pipeline.step

    # ------------------------------------------------------------ what comes in

    def take_params(self, message: wire.Params, frames: Sequence[zmq.Frame]) -> None:
        """Parameters came, broadcast or pulled; the sizes are right."""
        self._beats_since_pull = BEATS_BETWEEN_PULLS  # whatever was pulled is here
        at = time.monotonic()
        if self._params is None or message.step > self._params[0].step:
            if self._params is not None and self._params[0].step > self._pipeline.step:
                self._dropped.append(_Clock(self._params[0].step, self._received_at, 0.0, at))
            self._params = (message, frames)
            self._received_at = at
        self._feed(pipeline.Published(message.step, message.batch_fraction), at)

    def take_beat(self, beat: wire.Beat) -> None:
        """The master says which step is open and whose answers are in: pull or send again what was lost."""
        behind_by = beat.open_step - self._pipeline.step
        was_behind = self._pipeline.is_behind
        self._feed(pipeline.Opened(beat.open_step), time.monotonic())
        self._beats_since_pull += 1
        if self._pipeline.is_behind and (was_behind or behind_by > 1) and self._beats_since_pull > BEATS_BETWEEN_PULLS:
            log.info("pulling step %d: its broadcast did not come", beat.open_step)
            self._beats_since_pull = 0
            self._start(self._send_header(wire.Pull(**self._mine)))
        self._send_again_if_lost(beat)

    def take_refusal(self, message: wire.Refused) -> None:
        """The master did not take an answer: it is not sent again."""
        log.warning("the master refused the answer to step %d: %s", message.step, message.reason)
        if self._sent is not None and self._sent.step == message.step:
            self._sent = None

    def _send_again_if_lost(self, beat: wire.Beat) -> None:
        """An answer that has left this process and is still not listed two beats later was lost on the way."""
        sent = self._sent
        if sent is not None and sent.step < beat.open_step:
            self._sent = None
        if sent is None or sent.step != beat.open_step or self._mine["worker"] in beat.arrived:
            return
        if sent.tracker is not None and sent.tracker.done:
            sent.beats += 1
        if sent.beats >= BEATS_BEFORE_RESEND:
            log.info("sending the answer to step %d again", sent.step)
            sent.beats, sent.tracker = 0, None
            self._start(self._send_answer(sent))

    async def _send_header(self, message: wire.Header) -> None:
        await self._gradients.send_multipart([wire.pack(message)])

    async def _send_answer(self, sent: _Sent) -> None:
        sent.tracker = await self._gradients.send_multipart(sent.frames, copy=False, track=True)

    # ------------------------------------------------------------ what the pipeline wants

    def _feed(self, event: pipeline.WorkerEvent, at: float) -> None:
        for command in self._pipeline.handle(event):
            match command:
                case pipeline.EvaluatePlace():
                    self._take_in_hand(command.step, at)
                    self._start(self._evaluate(command))
                case pipeline.Delay():
                    self.state = "delayed"
                    self._start(self._sleep(command))
                case pipeline.Answer():
                    self._start(self._answer(command, self._put_down()))
                case pipeline.Report():
                    self._start(self._send_header(self._header(command, self._put_down(), None)))
        if self._pipeline.idle:
            self.state = "idle"
            self._give_up(at)

    async def _sleep(self, command: pipeline.Delay) -> None:
        await asyncio.sleep(command.seconds)
        at = time.monotonic()
        if self._clock is not None and self._clock.step == command.step:
            self._clock.delay = self._clock.lap(at)
        self._feed(pipeline.DelayOver(command.step), at)

    def _take_in_hand(self, step: int, at: float) -> None:
        """A step begins with the newest parameters there are; later ones must not replace them half-way."""
        assert self._params is not None
        if self._in_hand is None or self._in_hand[0].step != step:
            self._in_hand = self._params
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

    async def _evaluate(self, command: pipeline.EvaluatePlace) -> None:
        assert self._in_hand is not None and self._in_hand[0].step == command.step
        frames = self._in_hand[1]
        loop = asyncio.get_running_loop()
        loss = await loop.run_in_executor(self._thread, self._compute_place, command, frames)
        at = time.monotonic()
        assert self._clock is not None
        self._clock.evaluations.append(self._clock.lap(at))
        self._feed(pipeline.Evaluated(loss), at)

    def _compute_place(self, command: pipeline.EvaluatePlace, frames: Sequence[zmq.Frame]) -> float:
        """On the compute thread: take over the step's parameters once, then evaluate."""
        if self._loaded != command.step:
            self._compute.load(frames[1].buffer, frames[0].buffer)
            self._loaded = command.step
        return self._compute.evaluate(command.step, command.place, command.batch_fraction)

    async def _answer(self, command: pipeline.Answer, clock: _Clock) -> None:
        begun = time.monotonic()
        gradient, norm, buffers = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute.encode)
        clock.encoding = time.monotonic() - begun
        header = self._header(command, clock, norm)
        sent = _Sent(command.step, [wire.pack(header), buffers, gradient])
        self._sent = sent
        await self._send_answer(sent)

    def _header(self, command: pipeline.Answer | pipeline.Report, clock: _Clock, norm: float | None) -> wire.Gradient:
        return wire.Gradient(
            step=command.step,
            ages=list(command.ages),
            fresh=[partition for partition, _ in command.losses],
            losses=[loss for _, loss in command.losses],
            norm=norm,
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
