"""A master and its workers over real sockets on the loopback, in one event loop.

``run`` is a whole run that nobody disturbs. ``running`` gives every worker sockets of its own, so that one can be
killed (its connections just close) and started again; ``Stranger`` speaks the protocol by hand.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import zmq
from numpy_task import NumpyMaster, NumpyWorker

from pgczmq.core import schemes
from pgczmq.core.delays import DelayModel, NoDelay
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.faults import FaultPlan
from pgczmq.core.pipeline import Pipeline
from pgczmq.core.schemes import Scheme, Settings
from pgczmq.gather.intake import Intake
from pgczmq.net import memory, wire
from pgczmq.net.compute import Aside, Snapshot
from pgczmq.net.conditions import Conditions
from pgczmq.net.exchange import Exchange
from pgczmq.net.faulty import conditions_of
from pgczmq.net.hub import Assignment, Hub
from pgczmq.net.line import Failed, Line, Take
from pgczmq.net.master import Ending, Master
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker
from pgczmq.picture import Source
from pgczmq.runlog import EventRecord, LatencyRecord, Record, StepRecord

BEAT = 0.2
HANG_SECONDS = 50.0
"""Under pytest's own time-outs, whose exception may end up in some task of a busy loop instead of in the test."""
RUN, MASTER = "run-1", "master-1"
NO_SHARED_MEMORY = memory.why_not_here()
shared_memory = pytest.mark.skipif(bool(NO_SHARED_MEMORY), reason=NO_SHARED_MEMORY or "there is shared memory")
both_payloads = pytest.mark.parametrize("payload", ["tcp", pytest.param("shm", marks=shared_memory)])


@dataclass
class Cluster:
    """One run in this process; keep the defaults unless the test is about them."""

    scheme: Scheme
    rules: Rules
    size: int = 1000
    delay: DelayModel = field(default_factory=NoDelay)
    payload: str = "tcp"
    wire_dtype: str = "float32"
    faults: FaultPlan = field(default_factory=lambda: FaultPlan(0))
    conditions: dict[int, Conditions] = field(default_factory=dict)
    incarnation: str = MASTER
    records: list[Record] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compute = NumpyMaster(self.size)
        self.intake = Intake()
        self.source: Source = self.intake.seen
        self._waiting: list[tuple[Callable[[Record], bool], asyncio.Future[Record]]] = []

    def open(self, sockets: Sockets, bind: str = "127.0.0.1", port: int = 0) -> None:
        """Bind the master's sockets and build the master."""
        rows = self.scheme.coefficients_NC.tolist()
        assignments = [Assignment(held, tuple(row)) for held, row in zip(self.scheme.placement.held, rows, strict=True)]
        exchange = Exchange(self.compute, payload=self.payload, wire_dtype=self.wire_dtype, workers=self.scheme.workers)
        self.hub = Hub(
            sockets,
            bind=bind,
            port=port,
            run=RUN,
            master=self.incarnation,
            config="",
            assignments=assignments,
            exchange=exchange,
        )
        engine = Engine(self.scheme, self.rules, self.delay.seconds, 0.0)
        aside = Aside(self._evaluate, lambda: None, lambda progress, _: f"saved {self._save(progress.steps)}")
        self.master = Master(
            engine,
            self.hub,
            compute=self.compute,
            aside=aside,
            sink=self._sink,
            heartbeat=self.rules.heartbeat,
            started_at=time.monotonic(),
            source=self.source,
        )
        self.engine = engine

    def close(self) -> None:
        """Give shared memory back."""
        self.hub.exchange.close()

    async def _evaluate(self, step: int, snapshot: Snapshot) -> None:
        self.evaluated.append(step)

    def _save(self, step: int) -> str:
        self.saved.append(step)
        return f"step_{step}"

    def worker(
        self, sockets: Sockets, number: int | None, seconds: float = 0.0, make: type[NumpyWorker] = NumpyWorker
    ) -> Worker:
        """A worker that is not running yet; ``seconds`` is what an evaluation takes."""
        return Worker(
            sockets,
            host="127.0.0.1",
            port=self.hub.ports.control,
            number=number,
            prepare=lambda welcome: self.prepared(welcome, seconds, make),
            master_timeout=20.0,
        )

    def prepared(self, welcome: wire.Welcome, seconds: float = 0.0, make: type[NumpyWorker] = NumpyWorker) -> Prepared:
        """What a worker of this run builds."""
        pipeline = Pipeline(
            welcome.worker,
            welcome.held,
            schedule=self.scheme.schedule,
            on_new_step=self.scheme.on_new_step,
            delay=NoDelay().seconds if self.rules.deterministic else self.delay.seconds,
        )
        compute = make(self.size, welcome.held, welcome.coefficients, seconds)
        conditions = self.conditions.setdefault(welcome.worker, conditions_of(self.faults, welcome.worker))
        return Prepared(compute, pipeline, conditions)

    # ------------------------------------------------------------ what happened

    def _sink(self, record: Record) -> None:
        self.records.append(record)
        self.intake.put(record)
        for wanted, future in self._waiting:
            if not future.done() and wanted(record):
                future.set_result(record)

    async def saw(self, wanted: Callable[[Record], bool]) -> Record:
        """The first record that is wanted, past or coming."""
        for record in self.records:
            if wanted(record):
                return record
        return await self.sees(wanted)

    async def sees(self, wanted: Callable[[Record], bool]) -> Record:
        """The next record that is wanted, from now on."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        return await future

    def over(self, ending: asyncio.Task[Ending]) -> None:
        """Nothing more will happen; whoever still waits for it fails instead of hanging."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(AssertionError(f"the run is over: {ending}"))

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def latencies(self) -> list[LatencyRecord]:
        return [record for record in self.records if isinstance(record, LatencyRecord)]

    def events(self, kind: str) -> list[EventRecord]:
        return [record for record in self.records if isinstance(record, EventRecord) and record.kind == kind]


