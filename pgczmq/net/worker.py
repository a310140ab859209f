"""The worker's driver: one life after the other, until a run is over or its master has been away for too long.

A life ends when its master is silent or does not know it any more: it was restarted, or its link was cut. The next one
looks the master up again and joins whatever run it finds there, with nothing of what the former one held.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pgczmq.errors import JoinRefused, MasterUnreachable
from pgczmq.net import wire
from pgczmq.net.beside import compute_thread
from pgczmq.net.born import Born, MasterLost, pauses
from pgczmq.net.conditions import Conditions
from pgczmq.net.incarnations import new_life, new_process
from pgczmq.net.life import Life, Prepare
from pgczmq.net.silence import Silence
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.workbench import Prepared

log = logging.getLogger("pgczmq.worker")

LOOK_SECONDS = 0.25
REMIND_SECONDS = 10.0


class Worker:
    """One worker process.

    Args:
        sockets: makes and closes them.
        host: the master's, a name or a numeric address.
        port: its control port.
        number: this worker's, None for the lowest free one.
        prepare: builds what it needs once it is welcome, in every life.
        master_timeout: seconds to wait for a master that does not answer or has gone silent.
    """

    def __init__(
        self, sockets: Sockets, *, host: str, port: int, number: int | None, prepare: Prepare, master_timeout: float
    ) -> None:
        self._sockets = sockets
        self._host = host
        self._port = port
        self._number = number
        self._prepare = prepare
        self._master_timeout = master_timeout
        self._resolver = ThreadPoolExecutor(1, thread_name_prefix="resolver")
        self._thread = compute_thread()
        self._conditions = Conditions()
        self.number = number  # or what it was called before, where it may have any
        self._silence = Silence(time.monotonic())
        self._heard_at: float | None = None
        self._lost_at: float | None = None  # while it has no master, after it had one
        self._reminded = 0.0
        self._why = ""  # there is no master
        self.life: Life | None = None

    async def run(self) -> wire.Bye:
        """Join, work until the master says that the run is over, and return what it said.

        Raises:
            JoinRefused: the master said no, and why.
            AuthenticationFailed: master and worker cannot trust each other.
            MasterUnreachable: it did not answer for ``master_timeout`` seconds.
        """
        self._bye: asyncio.Future[wire.Bye] = asyncio.get_running_loop().create_future()
        log.info("looking for the master at %s, for %g s at most", self._where, self._master_timeout)
        tasks = [self._start(self._live()), self._start(self._watch())]
        try:
            return await self._bye
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for thread in (self._thread, self._resolver):
                thread.shutdown(wait=False, cancel_futures=True)

    def leave(self, reason: str, exit_code: int = 0) -> None:
        """Tell the master, if there is one, that this worker is about to go, and end ``run``."""
        if self.life is not None:
            self.life.leave(reason)
        if not self._bye.done():
            self._bye.set_result(wire.Bye(run="", master="", exit=exit_code, reason=reason))

    def _start(self, routine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(routine)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._bye.done():
            self._bye.set_exception(task.exception() or RuntimeError("unknown"))

    # ------------------------------------------------------------ lives

    async def _live(self) -> None:
        process = new_process()
        incarnation = new_life(process)
        waits = pauses(incarnation)
        while not self._bye.done():
            try:
                self.life = await self._be_born(incarnation)
                bye = await self.life.run()
            except MasterLost as lost:
                self._lost(str(lost))
            except JoinRefused as refused:
                if self.number == self._number or (self.life is not None and self.life.mine):
                    raise  # with a number of its own, or of its choice: another one would be refused, too
                log.info("%s Asking for another number", refused)
                self.number = self._number
            else:
                if not self._bye.done():
                    self._bye.set_result(bye)
                return
            if self.life is not None:
                waits = pauses(incarnation) if self.life.has_worked else waits
                self.life.close()
                self.life = None
            await asyncio.sleep(next(waits))
            incarnation = new_life(process)

    async def _be_born(self, incarnation: str) -> Life:
        """The next life, at the address that the master has now."""
        loop = asyncio.get_running_loop()
        try:
            address = await loop.run_in_executor(self._resolver, resolve, self._host, self._port)
        except MasterUnreachable as error:  # now; names come and go, too
            raise MasterLost(str(error)) from None
        born = Born(address, self._port, self.number, incarnation, self._conditions, self._lost_at)
        return Life(
            self._sockets,
            born,
            prepare=self._prepare_and_keep,
            thread=self._thread,
            heard=self._heard,
            welcomed=self._welcomed,
            works=self._works,
        )

    def _prepare_and_keep(self, welcome: wire.Welcome) -> Prepared:
        """On the compute thread: what a worker works under stays with it from one life to the next."""
        prepared = self._prepare(welcome)
        self._conditions = prepared.conditions
        return prepared

    def _lost(self, why: str) -> None:
        """Say so once, when a master is lost that was there."""
        self._why = why
        if self._lost_at is None and self._heard_at is not None:
            self._lost_at = self._heard_at
            left = self._master_timeout - self._silence.seconds(time.monotonic())
            log.warning("%s: looking for it again, for %.0f s at most", why, max(0.0, left))

    # ------------------------------------------------------------ what a life tells

    def _heard(self, at: float) -> None:
        self._heard_at = at
        self._silence.heard(at)

    def _welcomed(self, welcome: wire.Welcome) -> None:
        self.number = welcome.worker
        if self._lost_at is None:
            log.info("worker %d joined run %s", welcome.worker, welcome.run)

    def _works(self, welcome: wire.Welcome) -> None:
        if self._lost_at is not None:
            seconds = time.monotonic() - self._lost_at
            log.info("worker %d is back in run %s after %.1f s", welcome.worker, welcome.run, seconds)
        self._lost_at = None

    # ------------------------------------------------------------ a silent master

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            at = time.monotonic()
            silent = self._silence.look(at, LOOK_SECONDS)
            if silent > self._master_timeout:
                raise MasterUnreachable(
                    f"the master at {self._where} has not answered for {silent:.0f} s"
                    f"{self._because()}. Is it running there, and is the port open?"
                )
            self._remind(silent)
            if self.life is not None:
                self.life.look(at, LOOK_SECONDS)

    def _remind(self, silent: float) -> None:
        """Every now and then, while there was no master yet."""
        if self._heard_at is None and silent > self._reminded + REMIND_SECONDS:
            self._reminded = silent
            left = self._master_timeout - silent
            log.warning("no master answers at %s%s: giving up in %.0f s", self._where, self._because(), left)

    @property
    def _where(self) -> str:
        return endpoint(self._host, self._port)

    def _because(self) -> str:
        return f" ({self._why})" if self._why else ""


def resolve(host: str, port: int) -> str:
    """The numeric address of a host; ZeroMQ would stall all sockets while it looks one up, so this comes before.

    Raises:
        MasterUnreachable: the name is not known.
    """
    if host.startswith("ipc://"):
        return host
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # IPv4 first: "localhost" is both, and a master listens on 127.0.0.1 unless told otherwise.
        return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
    except OSError as error:
        raise MasterUnreachable(f"the master's host {host} cannot be found: {error.strerror}.") from None
