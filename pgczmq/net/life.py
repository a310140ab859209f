"""One life of a worker: it joins a run, listens, shows that it lives, and ends with a bye or without its master.

    hello -> welcome -> (model and data are built) -> beacon -> prepared -> steps ... -> bye
      |         |                 |                      |          |         |
      +---------+-----------------+----------------------+----------+---------+----> MasterLost

Every life has an incarnation and sockets of its own, so that nothing of it can reach the next one's master. What it
does with the steps is the workbench's business.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import zmq

from pgczmq.errors import JoinRefused, WireError
from pgczmq.net import wire
from pgczmq.net.auth import Handshakes
from pgczmq.net.beside import Beside
from pgczmq.net.born import Born, MasterLost, pauses
from pgczmq.net.line import Line
from pgczmq.net.silence import Silence
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.tasks import Tasks
from pgczmq.net.watchdog import watch
from pgczmq.net.ways import choose
from pgczmq.net.workbench import Prepared, Workbench
from pgczmq.net.workplace import Workplace

log = logging.getLogger("pgczmq.worker")

KNOCK_SECONDS = 0.1
"""How often a hello is tried while nothing is connected; it does not leave this process then."""
SILENT_BEATS = 5
"""A master that has not been heard for so many of its heartbeats is lost,"""
SILENT_SECONDS = 1.0
"""and for so long at least: any process may have to wait for a core."""
CONNECT_SECONDS = 5.0
"""After so long without a connection the master's address is looked up again."""
WELCOME_SECONDS = 30.0
"""A connection over which no hello is answered for so long is not the master's any more."""

Prepare = Callable[[wire.Welcome], Prepared]
"""Builds model, data and pipeline; slow, called on the compute thread."""
Take = Callable[[wire.ToWorker, Sequence[zmq.Frame]], None]


