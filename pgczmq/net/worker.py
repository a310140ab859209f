"""The worker's driver: joins a run, listens, shows that it lives, and leaves.

    hello -> welcome -> (model and data are built) -> beacon -> prepared -> steps ... -> bye

What it does with the steps is the workbench's business.
"""

import asyncio
import itertools
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import zmq
import zmq.asyncio

from pgczmq import __version__
from pgczmq.errors import JoinRefused, MasterUnreachable, WireError
from pgczmq.net import wire
from pgczmq.net.beside import Beside
from pgczmq.net.sockets import Sockets, endpoint, send_now
from pgczmq.net.watchdog import watch
from pgczmq.net.ways import choose, ends
from pgczmq.net.workbench import Prepared, Workbench

log = logging.getLogger("pgczmq.worker")

HELLO_SECONDS = (0.1, 1.0)  # first and longest pause between hellos
OVERSLEPT_SECONDS = 1.0
MESSAGES_IN_A_ROW = 32


Prepare = Callable[[wire.Welcome], Prepared]
"""Builds model, data and pipeline; slow, called on the compute thread."""


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
        self._beside = Beside(self._failed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_at = self._looked_at = time.monotonic()
        self._prepared: Prepared | None = None
        self._early: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        self._bench: Workbench | None = None
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
            self._beside.close()

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
        self._way = choose(welcome)
        beating = self._start(self._beat(1.0))
        prepared = await self._beside.start("prepare", self._prepare, welcome)
        beating.cancel()
        compute = prepared.compute
        self._fingerprint = dict(compute.fingerprint)
        self._ends = ends(
            welcome, self._way, parameter_count=compute.parameter_count, buffer_bytes=compute.buffer_bytes
        )
        self._open_bulk(welcome)
        self._start(self._beat(prepared.heartbeat))
        await self._beacon.wait()
        self._prepared = prepared
        self._say_prepared()

    def _say_prepared(self) -> None:
        self._send_control(wire.Prepared(fingerprint=self._fingerprint, payload=self._way, **self._mine))

    def _open_bulk(self, welcome: wire.Welcome) -> None:
        host = self._host if self._way == "tcp" else welcome.local
        gradients = endpoint(host, welcome.gradients_port)
        broadcast = endpoint(host, welcome.params_port)
        name = f"{welcome.worker}:{self._incarnation}"
        self._gradients = self._sockets.bulk_dealer(gradients, name, self._ends.size.total)
        self._params_socket = self._sockets.subscriber(broadcast, self._ends.size.total)
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
        if not task.cancelled() and task.exception() is not None:
            self._failed(task.exception() or RuntimeError("unknown"))

    def _failed(self, error: BaseException) -> None:
        if not self._bye.done():
            self._bye.set_exception(error)

    # ------------------------------------------------------------ what comes in

    async def _read(
        self, source: zmq.asyncio.Socket, take: Callable[[wire.ToWorker, Sequence[zmq.Frame]], None]
    ) -> None:
        for count in itertools.count(1):
            frames = await source.recv_multipart(copy=False)
            if count % MESSAGES_IN_A_ROW == 0:
                await asyncio.sleep(0)  # a receive that need not wait does not let others run
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
                if self._prepared is not None:
                    self._on_beat(message, self._prepared)
            case wire.Refused():
                if self._bench is not None:
                    self._bench.take_refusal(message)
            case wire.Bye():
                if not self._bye.done():
                    self._bye.set_result(message)
            case _:
                raise WireError(f"{message.type} does not belong on the control socket")

    def _on_beat(self, beat: wire.Beat, prepared: Prepared) -> None:
        """Work begins when the master says that it counts on this worker: an earlier answer would be turned down."""
        if self._bench is None:
            if not beat.ready:
                self._say_prepared()
                return
            self._bench = Workbench(
                prepared, self._mine, ends=self._ends, gradients=self._gradients, beside=self._beside, start=self._start
            )
            if self._early is not None:
                self._bench.take_params(*self._early)
                self._early = None
        self._bench.take_beat(beat)

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
                self._beacon.set()  # as good as one
                if self._bench is None:
                    self._early = (message, frames)
                else:
                    self._bench.take_params(message, frames)
            case wire.Beacon():
                self._beacon.set()
                if self._bench is not None:
                    self._bench.take_beacon(message.step)
            case wire.Bye():
                if not self._bye.done():
                    self._bye.set_result(message)
            case _:
                raise WireError(f"{message.type} does not belong on a bulk socket")

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
        state, step = ("preparing", -1) if self._bench is None else (self._bench.state, self._bench.step)
        if self._mine:
            self._send_control(wire.Heartbeat(state=state, step=step, **self._mine))

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
