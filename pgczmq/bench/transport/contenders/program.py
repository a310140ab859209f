"""This program itself, without a model: a real master and real workers over real sockets.

``run_master`` and ``run_worker`` are for other benches too, whose processes are started in other ways.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from pgczmq.app import keygen, keys, processes
from pgczmq.app.keyfiles import CONNECTION_FILE
from pgczmq.bench.transport.turn import Crew, Turn, serve
from pgczmq.bench.transport.vectors import VectorMaster, VectorWorker
from pgczmq.bench.transport.work import FloatArray, Work
from pgczmq.core import schemes
from pgczmq.core.delays import NoDelay
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.pipeline import Pipeline
from pgczmq.core.schemes import Scheme
from pgczmq.core.settings import Settings
from pgczmq.errors import PgcError
from pgczmq.net import wire
from pgczmq.net.auth import PLAIN, Security
from pgczmq.net.compute import Aside, Snapshot
from pgczmq.net.exchange import Exchange
from pgczmq.net.hub import Assignment, Hub
from pgczmq.net.master import Ending, Master
from pgczmq.net.sockets import Sockets, threads_for
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker
from pgczmq.runlog import Record, StepRecord

HEARTBEAT = 2.0
MASTER_TIMEOUT = 60.0


@dataclass(frozen=True)
class Listening:
    """Where the master listens, and how payloads go.

    Args:
        bind: numeric address, or ipc://PATH, to which "-PORT" is added.
        port: control port, the other three follow; 0 for any free ones, which ipc does not have.
        payload: "tcp", which is ZeroMQ over whatever ``bind`` is, or "shm".
        wire_dtype: "float32" or "bfloat16".
        security: of all sockets.
    """

    bind: str = "127.0.0.1"
    port: int = 0
    payload: str = "tcp"
    wire_dtype: str = "float32"
    security: Security = PLAIN


@dataclass(frozen=True)
class Served:
    """What became of a run.

    Args:
        ending: how it ended.
        steps: when each was published and when applied, on ``time.monotonic``.
        params: after the last, float32 (P,).
    """

    ending: Ending
    steps: Sequence[tuple[float, float]]
    params: FloatArray


def run(turn: Turn) -> list[float]:
    """A turn. A step takes from its publication to that of the next, the last one until it is applied."""
    if turn.variant == "tcp-curve":
        keygen.make(_keys(turn), "tcp://127.0.0.1", [])
    listening = _listening(turn)
    if listening.wire_dtype == "bfloat16":
        import torch  # noqa: F401  before the workers are forked, not once in each of them
    crew = Crew(turn, worker, range(turn.workers))
    processes.keep_large_blocks()
    steps = run_master(turn.work, turn.steps, listening, opened=crew.tell).steps
    crew.join()
    published = [at for at, _ in steps]
    ends = [*published[1:], steps[-1][1]]
    return [end - begin for begin, end in zip(published, ends, strict=True)]


def worker(turn: Turn, number: int, pipe: Connection) -> None:
    """One worker process."""
    processes.keep_large_blocks()
    security: Security = PLAIN
    if turn.variant == "tcp-curve":
        security = keys.read_connection(_keys(turn) / CONNECTION_FILE).security
    run_worker(turn.work, _listening(turn).bind, int(pipe.recv()), number, security)


def _keys(turn: Turn) -> Path:
    """The directory of the turn's keys."""
    return Path(turn.scratch) / "keys"


def _listening(turn: Turn) -> Listening:
    """The variants are the names of the bench's rows."""
    if turn.variant == "tcp-curve":
        return Listening(security=keys.server(_keys(turn)))
    ways = {
        "shm": Listening(payload="shm"),
        "ipc": Listening(bind=f"ipc://{Path(turn.scratch)}/pgc", port=1),
        "tcp": Listening(),
        "tcp-bfloat16": Listening(wire_dtype="bfloat16"),
    }
    return ways[turn.variant]


def run_master(work: Work, steps: int, listening: Listening, *, opened: Callable[[int], None]) -> Served:
    """A whole run under dgd; ``opened`` is told the control port once workers may come.

    Raises:
        PgcError: the run ended early, or its result is wrong.
    """
    served = asyncio.run(_serve_master(work, steps, listening, opened))
    if len(served.steps) < steps:
        raise PgcError(f"the run ended after {len(served.steps)} of {steps} steps: {served.ending.reason}.")
    work.check(served.params, steps)
    return served


def run_worker(work: Work, host: str, port: int, number: int, security: Security = PLAIN) -> None:
    """One worker, until its master says that the run is over.

    Raises:
        JoinRefused, MasterUnreachable: as net.worker.Worker.run.
    """
    asyncio.run(_serve_worker(work, host, port, number, security))


async def _serve_master(work: Work, steps: int, listening: Listening, opened: Callable[[int], None]) -> Served:
    scheme = _scheme(work)
    compute = VectorMaster(work, processes.cores())
    exchange = Exchange(compute, payload=listening.payload, wire_dtype=listening.wire_dtype, workers=work.workers)
    steps_made: list[tuple[float, float]] = []  # whole records would grow with the workers
    started_at = time.monotonic()

    def keep(record: Record) -> None:
        if isinstance(record, StepRecord):
            steps_made.append((started_at + record.published_at, started_at + record.applied_at))

    try:
        threads = threads_for(4 * work.params, processes.cores())
        with Sockets(threads, listening.security) as sockets:
            sockets.farewell = 0.5
            hub = _hub(sockets, scheme, listening, exchange)
            master = Master(
                Engine(scheme, Rules(steps=steps, heartbeat=HEARTBEAT), NoDelay().seconds, 0.0),
                hub,
                compute=compute,
                aside=Aside(_evaluate, lambda: None, lambda progress, _: ""),
                sink=keep,
                heartbeat=HEARTBEAT,
                started_at=started_at,
            )
            opened(hub.ports.control)
            ending = await master.run()
    finally:
        exchange.close()
    return Served(ending, steps_made, compute.params)


async def _serve_worker(work: Work, host: str, port: int, number: int, security: Security) -> None:
    def prepare(welcome: wire.Welcome) -> Prepared:
        scheme = _scheme(work)
        pipeline = Pipeline(
            welcome.worker,
            welcome.held,
            schedule=scheme.schedule,
            on_new_step=scheme.on_new_step,
            delay=NoDelay().seconds,
        )
        return Prepared(VectorWorker(work, welcome.worker), pipeline)

    with Sockets(security=security) as sockets:
        await Worker(sockets, host=host, port=port, number=number, prepare=prepare, master_timeout=MASTER_TIMEOUT).run()


def _scheme(work: Work) -> Scheme:
    return schemes.build(Settings("dgd", work.workers))


def _hub(sockets: Sockets, scheme: Scheme, listening: Listening, exchange: Exchange) -> Hub:
    rows = scheme.coefficients_NC.tolist()
    return Hub(
        sockets,
        bind=listening.bind,
        port=listening.port,
        run="bench",
        master=uuid.uuid4().hex[:16],
        config="",
        assignments=[Assignment(held, tuple(row)) for held, row in zip(scheme.placement.held, rows, strict=True)],
        exchange=exchange,
    )


async def _evaluate(step: int, snapshot: Snapshot) -> None:
    """There is nothing to evaluate on."""


if __name__ == "__main__":
    serve(run)
