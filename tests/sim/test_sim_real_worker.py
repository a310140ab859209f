"""A real worker and a simulated one, given the same publishes and ends of evaluations, evaluate the same."""

import asyncio
import importlib
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sim_runs import scheme_of

from pgczmq.core.delays import ExponentialDelay
from pgczmq.core.engine import Rules
from pgczmq.core.pipeline import (
    DelayOver,
    Evaluated,
    EvaluatePlace,
    Opened,
    Pipeline,
    Published,
    WorkerCommand,
    WorkerEvent,
)
from pgczmq.core.schemes import Scheme
from pgczmq.sim.crew import Crew
from pgczmq.sim.training import TimingOnly
from pgczmq.sim.virtual import Agenda, Durations

sys.path.append(str(Path(__file__).resolve().parents[1] / "net"))
net = importlib.import_module("cluster")  # real sockets, NumPy workers

STEPS = 40


@dataclass
class Log:
    """What one worker was told, when, and what it evaluated: (step, place)."""

    events: list[tuple[float, WorkerEvent]] = field(default_factory=list)
    evaluated: list[tuple[int, int]] = field(default_factory=list)

    def take(self, event: WorkerEvent, commands: list[WorkerCommand]) -> None:
        self.events.append((time.monotonic(), event))
        self.evaluated += [(said.step, said.place) for said in commands if isinstance(said, EvaluatePlace)]


def real(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    """One run over sockets whose last worker is slow."""
    logs = [Log() for _ in range(scheme.workers)]

    class Logged(Pipeline):
        def handle(self, event: WorkerEvent) -> list[WorkerCommand]:
            commands = super().handle(event)
            logs[self._worker].take(event, commands)
            return commands

    monkeypatch.setattr(net, "Pipeline", Logged)
    cluster = net.Cluster(scheme, Rules(STEPS, heartbeat=net.BEAT), size=100, delay=ExponentialDelay(1, 0.005))
    slow = scheme.workers - 1
    asyncio.run(net.run(cluster, lambda worker: 0.1 if worker == slow else 0.001))
    return logs


def simulated(scheme: Scheme, worker: int, log: Log) -> list[tuple[int, int]]:
    """The same log through a simulated worker: what it evaluated."""
    agenda = Agenda()
    ends = deque(at for at, event in log.events if isinstance(event, Evaluated))
    over = {event.step: at for at, event in log.events if isinstance(event, DelayOver)}
    durations = Durations(
        evaluation=lambda *_: ends.popleft() - agenda.now if ends else 1e9,
        delay=lambda worker, step, evaluated, fraction: over.get(step, agenda.now + 1e9) - agenda.now,
    )
    evaluated: list[tuple[int, int]] = []

    class Watched(TimingOnly):
        def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
            evaluated.append((step, place))
            return 0.0

    crew = Crew(scheme, agenda, durations=durations, training=Watched(), deliver=lambda message: None)
    crew.come(worker)
    for at, event in log.events:
        if isinstance(event, Published):
            agenda.add(at, 0, crew.publish, event.step, event.batch_fraction)
        elif isinstance(event, Opened):
            agenda.add(at, 0, crew._lives[worker].pipeline.handle, event)
    while agenda.next_at <= log.events[-1][0]:
        agenda.do_next()
    return evaluated


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
@pytest.mark.parametrize("name", ["pgc-cr", "is-gc-cr"])
def test_they_evaluate_the_same(name: str, on_new_step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = scheme_of(name, 4, stragglers=1, load=2, on_new_step=on_new_step)
    logs = real(scheme, monkeypatch)
    for worker, log in enumerate(logs):
        assert simulated(scheme, worker, log) == log.evaluated
    slow, fast = logs[-1].evaluated, logs[0].evaluated
    assert len({step for step, _ in slow}) < len({step for step, _ in fast})  # it was behind
