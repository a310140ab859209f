"""A worker process and the simulator's worker, given one log of publications and ends of evaluations.

A log is text: a number publishes that step, a dot ends the evaluation in hand (and is nothing where there is none). The
process is a real one over real sockets; its master is the script below, which goes on only when the process has taken
what was sent. What was evaluated is what its compute says, by the parameters that it had in its hands.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from cluster import shared_memory, unexpected
from gated_worker import SIZE
from numpy_task import NumpyMaster

from pgczmq.core import schemes
from pgczmq.core.schemes import Scheme, Settings
from pgczmq.net import wire
from pgczmq.net.exchange import Exchange, Version
from pgczmq.net.hub import Assignment, Hub, Peer
from pgczmq.net.sockets import Sockets
from pgczmq.sim.crew import Crew
from pgczmq.sim.training import TimingOnly
from pgczmq.sim.virtual import Agenda, Durations

HANG_SECONDS = 150.0
CALL_SECONDS = 0.05
WORKERS, WORKER = 6, 4
FOR_EVER = 1e6
Sequence = list[tuple[int, int]]
"""(step, partition), in the order in which they were begun."""

FIXED = [
    "0 . . . 1 . 2 . 3 .",  # on time
    "0 1 . . 2 . . .",  # overtaken in the middle of a step
    "0 . 1 . . . 2 3 . 4 . . 5 6 7 . . 8",  # overtaken while it warms up, later by several steps
    "0 . . . 3 . 5 8 . . 9 . 7 . 12 .",  # broadcasts that did not come, or came late
]


def random_log(seed: int) -> str:
    """Forty entries; evaluations end about as often as a worker of load 2 needs them."""
    draw = random.Random(seed)
    steps = iter(range(100))
    return " ".join(str(next(steps)) if draw.random() < 0.4 else "." for _ in range(40))


LOGS = [*FIXED, *(random_log(seed) for seed in range(2))]


def settings_of(name: str, on_new_step: str) -> dict[str, Any]:
    """Load 3 everywhere; what a worker of the run is told, too."""
    return {"name": name, "workers": WORKERS, "stragglers": 2, "load": 3, "on_new_step": on_new_step}


def entries(log: str, scheme: Scheme) -> list[int | None]:
    """Steps to publish, None for an end; at the end everything that was begun ends, and what waited behind it."""
    return [None if entry == "." else int(entry) for entry in [*log.split(), *["."] * 2 * scheme.load]]


# ---------------------------------------------------------------- the process and its master


@dataclass
class Script:
    """The master's end of one worker process."""

    hub: Hub
    compute: NumpyMaster
    process: asyncio.subprocess.Process
    evaluated: Sequence = field(default_factory=list)
    answers: list[wire.Gradient] = field(default_factory=list)
    counts: asyncio.Event = field(default_factory=asyncio.Event)
    busy: bool = False

    def take_control(self, peer: Peer, frames: list[zmq.Frame]) -> None:
        """Let the worker in, and tell it that it counts once it has heard the broadcast."""
        message = wire.to_master(frames[0].buffer)
        match message:
            case wire.Hello():
                self.hub.note_hello(peer, message)
                self.hub.admit(WORKER, message.incarnation, 600.0)  # it says nothing of itself
            case wire.Prepared():
                self.hub.exchange.agree(message.incarnation, message.payload)
                beat = wire.Beat(ready=True, open_step=-1, arrived=[], **self.hub.mine)
                self.hub.send_control(message.incarnation, beat)
                self.counts.set()

    async def call(self) -> None:
        """What the worker has to hear before it counts; it may not listen to the first ones yet."""
        while not self.counts.is_set():
            self.hub.publish(wire.Beacon(**self.hub.mine))
            await asyncio.sleep(CALL_SECONDS)

    def take_gradients(self, _: Peer, frames: list[zmq.Frame]) -> None:
        message = wire.to_master(frames[0].buffer)
        if isinstance(message, wire.Gradient):
            self.answers.append(message)

    async def play(self, log: list[int | None]) -> None:
        """Each entry is sent when the worker has taken the one before."""
        await self.counts.wait()
        for step in log:
            if step is not None:
                self.publish(step)
                await self.took("Published")
            elif self.busy:
                assert self.process.stdin is not None
                self.process.stdin.write(b"\n")
                self.busy = False
                await self.took("Evaluated")

    def publish(self, step: int) -> None:
        """Parameters that say which step they are of."""
        self.compute.params[:] = step
        version = Version(step, {})
        self.hub.exchange.write(version, self.hub.exchange.wanted(life for _, life in self.hub.admitted()))
        self.hub.publish_params(wire.Params(step=step, k=1, batch_fraction=1.0, **self.hub.mine), version)

    async def took(self, event: str) -> None:
        what, name, evaluates = await self.said()
        assert (what, name) == ("took", event)
        if evaluates:
            what, step, partition = await self.said()
            assert what == "evaluates"
            self.evaluated.append((step, partition))
            self.busy = True

    async def said(self) -> list[Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the worker process is gone"
        said: list[Any] = json.loads(line)
        return said


@contextlib.asynccontextmanager
async def script(settings: dict[str, Any], delay: float, payload: str) -> AsyncIterator[Script]:
    """A worker process that has joined; killed at the end whatever happened."""
    scheme = schemes.build(Settings(**settings))
    rows = scheme.coefficients_NC.tolist()
    compute = NumpyMaster(SIZE)
    exchange = Exchange(compute, payload=payload, wire_dtype="float32", workers=WORKERS)
    with Sockets() as sockets, contextlib.closing(exchange):
        hub = Hub(
            sockets,
            bind="127.0.0.1",
            port=0,
            run="run-1",
            master="script",
            config=json.dumps(settings | {"delay": delay}),
            assignments=[Assignment(held, tuple(row)) for held, row in zip(scheme.placement.held, rows, strict=True)],
            exchange=exchange,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("gated_worker.py")),
            str(hub.ports.control),
            str(WORKER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        here = Script(hub, compute, process)
        hub.listen(here.take_control, here.take_gradients, unexpected)
        calling = asyncio.create_task(here.call())
        try:
            yield here
        finally:
            hub.ignore()
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            process.kill()
            await process.communicate()  # closes its pipes


async def real(settings: dict[str, Any], log: str, delay: float = 0.0, payload: str = "tcp") -> Sequence:
    """What a worker process evaluates."""
    async with asyncio.timeout(HANG_SECONDS), script(settings, delay, payload) as here:
        await here.play(entries(log, schemes.build(Settings(**settings))))
        begun = set(here.evaluated)
        told = {(answer.step, partition) for answer in here.answers for partition in answer.fresh}
        assert told <= begun, "an answer speaks of evaluations that nobody made"
        return here.evaluated


# ---------------------------------------------------------------- the simulator


def simulated(settings: dict[str, Any], log: str, delay: float = 0.0) -> Sequence:
    """What a simulated worker evaluates: entry i of the log happens at time i."""
    scheme = schemes.build(Settings(**settings))
    listed = entries(log, scheme)
    agenda = Agenda()
    evaluated: Sequence = []

    def until_the_next_end(*_: object) -> float:
        ends: Iterator[int] = (at for at, step in enumerate(listed) if step is None and at > agenda.now)
        return next(ends, FOR_EVER) - agenda.now

    class Watched(TimingOnly):
        def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
            evaluated.append((step, scheme.placement.held[worker][place]))
            return 0.0

    durations = Durations(evaluation=until_the_next_end, delay=lambda *_: delay)
    crew = Crew(scheme, agenda, durations=durations, training=Watched(), deliver=lambda message: None)
    crew.come(WORKER)
    for at, step in enumerate(listed):
        if step is not None:
            agenda.add(at, 0, crew.publish, step, 1.0)
    while agenda.next_at < len(listed):
        agenda.do_next()
    return evaluated


# ---------------------------------------------------------------- tests


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
@pytest.mark.parametrize("name", ["pgc-cr", "pgc-fr-staggered", "gc-fr", "is-gc-cr"])
async def test_a_process_and_the_simulator_evaluate_the_same(name: str, on_new_step: str) -> None:
    settings = settings_of(name, on_new_step)
    ran = await asyncio.gather(*(real(settings, log) for log in LOGS))
    assert dict(zip(LOGS, ran, strict=True)) == {log: simulated(settings, log) for log in LOGS}


@shared_memory
async def test_the_same_through_shared_memory() -> None:
    """Also a worker that is far behind: the parameters in its hands stay those of its step."""
    settings = settings_of("pgc-cr", "skip")
    ran = await asyncio.gather(*(real(settings, log, payload="shm") for log in LOGS))
    assert dict(zip(LOGS, ran, strict=True)) == {log: simulated(settings, log) for log in LOGS}


async def test_both_leave_a_delay_when_a_step_comes() -> None:
    """A delay that never ends: every step is given up in it, or the first one is never left."""
    lengths = []
    for on_new_step in ("abandon", "skip"):
        settings = settings_of("pgc-cr", on_new_step)
        ran = await asyncio.gather(*(real(settings, log, FOR_EVER) for log in FIXED))
        assert ran == [simulated(settings, log, FOR_EVER) for log in FIXED]
        lengths.append([len(evaluated) for evaluated in ran])
    assert all(abandoning > skipping for abandoning, skipping in zip(*lengths, strict=True))


@pytest.mark.parametrize(
    ("name", "on_new_step", "log", "expected"),
    [  # worker 4 of pgc-cr and is-gc-cr holds partitions 4, 5 and 0
        ("is-gc-cr", "skip", "0 1 . . . 2 . . .", "0:4 0:5 0:0 1:4 1:5 1:0 2:4 2:5 2:0"),
        ("is-gc-cr", "abandon", "0 1 . . . 2 . . .", "0:4 1:4 1:5 1:0 2:4 2:5 2:0"),
        ("is-gc-cr", "skip", "0 . . . 1 2 3 . .", "0:4 0:5 0:0 1:4 1:5 1:0 3:4 3:5 3:0"),
        ("is-gc-cr", "abandon", "0 . . . 1 2 3 . .", "0:4 0:5 0:0 1:4 3:4 3:5 3:0"),
        ("pgc-cr", "skip", "0 . 1 . . . 2 . 3", "0:4 0:5 0:0 1:4 2:5 3:0"),
        ("pgc-cr", "abandon", "0 . 1 . . . 2 . 3", "0:4 0:5 1:0 2:5 3:0"),
        ("pgc-cr", "skip", "0 . . . 1 . 2 3 4 .", "0:4 0:5 0:0 1:4 2:5 4:4"),
    ],
)
async def test_what_the_rule_says(name: str, on_new_step: str, log: str, expected: str) -> None:
    """Worked out by hand, so that a rule that is changed for both sides at once is seen, too."""
    settings = settings_of(name, on_new_step)
    wanted = [tuple(map(int, pair.split(":"))) for pair in expected.split()]
    assert simulated(settings, log) == wanted
    assert await real(settings, log) == wanted


@pytest.mark.parametrize("name", ["pgc-cr", "pgc-fr", "gc-fr", "is-gc-cr"])
def test_the_logs_tell_the_rules_apart(name: str) -> None:
    skipping, abandoning = (
        [simulated(settings_of(name, on_new_step), log) for log in LOGS] for on_new_step in ("skip", "abandon")
    )
    assert sum(mine != theirs for mine, theirs in zip(skipping, abandoning, strict=True)) >= 2