def is_step(number: int) -> Callable[[Record], bool]:
    """The record of this step or of a later one."""
    return lambda record: isinstance(record, StepRecord) and record.step >= number


def is_event(kind: str, worker: int | None = None, text: str = "") -> Callable[[Record], bool]:
    """An event of this kind, about this worker if one is given, whose text contains ``text``."""

    def wanted(record: Record) -> bool:
        alike = isinstance(record, EventRecord) and record.kind == kind and text in record.text
        return alike and worker in (None, record.worker)  # type: ignore[union-attr]

    return wanted


async def run(
    cluster: Cluster,
    seconds: Callable[[int], float] = lambda worker: 0.0,
    order: Iterable[int | None] | None = None,
    opened: Callable[[Cluster], None] = lambda cluster: None,
) -> Ending:
    """The whole run, undisturbed; returns how it ended once every worker has said goodbye.

    ``order`` are the workers' numbers as they start, ``opened`` may change the sockets before.
    """
    with Sockets() as sockets, contextlib.closing(cluster):
        cluster.open(sockets)
        opened(cluster)
        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
            ending = group.create_task(cluster.master.run())
            for number in range(cluster.scheme.workers) if order is None else order:
                group.create_task(cluster.worker(sockets, number, seconds(number or 0)).run())
        return ending.result()