class Life:
    """One life of one worker.

    Args:
        sockets: makes and closes them.
        born: what it begins with.
        prepare: builds what it needs once it is welcome.
        thread: where it computes, behind what an earlier life has begun there.
        heard: told of every message of the master's, and when it came.
        welcomed: told of the welcome.
        works: told of the welcome, once the master counts on this worker.

    Attributes:
        has_worked: the master has counted on it.
    """

    def __init__(
        self,
        sockets: Sockets,
        born: Born,
        *,
        prepare: Prepare,
        thread: ThreadPoolExecutor,
        heard: Callable[[float], None],
        welcomed: Callable[[wire.Welcome], None],
        works: Callable[[wire.Welcome], None],
    ) -> None:
        self._all_sockets = sockets
        self._born = born
        self._prepare = prepare
        self._beside = Beside(self._failed, thread)
        self._conditions = born.conditions
        self._tell_heard = heard
        self._tell_welcomed = welcomed
        self._tell_works = works
        loop = asyncio.get_running_loop()
        self._bye: asyncio.Future[wire.Bye] = loop.create_future()
        self._welcome: asyncio.Future[wire.Welcome] = loop.create_future()
        self._tasks = Tasks(self._failed)
        self._silence = Silence(time.monotonic())
        self._silent_at_most = WELCOME_SECONDS
        self._place: Workplace | None = None  # once its beacon was heard
        self.has_worked = False
        self._memory = ExitStack()  # what is shared with this life's master
        self._refusals = 0
        self.mine: dict[str, Any] = {}
        control = endpoint(born.host, born.port)
        name = "?" if born.number is None else str(born.number)
        self._control = sockets.control_dealer(control, f"{name}:{born.incarnation}")
        self._lines = [self._control]

    # ------------------------------------------------------------ life

    async def run(self) -> wire.Bye:
        """Join, work until the master says that the run is over, and return what it said.

        Raises:
            JoinRefused: the master said no, and why.
            AuthenticationFailed: it will never let this worker in.
            MasterLost: it is silent, or does not know this life.
        """
        try:
            self._listen(self._control, self._on_control)
            self._tasks.start(self._say_hello())
            self._tasks.start(self._live())
            return await self._bye
        finally:
            self._tasks.cancel()
            for line in self._lines:
                line.ignore()
            self._beside.hand_on(self._put_away)

    def leave(self, reason: str) -> None:
        """Tell the master that this worker is about to go. Before the welcome it only closes its connection."""
        if self.mine:
            self._send_control(wire.Leaving(reason=reason, **self.mine))

    def close(self) -> None:
        """There will be another life: nothing that this one has not sent yet reaches the other's master."""
        for line in self._lines:
            self._all_sockets.drop(line)

    def look(self, at: float, planned: float) -> None:
        """Called about every ``planned`` seconds: whether the master still lives."""
        silent = self._silence.look(at, planned)
        if silent > self._silent_at_most:
            self._failed(MasterLost(f"the master is silent for {silent:.1f} s"))

    def _put_away(self) -> None:
        """On the compute thread, when nothing is computed there any more: neither memory nor a model is held on to."""
        self._place = None
        self._memory.close()

    async def _live(self) -> None:
        """Everything after the welcome."""
        welcome = await self._welcome
        self._way = choose(welcome)
        beating = self._tasks.start(self._beat(1.0))
        prepared = await self._beside.start("prepare", self._prepare, welcome)
        beating.cancel()
        self._conditions = prepared.conditions
        self._fingerprint = dict(prepared.compute.fingerprint)
        place = Workplace(welcome, prepared, self._way, self.mine)
        self._memory.callback(place.close)
        for line in place.open(self._all_sockets, self._born.host):
            self._lines.append(line)
            self._listen(line, partial(self._on_bulk, place))
        self._tasks.start(watch(lambda seconds: log.warning("the event loop was blocked for %.2f s", seconds)))
        self._tasks.start(self._beat(welcome.heartbeat))
        await place.beacon.wait()
        self._place = place
        self._say_prepared()

    @property
    def _bench(self) -> Workbench | None:
        """Where it works, once the master counts on it."""
        return None if self._place is None else self._place.bench

    def _failed(self, error: BaseException) -> None:
        if not self._bye.done():
            self._bye.set_exception(error)

    # ------------------------------------------------------------ what comes in

    def _listen(self, line: Line, take: Take) -> None:
        handshakes = Handshakes(self._born.host, self._born.port, self._all_sockets.security)
        self._tasks.start(self._all_sockets.watch(line, handshakes))
        line.listen(partial(self._read, take), self._failed)

    def _read(self, take: Take, frames: Sequence[zmq.Frame]) -> None:
        if not self._conditions.hears():
            return
        try:
            message = wire.to_worker(frames[0].buffer)
            self._check_master(message)
            at = time.monotonic()
            self._silence.heard(at)
            self._tell_heard(at)
            take(message, frames[1:])
        except WireError as error:
            self._refusals += 1
            if self._refusals == 1:
                log.warning("refused a message: %s; more of its kind are only counted", error)

    def _check_master(self, message: wire.ToWorker) -> None:
        if not isinstance(message, wire.FromMaster) or not self.mine:
            return
        if (message.run, message.master) != (self.mine["run"], self.mine["master"]):
            raise WireError(f"the message belongs to run {message.run} of master {message.master}, not to this one")

    def _on_control(self, message: wire.ToWorker, frames: Sequence[zmq.Frame]) -> None:
        match message:
            case wire.Welcome():
                self._on_welcome(message)
            case wire.Rejected():
                self._on_rejected(message)
            case wire.Beat():
                self._say_alive()
                if self._place is not None:
                    self._on_beat(message, self._place)
            case wire.Again():
                if self._bench is not None:
                    self._bench.answers.take_again(message)
            case wire.Refused():
                if self._bench is not None:
                    self._bench.answers.take_refusal(message)
            case wire.Bye():
                self._on_bye(message)
            case _:
                raise WireError(f"{message.type} does not belong on the control socket")

    def _on_rejected(self, rejected: wire.Rejected) -> None:
        if rejected.again:
            raise MasterLost(f"the master does not know this worker: {rejected.reason}")
        raise JoinRefused(f"the master does not take this worker: {rejected.reason}.")

    def _on_bye(self, bye: wire.Bye) -> None:
        if not self._bye.done():
            self._bye.set_result(bye)

    def _on_beat(self, beat: wire.Beat, place: Workplace) -> None:
        """Work begins when the master says that it counts on this worker: an earlier answer would be turned down."""
        if place.bench is None and not beat.ready:
            self._say_prepared()
            return
        if place.bench is None:
            self.has_worked = True
            self._tell_works(self._welcome.result())
        bench = place.bench or place.begin(self._beside, self._tasks.start)
        bench.take_beat(beat)

    def _on_welcome(self, welcome: wire.Welcome) -> None:
        if self._welcome.done():
            return
        incarnation = self._born.incarnation
        self.mine = {
            "run": welcome.run,
            "master": welcome.master,
            "worker": welcome.worker,
            "incarnation": incarnation,
        }
        self._silent_at_most = max(SILENT_SECONDS, SILENT_BEATS * welcome.heartbeat)
        self._welcome.set_result(welcome)
        self._tell_welcomed(welcome)

    def _on_bulk(self, place: Workplace, message: wire.ToWorker, frames: Sequence[zmq.Frame]) -> None:
        if isinstance(message, wire.Bye):
            self._on_bye(message)
        else:
            place.take(message, frames)

    # ------------------------------------------------------------ what goes out

    async def _say_hello(self) -> None:
        waits = pauses(self._born.incarnation)
        alone_since = time.monotonic()
        while not self._welcome.done():
            if self._send_control(self._born.hello()):
                await asyncio.sleep(next(waits))
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > CONNECT_SECONDS:  # garbage ends a connection for good
                raise MasterLost("nothing answers")
            else:
                await asyncio.sleep(KNOCK_SECONDS)

    def _say_prepared(self) -> None:
        self._send_control(wire.Prepared(fingerprint=self._fingerprint, payload=self._way, **self.mine))

    async def _beat(self, seconds: float) -> None:
        while True:
            self._say_alive()
            await asyncio.sleep(seconds)

    def _say_alive(self) -> None:
        state, step = ("preparing", -1) if self._bench is None else (self._bench.state, self._bench.step)
        if self.mine:
            self._send_control(wire.Heartbeat(state=state, step=step, **self.mine))

    def _send_control(self, message: wire.Header) -> bool:
        """Small and now, or not at all: it is said again soon. Tells whether it has left."""
        return self._conditions.send_control(self._control, [wire.pack(message)])
