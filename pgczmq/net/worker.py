"""The worker's driver: joins a run, keeps listening while it computes, sends what the pipeline asks for.

    hello -> welcome -> (model and data are built) -> beacon -> prepared -> steps ... -> bye

Compute runs on one thread beside the loop. The newest parameters replace older ones that were not begun; the
last answer is kept until its step closes and is sent again when the master does not list it.
"""

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import zmq
import zmq.asyncio

from pgczmq import __version__
from pgczmq.core import pipeline
from pgczmq.core.pipeline import Pipeline
from pgczmq.errors import JoinRefused, MasterUnreachable, WireError
from pgczmq.net import wire
from pgczmq.net.compute import WorkerCompute
from pgczmq.net.sockets import Sockets, endpoint, send_now
from pgczmq.net.watchdog import watch

log = logging.getLogger("pgczmq.worker")

HELLO_SECONDS = (0.1, 1.0)  # first and longest pause between hellos
OVERSLEPT_SECONDS = 1.0
BEATS_BEFORE_RESEND = 2
BEATS_BETWEEN_PULLS = 3


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


Prepare = Callable[[wire.Welcome], Prepared]
"""Builds model, data and pipeline; slow, called on the compute thread."""


@dataclass
class _Sent:
    """The last answer, kept to be sent again."""

    step: int
    frames: Sequence[Any]
    tracker: zmq.MessageTracker | None = None
    beats: int = 0


@dataclass
class _Clock:
    """Where the time of the step in hand went, seconds."""

    wait: float = 0.0
    compute: float = 0.0
    delay: float = 0.0


