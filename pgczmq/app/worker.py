"""One worker process: find the master, join, compute until the run is over."""

import asyncio
import faulthandler
import logging
import os
import signal
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

from pgczmq.app.allowed import check_allowed
from pgczmq.app.build import coded_scheme_of, delay_of
from pgczmq.app.faults import faults_of
from pgczmq.app.interrupts import SIGNALS, Interrupts
from pgczmq.app.keys import Connection, connection
from pgczmq.app.model import begin_life, worker_compute
from pgczmq.app.processes import cores, keep_large_blocks
from pgczmq.config import RunConfig, loads
from pgczmq.core.delays import NoDelay
from pgczmq.core.pipeline import Pipeline
from pgczmq.errors import ConfigError, PgcError
from pgczmq.extensions import reason
from pgczmq.net import wire
from pgczmq.net.auth import PLAIN, Security
from pgczmq.net.compute import WorkerCompute
from pgczmq.net.conditions import Conditions
from pgczmq.net.faulty import conditions_of
from pgczmq.net.sockets import Sockets
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker

log = logging.getLogger("pgczmq.worker")

INTERRUPTED = 75
"""Exit code of a run that can be gone on with, and of its workers."""

DEFAULT_MASTER = "tcp://127.0.0.1:5555"
MASTER_TIMEOUT = 600.0
"""Seconds until a worker gives up a master that does not answer."""


def way_to_master(given: str | None, environment: Mapping[str, str], directory: Path) -> Connection:
    """Where the master is: ``--master``, else PGC_MASTER, else what the connection file says, else this host.

    Whatever the address, keys are those of the connection file (PGC_CONNECT, else ./pgc-connect.json), if it has any.

    Raises:
        ConfigError: the connection file cannot be used.
    """
    said = connection(environment, directory) or Connection(DEFAULT_MASTER, PLAIN)
    return Connection(given or environment.get("PGC_MASTER") or said.master, said.security)


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``; scheme and port may be left out.

    Raises:
        ConfigError: it is no such address.
    """
    rest = address.removeprefix("tcp://")
    host, _, port = rest.rpartition(":") if ":" in rest and not rest.endswith("]") else (rest, "", "5555")
    bare = host.strip("[]")
    bracketed = host == f"[{bare}]"
    valid = bare and bracketed == (":" in bare) and "/" not in bare and port.isdecimal() and 0 < int(port) < 65536
    if not valid:
        raise ConfigError(f"a master's address is tcp://HOST:PORT, for example tcp://10.0.0.5:5555: got {address!r}.")
    return bare, int(port)


class Preparation:
    """Builds what a worker needs, and keeps model and data: with the same master, restarted, they are the same.

    Args:
        threads: torch threads when the run leaves it to the worker.
        allowed: what a run may name beside what is built in, see ``allowed.asked_for``.
    """

    def __init__(self, threads: int, allowed: Collection[str]) -> None:
        self._threads = threads
        self._allowed = allowed
        self._kind: tuple[object, ...] = ()
        self._kept: tuple[WorkerCompute, Conditions] | None = None

    def __call__(self, welcome: wire.Welcome) -> Prepared:
        """What an admitted worker needs; imports torch where the task is one of its own.

        Raises:
            JoinRefused: the run asks for what this worker's user has not allowed.
            ConfigError: something about the task does not work.
        """
        config = loads(welcome.config)
        check_allowed(config, self._allowed)
        compute, conditions = self._built(config, welcome)
        scheme = coded_scheme_of(config)
        pipeline = Pipeline(
            welcome.worker,
            welcome.held,
            schedule=scheme.schedule,
            on_new_step=scheme.on_new_step,
            delay=NoDelay().seconds if config.deterministic else delay_of(config).seconds,
        )
        return Prepared(compute, pipeline, conditions)

    def _built(self, config: RunConfig, welcome: wire.Welcome) -> tuple[WorkerCompute, Conditions]:
        kind = (welcome.run, welcome.config, welcome.worker, tuple(welcome.held), tuple(welcome.coefficients))
        if self._kept is not None and kind == self._kind:
            begin_life(self._kept[0], welcome)
            return self._kept
        self._kept = None  # its memory is for the next one
        compute = worker_compute(config, welcome, threads=self._threads)
        self._kind, self._kept = kind, (compute, conditions_of(faults_of(config), welcome.worker))
        return self._kept


async def serve(
    host: str,
    port: int,
    number: int | None,
    *,
    security: Security = PLAIN,
    allowed: Collection[str] = (),
    threads: int | None = None,
    master_timeout: float = MASTER_TIMEOUT,
) -> wire.Bye:
    """Run one worker until the run is over; SIGTERM and SIGINT make it say goodbye and leave.

    Args:
        host, port: the master's control address.
        number: this worker's, None for the lowest free.
        security: how it connects.
        allowed: what a run may name beside what is built in, see ``allowed.asked_for``.
        threads: torch threads; all cores unless set here or in the run.
        master_timeout: seconds to wait for a master that does not answer.

    Raises:
        JoinRefused, AuthenticationFailed, MasterUnreachable: as net.worker.Worker.run.
    """
    with Sockets(security=security) as sockets:
        sockets.farewell = 0.5
        worker = Worker(
            sockets,
            host=host,
            port=port,
            number=number,
            prepare=Preparation(threads or cores(), allowed),
            master_timeout=master_timeout,
        )
        with Interrupts(_heard_by_workers()) as interrupts:
            interrupts.end(lambda number: worker.leave(f"signal {number.name}", 128 + number))
            try:
                return await worker.run()
            except Exception as error:
                worker.leave(f"{type(error).__name__}: {error}")
                raise


def _heard_by_workers() -> tuple[signal.Signals, ...]:
    """A local worker, to whom SIGINT means nothing, leaves Ctrl+C to its master."""
    ignored = {signal.SIGINT} if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else set()
    return tuple(number for number in SIGNALS if number not in ignored)


def local(
    host: str, port: int, number: int, log_file: str, allowed: Collection[str] = (), security: Security = PLAIN
) -> None:
    """A worker of ``pgc local``, in a process of its own; writes to a log file and ends with an exit code."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    os._exit(exit_code_of(serve(host, port, number, security=security, allowed=allowed, threads=1)))


def exit_code_of(serving: Coroutine[Any, Any, wire.Bye]) -> int:
    """Run what ``serve`` returned, with its errors as one logged sentence and an exit code.

    The caller must end the process with it: a compute thread may still be busy.
    """
    keep_large_blocks()
    faulthandler.enable()  # a model that writes to parameters it shares ends here, and this says where
    try:
        bye = asyncio.run(serving)
    except PgcError as error:
        log.error("%s", error)
        return error.exit_code
    except Exception as error:
        log.exception("the worker failed")
        log.error("%s", reason(error))
        return 70
    log.info("the run is over: %s", bye.reason)
    # Whatever starts an interrupted master again is to start its workers again, too.
    return bye.exit if bye.exit == INTERRUPTED or bye.exit >= 128 else 0
