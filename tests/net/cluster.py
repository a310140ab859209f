"""A master and its workers over real sockets on the loopback, in one event loop."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from numpy_task import NumpyMaster, NumpyWorker

from pgczmq.core import schemes
from pgczmq.core.delays import DelayModel, NoDelay
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.pipeline import Pipeline
from pgczmq.core.schemes import Scheme, Settings
from pgczmq.net import wire
from pgczmq.net.compute import Aside, Snapshot
from pgczmq.net.hub import Assignment, Hub
from pgczmq.net.master import Ending, Master
from pgczmq.net.sockets import Sockets
from pgczmq.net.worker import Prepared, Worker
from pgczmq.runlog import Record

BEAT = 0.2


@dataclass
class Cluster:
    """One run in this process; keep the defaults unless the test is about them."""

    scheme: Scheme
    rules: Rules
    size: int = 1000
    delay: DelayModel = field(default_factory=NoDelay)
    records: list[Record] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compute = NumpyMaster(self.size)

    def open(self, sockets: Sockets) -> None:
        """Bind the master's sockets and build the master."""
        rows = self.scheme.coefficients_NC.tolist()
        assignments = [Assignment(held, tuple(row)) for held, row in zip(self.scheme.placement.held, rows, strict=True)]
        self.hub = Hub(
            sockets,
            bind="127.0.0.1",
            port=0,
            run="run-1",
            master="master-1",
            config="",
            assignments=assignments,
            message_bytes=4 * self.size,
        )
        engine = Engine(self.scheme, self.rules, self.delay.seconds, 0.0)
        aside = Aside(self._evaluate, lambda step: step, lambda step: f"step_{step}")
        self.master = Master(
            engine,
            self.hub,
            compute=self.compute,
            aside=aside,
            sink=self.records.append,
            heartbeat=self.rules.heartbeat,
            started_at=time.monotonic(),
        )
        self.engine = engine

    async def _evaluate(self, step: int, snapshot: Snapshot) -> None:
        self.evaluated.append(step)

    def worker(self, sockets: Sockets, number: int | None, seconds: float = 0.0) -> Worker:
        """A worker that is not running yet; ``seconds`` is what an evaluation takes."""
        return Worker(
            sockets,
            host="127.0.0.1",
            port=self.hub.ports.control,
            number=number,
            prepare=lambda welcome: self.prepared(welcome, seconds),
            patience=20.0,
        )

    def prepared(self, welcome: wire.Welcome, seconds: float = 0.0) -> Prepared:
        """What a worker of this run builds."""
        pipeline = Pipeline(
            welcome.worker,
            welcome.held,
            schedule=self.scheme.schedule,
            on_new_step=self.scheme.on_new_step,
            delay=NoDelay().seconds if self.rules.deterministic else self.delay.seconds,
        )
        compute = NumpyWorker(self.size, welcome.held, welcome.coefficients, seconds)
        return Prepared(compute, pipeline, self.rules.heartbeat)


async def run(cluster: Cluster, seconds: Callable[[int], float] = lambda worker: 0.0) -> Ending:
    """The whole run, undisturbed; returns how it ended once every worker has said goodbye."""
    with Sockets() as sockets:
        cluster.open(sockets)
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(cluster.master.run())
            for number in range(cluster.scheme.workers):
                group.create_task(cluster.worker(sockets, number, seconds(number)).run())
        return ending.result()


def scheme(name: str, workers: int, **settings: object) -> Scheme:
    """A scheme by name."""
    return schemes.build(Settings(name, workers, **settings))  # type: ignore[arg-type]


def rules(steps: int, **changes: object) -> Rules:
    """Rules with a quick heartbeat."""
    return Rules(steps=steps, **{"heartbeat": BEAT, "step_timeout": 20.0, "start_timeout": 10.0} | changes)  # type: ignore[arg-type]