class Worker:
    """One worker of one run.

    Args:
        sockets: makes and closes them.
        host: the master's numeric address.
        port: its control port.
        number: this worker's, None for the lowest free one.
        prepare: builds what it needs once it is welcome.
        patience: seconds to wait for a master that does not answer or has gone silent.
    """

    def __init__(
        self, sockets: Sockets, *, host: str, port: int, number: int | None, prepare: Prepare, patience: float
    ) -> None:
        self._sockets = sockets
        self._host = host
        self._port = port
        self._number = number
        self._prepare = prepare
        self._patience = patience
        self._incarnation = uuid.uuid4().hex[:16]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_at = self._looked_at = time.monotonic()
        self._state = "joining"
        self._beats_since_pull = 0
        self._sent: _Sent | None = None
        self._loaded = -1
        self._params: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        self._in_hand: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        self._received_at = 0.0
        self._clock = _Clock()
        self._refusals = 0
        self._mine: dict[str, Any] = {}

    # ------------------------------------------------------------ life

    async def run(self) -> wire.Bye:
        """Join, work until the master says that the run is over, and return what it said.

        Raises:
            JoinRefused: the master said no, and why.
            MasterUnreachable: it did not answer for ``patience`` seconds.
        """
        loop = asyncio.get_running_loop()
        self._bye: asyncio.Future[wire.Bye] = loop.create_future()
        self._welcome: asyncio.Future[wire.Welcome] = loop.create_future()
        self._beacon = asyncio.Event()
        name = "?" if self._number is None else str(self._number)
        self._control = self._sockets.control_dealer(endpoint(self._host, self._port), f"{name}:{self._incarnation}")
        try:
            self._start(self._read(self._control, self._on_control))
            self._start(self._say_hello())
            self._start(self._live())
            return await self._bye
        finally:
            for task in self._tasks:
                task.cancel()
            self._thread.shutdown(wait=False, cancel_futures=True)

    def leave(self, reason: str, exit_code: int = 0) -> None:
        """Tell the master that this worker is about to go, and end ``run``."""
        if self._mine:
            self._send_control(wire.Leaving(reason=reason, **self._mine))
        if not self._bye.done():
            self._bye.set_result(wire.Bye(run="", master="", exit=exit_code, reason=reason))

    async def _live(self) -> None:
        """Everything after the welcome."""
        welcome = await self._welcome
        log.info("worker %d joined run %s", welcome.worker, welcome.run)
        self._state = "preparing"
        beating = self._start(self._beat(1.0))
        prepared = await asyncio.get_running_loop().run_in_executor(self._thread, self._prepare, welcome)
        beating.cancel()
        self._compute, self._pipeline = prepared.compute, prepared.pipeline
        self._held = welcome.held
        self._sizes = [prepared.compute.buffer_bytes, 4 * prepared.compute.parameter_count]
        self._open_bulk(welcome)
        self._start(self._beat(prepared.heartbeat))
        await self._beacon.wait()
        self._state = "idle"
        self._say_prepared()

    def _say_prepared(self) -> None:
        self._send_control(wire.Prepared(fingerprint=dict(self._compute.fingerprint), **self._mine))

    def _open_bulk(self, welcome: wire.Welcome) -> None:
        gradients = endpoint(self._host, welcome.gradients_port)
        name = f"{welcome.worker}:{self._incarnation}"
        self._gradients = self._sockets.bulk_dealer(gradients, name, sum(self._sizes))
        self._params_socket = self._sockets.subscriber(endpoint(self._host, welcome.params_port), sum(self._sizes))
        self._start(self._read(self._gradients, self._on_bulk))
        self._start(self._read(self._params_socket, self._on_bulk))
        self._start(watch(lambda seconds: log.warning("the event loop was blocked for %.2f s", seconds)))

    def _start(self, routine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(routine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._bye.done():
            self._bye.set_exception(task.exception() or RuntimeError("unknown"))

    # ------------------------------------------------------------ what comes in

    async def _read(
        self, source: zmq.asyncio.Socket, take: Callable[[wire.ToWorker, Sequence[zmq.Frame]], None]
    ) -> None:
        while True:
            frames = await source.recv_multipart(copy=False)
            try:
                message = wire.to_worker(frames[0].buffer)
                self._check_master(message)
                self._heard_at = time.monotonic()
                take(message, frames[1:])
            except WireError as error:
                self._refusals += 1
                if self._refusals == 1:
                    log.warning("refused a message: %s; more of its kind are only counted", error)

    def _check_master(self, message: wire.ToWorker) -> None:
        if not isinstance(message, wire.FromMaster) or not self._mine:
            return
        if (message.run, message.master) != (self._mine["run"], self._mine["master"]):
            raise WireError(f"the message belongs to run {message.run} of master {message.master}, not to this one")

    def _on_control(self, message: wire.ToWorker, frames: Sequence[zmq.Frame]) -> None:
        match message:
            case wire.Welcome():
                self._on_welcome(message)
            case wire.Rejected():
                raise JoinRefused(f"the master does not take this worker: {message.reason}.")
            case wire.Beat():
                self._say_alive()
                if self._state not in {"joining", "preparing"}:
                    self._on_beat(message)
            case wire.Refused():
                log.warning("the master refused the answer to step %d: %s", message.step, message.reason)
                if self._sent is not None and self._sent.step == message.step:
                    self._sent = None
            case wire.Bye():
                if not self._bye.done():
                    self._bye.set_result(message)
            case _:
                raise WireError(f"{message.type} does not belong on the control socket")

    def _on_welcome(self, welcome: wire.Welcome) -> None:
        if self._welcome.done():
            return
        self._mine = {
            "run": welcome.run,
            "master": welcome.master,
            "worker": welcome.worker,
            "incarnation": self._incarnation,
        }
        self._welcome.set_result(welcome)

    def _on_bulk(self, message: wire.ToWorker, frames: Sequence[zmq.Frame]) -> None:
        match message:
            case wire.Params():
                wire.check_payload(frames, self._sizes)
                if self._state == "preparing":
                    # A beacon like any other: an answer before "prepared" would be turned down, and the step lost.
                    self._beacon.set()
                    return
                self._beats_since_pull = BEATS_BETWEEN_PULLS  # whatever was pulled is here
                if self._params is None or message.step > self._params[0].step:
                    self._params = (message, frames)
                    self._received_at = time.monotonic()
                self._feed(pipeline.Published(message.step, message.batch_fraction))
            case wire.Beacon():
                self._beacon.set()
            case wire.Bye():
                if not self._bye.done():
                    self._bye.set_result(message)
            case _:
                raise WireError(f"{message.type} does not belong on a bulk socket")

    def _on_beat(self, beat: wire.Beat) -> None:
        if not beat.ready:
            self._say_prepared()
        behind_by = beat.open_step - self._pipeline.step
        was_behind = self._pipeline.is_behind
        self._feed(pipeline.Opened(beat.open_step))
        self._beats_since_pull += 1
        if self._pipeline.is_behind and (was_behind or behind_by > 1) and self._beats_since_pull > BEATS_BETWEEN_PULLS:
            log.info("pulling step %d: its broadcast did not come", beat.open_step)
            self._beats_since_pull = 0
            self._start(self._send_header(wire.Pull(**self._mine)))
        self._send_again_if_lost(beat)

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
            sent.beats = 0
            self._start(self._send_answer(sent))

    # ------------------------------------------------------------ what goes out

    async def _say_hello(self) -> None:
        hello = wire.Hello(
            worker=self._number,
            incarnation=self._incarnation,
            package=__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        pause, longest = HELLO_SECONDS
        while not self._welcome.done():
            self._send_control(hello)
            self._give_up_if_silent(pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _beat(self, seconds: float) -> None:
        while True:
            self._say_alive()
            self._give_up_if_silent(seconds)
            await asyncio.sleep(seconds)

    def _say_alive(self) -> None:
        if self._mine:
            self._send_control(wire.Heartbeat(state=self._state, step=self._step_in_hand(), **self._mine))

    def _step_in_hand(self) -> int:
        return -1 if self._state in {"joining", "preparing"} else self._pipeline.step

    def _give_up_if_silent(self, seconds: float) -> None:
        """Called about every so many seconds."""
        now = time.monotonic()
        if now - self._looked_at > seconds + OVERSLEPT_SECONDS:
            # This process was stopped, or its machine slept: what the master said meanwhile is not read yet.
            self._heard_at += now - self._looked_at
        self._looked_at = now
        silent = now - self._heard_at
        if silent > self._patience:
            where = endpoint(self._host, self._port)
            raise MasterUnreachable(
                f"the master at {where} has not answered for {silent:.0f} s. Is it running there, and is the port open?"
            )

    def _send_control(self, message: wire.Header) -> None:
        """Small and now, or not at all: it is said again soon."""
        send_now(self._control, [wire.pack(message)])

    async def _send_header(self, message: wire.Header) -> None:
        await self._gradients.send_multipart([wire.pack(message)])

    async def _send_answer(self, sent: _Sent) -> None:
        sent.tracker = await self._gradients.send_multipart(sent.frames, copy=False, track=True)

    # ------------------------------------------------------------ what the pipeline wants

    def _feed(self, event: pipeline.WorkerEvent) -> None:
        for command in self._pipeline.handle(event):
            match command:
                case pipeline.EvaluatePlace():
                    self._take_in_hand(command.step)
                    self._start(self._evaluate(command))
                case pipeline.Delay():
                    self._state = "delayed"
                    self._clock.delay = command.seconds
                    over = pipeline.DelayOver(command.step)
                    asyncio.get_running_loop().call_later(command.seconds, self._feed, over)
                case pipeline.Answer():
                    self._start(self._answer(command, self._clock))
                case pipeline.Report():
                    self._start(self._send_header(self._header(command, self._clock, None)))
        if self._pipeline.idle:
            self._state = "idle"

    def _take_in_hand(self, step: int) -> None:
        """A step begins with the newest parameters there are; later ones must not replace them half-way."""
        assert self._params is not None
        if self._in_hand is None or self._in_hand[0].step != step:
            self._in_hand = self._params
            self._clock = _Clock(wait=time.monotonic() - self._received_at)
        self._state = "computing"

    async def _evaluate(self, command: pipeline.EvaluatePlace) -> None:
        assert self._in_hand is not None and self._in_hand[0].step == command.step
        begun = time.monotonic()
        frames = self._in_hand[1]
        loop = asyncio.get_running_loop()
        loss = await loop.run_in_executor(self._thread, self._compute_place, command, frames)
        self._clock.compute += time.monotonic() - begun
        self._feed(pipeline.Evaluated(loss))

    def _compute_place(self, command: pipeline.EvaluatePlace, frames: Sequence[zmq.Frame]) -> float:
        """On the compute thread: take over the step's parameters once, then evaluate."""
        if self._loaded != command.step:
            self._compute.load(frames[1].buffer, frames[0].buffer)
            self._loaded = command.step
        return self._compute.evaluate(command.step, command.place, command.batch_fraction)

    async def _answer(self, command: pipeline.Answer, clock: _Clock) -> None:
        begun = time.monotonic()
        gradient, norm, buffers = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute.encode)
        clock.compute += time.monotonic() - begun
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
            compute=clock.compute,
            delay=clock.delay,
            **self._mine,
        )