class Life:
    """One life of a worker's process, with sockets of its own."""

    def __init__(
        self, cluster: Cluster, number: int | None, seconds: float = 0.0, make: type[NumpyWorker] = NumpyWorker
    ) -> None:
        self.sockets = Sockets()
        self.worker = cluster.worker(self.sockets, number, seconds, make)
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> wire.Bye:
        with self.sockets:
            return await self.worker.run()

    async def kill(self) -> None:
        """Its connections close and that is all that anybody hears."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Scene:
    """A run that is going on."""

    cluster: Cluster
    ending: asyncio.Task[Ending]
    lives: list[Life] = field(default_factory=list)

    def start(self, number: int | None, seconds: float = 0.0, make: type[NumpyWorker] = NumpyWorker) -> Life:
        self.lives.append(Life(self.cluster, number, seconds, make))
        return self.lives[-1]

    async def ended(self) -> Ending:
        """How the master ended; every worker still alive has then said goodbye too."""
        ending = await self.ending
        await asyncio.gather(*(life.task for life in self.lives), return_exceptions=True)
        return ending


@contextlib.asynccontextmanager
async def running(cluster: Cluster, workers: Iterable[int] | None = None, seconds: float = 0.0) -> AsyncIterator[Scene]:
    """A master and these workers (all by default), killed at the end whatever happened."""
    with Sockets() as sockets, contextlib.closing(cluster):
        cluster.open(sockets)
        scene = Scene(cluster, asyncio.create_task(cluster.master.run()))
        scene.ending.add_done_callback(cluster.over)
        for number in range(cluster.scheme.workers) if workers is None else workers:
            scene.start(number, seconds)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                yield scene
        finally:
            scene.ending.cancel()
            await asyncio.gather(scene.ending, *(life.kill() for life in scene.lives), return_exceptions=True)


class Stranger:
    """A peer whose every message is the test's; use as a context manager."""

    def __init__(self, cluster: Cluster, worker: int | None = None, incarnation: str | None = None) -> None:
        self.cluster = cluster
        self.worker = worker
        self.incarnation = incarnation or uuid.uuid4().hex[:16]
        self.sockets = Sockets()
        self.sockets.farewell = 1.0  # what the test has sent leaves
        self.ports = cluster.hub.ports
        name = f"{'?' if worker is None else worker}:{self.incarnation}"
        self.control = Asked(self.sockets.control_dealer(endpoint("127.0.0.1", self.ports.control), name))

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *error: object) -> None:
        self.sockets.__exit__(None, None, None)

    @property
    def mine(self) -> dict[str, Any]:
        return {"run": RUN, "master": self.cluster.incarnation, "worker": self.worker, "incarnation": self.incarnation}

    def hello(self, **changes: Any) -> wire.Hello:
        told = {"worker": self.worker, "incarnation": self.incarnation, "package": "0", "host": "elsewhere", "pid": 1}
        return wire.Hello(**told | changes)

    async def say(self, message: wire.Header | bytes, *frames: bytes) -> None:
        """Send on the control socket once it is connected."""
        await self.control.send_multipart([_packed(message), *frames])

    async def hear(self, kind: type) -> Any:
        """The next message of this kind on the control socket; others are passed over."""
        while True:
            message = wire.to_worker((await self.control.recv_multipart())[0])
            if isinstance(message, kind):
                return message

    async def join(self) -> wire.Welcome:
        """Hello until welcome, then the connections that a worker opens."""
        await self.say(self.hello())
        welcome: wire.Welcome = await self.hear(wire.Welcome)
        self.worker = welcome.worker
        name = f"{self.worker}:{self.incarnation}"
        nbytes = 4 * self.cluster.size
        self.bulk = Asked(self.sockets.bulk_dealer(endpoint("127.0.0.1", self.ports.gradients), name, nbytes))
        self.broadcast = Asked(self.sockets.subscriber(endpoint("127.0.0.1", self.ports.params), nbytes))
        await self.broadcast.recv_multipart()
        return welcome

    async def be_ready(self) -> None:
        """Join and be counted."""
        await self.join()
        await self.say(wire.Prepared(fingerprint=dict(NumpyMaster.fingerprint), payload="tcp", **self.mine))

    async def send(self, message: wire.Header | bytes, *frames: Any) -> None:
        """Send on the gradients socket."""
        await self.bulk.send_multipart([_packed(message), *frames])

    def gradient(self, step: int, **changes: Any) -> wire.Gradient:
        """The header of an answer to ``step`` in which everything is fresh, unless changed."""
        held = list(self.cluster.scheme.placement.held[self.worker or 0])
        said = {"step": step, "ages": [0] * len(held), "fresh": held, "losses": [0.5] * len(held), "norm": 1.0}
        durations = {"wait": 0.0, "compute": 0.0, "delay": 0.0}
        return wire.Gradient(**{**self.mine, **said, **durations, **changes})


def _packed(message: wire.Header | bytes) -> bytes:
    return message if isinstance(message, bytes) else wire.pack(message)


class Asked:
    """A line whose messages are asked for, one by one."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._came: asyncio.Queue[list[bytes]] | None = None

    async def recv_multipart(self) -> list[bytes]:
        if self._came is None:
            came = self._came = asyncio.Queue()
            self.line.listen(lambda frames: came.put_nowait([frame.bytes for frame in frames]), unexpected)
        return await self._came.get()

    async def recv(self) -> bytes:
        [frame] = await self.recv_multipart()
        return frame

    async def send_multipart(self, frames: Sequence[Any]) -> None:
        """Once it is with ZeroMQ."""
        sending = self.line.send(frames)
        while sending.tracker is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def send(self, frame: Any) -> None:
        await self.send_multipart([frame])

    def send_now(self, frames: Sequence[Any]) -> zmq.ZMQError | None:
        return self.line.send_now(frames)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.line.socket, name)


def unexpected(error: Exception) -> None:
    """What a test does not provoke."""
    raise error


class Intercepted:
    """A line of which ``swallow`` takes out messages that are received: a network that loses them."""

    def __init__(self, line: Line, swallow: Callable[[list[zmq.Frame]], bool]) -> None:
        self._line = line
        self._swallow = swallow
        self.swallowed: list[Any] = []

    def listen(self, take: Take, failed: Failed) -> None:
        def sift(frames: list[zmq.Frame]) -> None:
            if self._swallow(frames):
                self.swallowed.append(frames)
            else:
                take(frames)

        self._line.listen(sift, failed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)


def scheme(name: str, workers: int, **settings: object) -> Scheme:
    """A scheme by name."""
    return schemes.build(Settings(name, workers, **settings))  # type: ignore[arg-type]


def rules(steps: int, **changes: object) -> Rules:
    """Rules with a quick heartbeat."""
    return Rules(steps=steps, **{"heartbeat": BEAT, "step_timeout": 20.0, "start_timeout": 10.0} | changes)  # type: ignore[arg-type]
