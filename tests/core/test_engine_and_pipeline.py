"""One engine and n pipelines wired back to back by a heap of events: random delays, losses, deaths and returns.

The network here drops broadcasts, repeats messages, delivers those of the dead and keeps the order of one
sender's alone. As on the real wire, the master's heartbeat names the open step and who has answered it; a worker
that is behind pulls, one that is not listed sends again.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from core_oracles import share

from pgczmq.core.delays import ExponentialDelay
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import (
    Admit,
    Applied,
    Apply,
    Arrived,
    ClosedStep,
    Command,
    Event,
    Finish,
    Heard,
    Joined,
    Left,
    Note,
    Probe,
    Publish,
    Ready,
    Refuse,
    Reject,
    Send,
    Spoiled,
    Tick,
    Use,
)
from pgczmq.core.pipeline import (
    Answer,
    Delay,
    DelayOver,
    Evaluated,
    EvaluatePlace,
    Opened,
    Pipeline,
    Published,
    Report,
    WorkerCommand,
    WorkerEvent,
)
from pgczmq.core.schemes import SCHEMES, Scheme, Settings, build

EXACT = {"dgd", "gc-fr", "gc-cr", "pgc-fr", "pgc-fr-staggered", "pgc-cr-naive"}
PIPELINED = {"pgc-fr", "pgc-cr", "pgc-fr-staggered", "pgc-cr-naive"}


@dataclass
class Weather:
    """What the network and the machines are like; seconds and probabilities."""

    seed: int = 1
    compute: float = 0.2
    latency: float = 0.05
    injected: float = 0.3
    lost: float = 0.05
    repeated: float = 0.05
    deaths: float = 0.0  # a second, all workers together
    dead_at_most: int = 0
    spoiled: float = 0.0  # of the combinations, once a step


@dataclass
class Life:
    """One incarnation of a worker."""

    worker: int
    name: str
    pipeline: Pipeline
    alive: bool = True
    doing: object = None
    last: Arrived | None = None
    channel_free_at: float = 0.0


def gradient(partition: int, step: int) -> float:
    return math.sin(1.0 + 3.7 * partition + 1.3 * step)


@dataclass
class Cluster:
    """The driver: carries commands out, checks every promise on the way."""

    scheme: Scheme
    rules: Rules
    weather: Weather
    now: float = 0.0
    heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)
    admitted: dict[int, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    published: list[Publish] = field(default_factory=list)
    closed: list[ClosedStep] = field(default_factory=list)
    held: dict[tuple[int, int], Arrived] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    late: int = 0
    late_unreported: list[tuple[int, int]] = field(default_factory=list)
    answered: set[tuple[str, int]] = field(default_factory=set)
    finished: Finish | None = None
    refused: int = 0
    spoiled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.weather.seed)
        self.order = itertools.count()
        self.names = itertools.count()
        self.delay = ExponentialDelay(self.weather.seed, self.weather.injected)
        self.engine = Engine(self.scheme, self.rules, self.delay.seconds, started_at=0.0)

    # -------------------------------------------------------- time

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now + seconds, next(self.order), action))

    def some(self, mean: float) -> float:
        return float(self.random.exponential(mean)) if mean else 0.0

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def run(self, until: float = 20_000.0) -> "Cluster":
        for worker in range(self.scheme.workers):
            self.after(self.some(1.0), lambda worker=worker: self.be_born(worker))  # type: ignore[misc]
        self.after(0.5, self.beat)
        if self.weather.deaths:
            self.after(self.some(1 / self.weather.deaths), self.maybe_kill)
        while self.finished is None and self.heap and self.now < until:
            self.now, _, action = heapq.heappop(self.heap)
            action()
        return self

    def beat(self) -> None:
        """Four ticks a heartbeat; signs of life, and the master's own heartbeat, with them."""
        self.tell(Tick(self.now))
        for life in list(self.lives.values()):
            if life.alive:
                self.later(Heard(life.worker, life.name, self.now))
                if life.name in self.ready and self.engine.open_step >= 0:
                    self.hear_master(life, self.engine.open_step, life.worker in self.engine.arrived)
        self.after(0.5, self.beat)

    # -------------------------------------------------------- master

    def tell(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self.account_for(event)
        for command in self.engine.handle(event):
            if self.finished is None:
                self.obey(command, event)

    def later(self, event: Event) -> None:
        """The same a latency later, with the time it is then; one worker's messages do not overtake each other."""
        life = self.lives[event.worker]  # type: ignore[union-attr]
        life.channel_free_at = max(life.channel_free_at, self.now + self.some(self.weather.latency))
        self.after(life.channel_free_at - self.now, lambda: self.tell(_at(event, self.now)))

    def account_for(self, event: Arrived) -> None:
        """An independent count of what is late."""
        is_known = event.incarnation == self.admitted.get(event.worker) and event.incarnation in self.ready
        step = self.engine.open_step
        held_already = event.step == step and (step, event.worker) in self.held
        if not is_known or (event.incarnation, event.step) in self.answered or held_already:
            return
        self.answered.add((event.incarnation, event.step))
        counts = self.engine.phase == "open" and event.step == step and event.norm is not None
        if not counts:
            self.late_unreported.append((event.worker, event.step))
            self.late += 1

    def obey(self, command: Command, cause: Event) -> None:
        match command:
            case Admit(worker, incarnation):
                self.admitted[worker] = incarnation
                self.after(self.some(0.2), lambda: self.get_ready(worker, incarnation))
            case Reject(worker, incarnation) if worker is not None:  # a sign of its former life came after its hello
                self.after(self.some(1.0), lambda: self.try_again(worker, incarnation))
            case Probe(worker, incarnation):
                if self.lives[worker].alive and self.lives[worker].name == incarnation:
                    self.later(Heard(worker, incarnation, self.now))
            case Publish():
                self.check_publish(command)
                for life in self.lives.values():
                    if life.name in self.ready and not self.chance(self.weather.lost):
                        self.deliver(life, Published(command.step, command.batch_fraction))
            case Send(worker, step):
                assert step == self.engine.open_step
                self.deliver(self.lives[worker], Published(step, 1.0))
            case Use(step, worker):
                assert isinstance(cause, Arrived)
                assert (cause.step, cause.worker) == (step, worker)
                assert cause.incarnation == self.admitted[worker]
                assert (step, worker) not in self.held
                self.held[step, worker] = cause
            case Apply():
                self.check_apply(command)
                spoil = command.step not in self.spoiled and self.chance(self.weather.spoiled)
                self.after(self.some(0.2), lambda: self.spoil(command) if spoil else self.applied(command.step))
            case Note():
                self.notes[command.kind] += 1
            case Refuse():
                self.refused += 1
            case Finish():
                self.finished = command

    def applied(self, step: int) -> None:
        self.tell(Applied(step, self.now))

    def spoil(self, command: Apply) -> None:
        """The combination is not finite: this attempt never was, one sender is refused, late ones may try again."""
        step, culprit = command.step, int(self.random.choice(command.closed.used))
        self.spoiled.add(step)
        self.closed.pop()
        del self.held[step, culprit]
        again = [pair for pair in self.late_unreported if pair[1] == step]
        self.late_unreported = [pair for pair in self.late_unreported if pair[1] != step]
        self.late -= len(again)
        self.answered -= {(self.admitted[worker], step) for worker, _ in again}
        self.tell(Spoiled(step, (culprit,), self.now))

    def check_publish(self, command: Publish) -> None:
        assert command.step == len(self.published) == len(self.closed)
        self.published.append(command)
        if self.closed:
            last = self.closed[-1]
            assert (command.outcome.step, command.outcome.used) == (last.step, last.used)
            assert command.outcome.spare == last.spare
            if self.rules.deterministic:
                self.late_unreported = [(worker, last.step) for worker in last.missing]
                self.late += len(last.missing)
        assert list(command.outcome.late) == self.late_unreported
        self.late_unreported = []

    def check_apply(self, command: Apply) -> None:
        """Once, in order, from messages that are held, and worth what the weights claim."""
        closed = command.closed
        assert command.step == closed.step == len(self.closed)
        self.closed.append(closed)
        assert set(closed.used) <= set(closed.arrived)
        assert set(closed.used) | set(closed.spare) == set(closed.arrived)
        assert set(closed.arrived) | set(closed.missing) == set(range(self.scheme.workers))
        assert list(closed.used) == sorted(closed.used)
        assert (len(closed.weights), len(closed.ages)) == (len(closed.used),) * 2
        self.check_content(command)

    def check_content(self, command: Apply) -> None:
        closed = command.closed
        parts = share(command.weights, self.scheme.encode_NN())
        if self.scheme.name in EXACT and self.scheme.decoder.weights(closed.arrived, 0.0):
            np.testing.assert_allclose(parts, 1, atol=1e-6)
        assert closed.recovered == pytest.approx((np.abs(parts) > 1e-9).mean())
        combined = 0.0
        for worker, weight, ages in zip(closed.used, closed.weights, closed.ages, strict=True):
            message = self.held[closed.step, worker]
            assert message.ages == ages
            assert min(ages) >= 0
            combined += weight * self.encode(worker, closed.step, ages)
        if self.scheme.name not in PIPELINED:
            fresh = [gradient(partition, closed.step) for partition in range(self.scheme.workers)]
            assert combined == pytest.approx(float(parts @ fresh) / self.scheme.workers, abs=1e-6)

    def encode(self, worker: int, step: int, ages: tuple[int, ...]) -> float:
        held = self.scheme.placement.held[worker]
        terms = zip(self.scheme.coefficients_NC[worker], held, ages, strict=True)
        return sum(float(b) * gradient(partition, step - age) for b, partition, age in terms)

    # -------------------------------------------------------- workers

    def be_born(self, worker: int) -> None:
        pipeline = Pipeline(
            worker,
            self.scheme.placement.held[worker],
            schedule=self.scheme.schedule,
            on_new_step=self.scheme.on_new_step,
            delay=self.delay.seconds,
        )
        self.lives[worker] = Life(worker, f"{worker}.{next(self.names)}", pipeline)
        self.later(Joined(worker, self.lives[worker].name, self.now))

    def try_again(self, worker: int, incarnation: str) -> None:
        if self.lives[worker].alive and self.lives[worker].name == incarnation:
            self.later(Joined(worker, incarnation, self.now))

    def get_ready(self, worker: int, incarnation: str) -> None:
        if self.lives[worker].alive and self.lives[worker].name == incarnation:
            self.ready.add(incarnation)
            self.tell(Ready(worker, incarnation, self.now))

    def maybe_kill(self) -> None:
        living = [life.worker for life in self.lives.values() if life.alive and life.name in self.ready]
        gone = self.scheme.workers - len(living)
        if gone < self.weather.dead_at_most and self.published:
            self.kill(self.lives[int(self.random.choice(living))])
        self.after(self.some(1 / self.weather.deaths), self.maybe_kill)

    def kill(self, life: Life) -> None:
        life.alive = False
        if self.chance(0.5):
            self.later(Left(life.worker, life.name, "said goodbye", self.now))
        self.after(self.some(8.0), lambda: self.be_born(life.worker))

    def deliver(self, life: Life, event: WorkerEvent) -> None:
        self.after(self.some(self.weather.latency), lambda: self.to_worker(life, event))

    def hear_master(self, life: Life, step: int, listed: bool) -> None:
        self.to_worker(life, Opened(step))
        if life.pipeline.is_behind:
            self.deliver(life, Published(step, 1.0))
        elif life.last is not None and life.last.step == step and not listed:
            self.later(life.last)

    def to_worker(self, life: Life, event: WorkerEvent) -> None:
        if not life.alive:
            return
        for command in life.pipeline.handle(event):
            self.work(life, command)

    def work(self, life: Life, command: WorkerCommand) -> None:
        match command:
            case EvaluatePlace(step, place, _):
                assert not isinstance(life.doing, EvaluatePlace)
                life.doing = command
                partition = self.scheme.placement.held[life.worker][place]
                self.after(
                    self.some(self.weather.compute), lambda: self.evaluated(life, abs(gradient(partition, step)))
                )
            case Delay(step, seconds):
                life.doing = command
                self.after(seconds, lambda: self.to_worker(life, DelayOver(step)))
            case Answer(step, ages, losses) | Report(step, ages, losses):
                norm = 1.0 if isinstance(command, Answer) else None
                life.last = Arrived(life.worker, life.name, step, ages, losses, norm, self.now)
                self.later(life.last)
                if self.chance(self.weather.repeated):
                    self.later(life.last)

    def evaluated(self, life: Life, loss: float) -> None:
        life.doing = None
        self.to_worker(life, Evaluated(loss))


def _at(event: Event, at: float) -> Event:
    return type(event)(**{**vars(event), "at": at})


def cluster(name: str, weather: Weather, steps: int = 200, **more: object) -> Cluster:
    given = {"workers": 6, "stragglers": 2, "seed": 1} | more
    deterministic = bool(given.pop("deterministic", False))
    scheme = build(Settings(name=name, **given))  # type: ignore[arg-type]
    rules = Rules(steps=steps, deterministic=deterministic, step_timeout=2_000.0, start_timeout=500.0)
    return Cluster(scheme, rules, weather)


def check_finished(run: Cluster) -> None:
    assert run.finished is not None, (run.now, run.engine.phase, run.engine.open_step)
    assert (run.finished.exit_code, run.finished.reason) == (0, "done")
    assert [account.step for account in run.closed] == list(range(run.rules.steps))
    last = len(run.closed[-1].missing) if run.rules.deterministic else 0
    assert run.engine.late == run.late + last
    assert run.notes["late"] == run.engine.late or run.spoiled
    assert run.engine.messages == len(run.answered)


def dead_at_most(name: str) -> int:
    return 0 if name == "dgd" else 2


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
@pytest.mark.parametrize("name", SCHEMES)
def test_two_hundred_steps_are_applied_once_and_in_order_while_up_to_s_workers_are_dead(
    name: str, on_new_step: str
) -> None:
    weather = Weather(seed=len(name), deaths=0.3, dead_at_most=dead_at_most(name))
    run = cluster(name, weather, on_new_step=on_new_step).run()
    check_finished(run)
    assert (run.notes["left"] > 3) == (name != "dgd")
    assert all(account.recovered > 0 for account in run.closed)
    if name in EXACT:
        assert all(account.recovered == 1 for account in run.closed)
    if dead_at_most(name):
        assert run.notes["late"] > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["dgd", "gc-fr", "gc-cr", "pgc-fr", "pgc-cr", "is-gc-cr"])
def test_when_more_than_s_die_and_return_the_run_waits_and_goes_on(name: str, seed: int) -> None:
    run = cluster(name, Weather(seed=seed, deaths=0.5, dead_at_most=6), steps=80).run()
    check_finished(run)
    assert run.notes["waiting"] > 0
    assert run.notes["enough"] > 0


@pytest.mark.parametrize("name", ["dgd", "gc-fr", "gc-cr", "pgc-fr", "pgc-fr-staggered", "pgc-cr"])
def test_partial_goes_on_with_what_there_is(name: str) -> None:
    run = cluster(name, Weather(seed=3, deaths=0.5, dead_at_most=5), steps=100, shortfall="partial").run()
    check_finished(run)
    assert run.notes["partial"] > 0
    assert min(len(account.used) for account in run.closed) < run.scheme.k


@pytest.mark.parametrize("name", ["gc-fr", "gc-cr", "pgc-fr", "pgc-fr-staggered"])
def test_waiting_for_usable_closes_no_step_later_than_it_must(name: str) -> None:
    run = cluster(name, Weather(seed=5), wait="usable").run()
    check_finished(run)
    for account in run.closed:
        before = run.scheme.decoder.weights(account.arrived[:-1], 0.0)
        assert before is None
    sizes = Counter(len(account.arrived) for account in run.closed)
    assert min(sizes) < run.scheme.k or name == "gc-cr"


@pytest.mark.parametrize("name", ["is-sgd", "gc-fr", "gc-cr", "is-gc-cr", "pgc-fr", "pgc-cr"])
def test_spoiled_combinations_are_made_again_without_the_culprit(name: str) -> None:
    run = cluster(name, Weather(seed=4, deaths=0.2, dead_at_most=1, spoiled=0.3), steps=100).run()
    check_finished(run)
    assert len(run.spoiled) > 10
    assert run.refused >= len(run.spoiled)


def test_a_broadcast_that_always_fails_still_ends_in_a_finished_run() -> None:
    run = cluster("gc-cr", Weather(seed=2, lost=1.0), steps=60).run()
    check_finished(run)


@pytest.mark.parametrize("name", SCHEMES)
def test_on_calm_days_everybody_is_used_or_spare_and_ages_stay_below_the_load(name: str) -> None:
    calm = Weather(compute=0.0, latency=0.0, injected=0.0, lost=0.0, repeated=0.0)
    run = cluster(name, calm, steps=40, deterministic=True).run()
    check_finished(run)
    for account in run.closed:
        assert account.missing == ()
        ages = [sorted(seen) for seen in account.ages]
        if name in PIPELINED and account.step >= 2:
            assert ages == [[0, 1, 2]] * len(ages)
        if name not in PIPELINED:
            assert all(set(seen) == {0} for seen in ages)
        groups = run.scheme.workers // run.scheme.load
        assert account.fresh == (groups if name == "pgc-fr" and account.step else run.scheme.workers)


@pytest.mark.parametrize("name", SCHEMES)
def test_deterministic_decisions_do_not_depend_on_the_network(name: str) -> None:
    accounts = []
    for seed, latency in ((1, 0.0), (1, 0.3)):
        run = cluster(name, Weather(seed=seed, latency=latency, lost=0.0), steps=40, deterministic=True).run()
        check_finished(run)
        accounts.append([(a.used, a.spare, a.missing, a.weights, a.ages, a.loss, a.fresh) for a in run.closed])
        for closed in run.closed:
            check_planned(run, closed)
    assert accounts[0] == accounts[1]


def check_planned(run: Cluster, closed: ClosedStep) -> None:
    """Nobody missing was planned earlier than anybody who arrived, and one moment earlier was not enough."""
    planned = {worker: run.delay.seconds(worker, closed.step, 1, 1.0) for worker in range(run.scheme.workers)}
    moment = max(planned[worker] for worker in closed.arrived)
    assert all(planned[worker] > moment for worker in closed.missing)
    earlier = sorted(worker for worker in closed.arrived if planned[worker] < moment)
    assert len(earlier) < run.scheme.k or run.scheme.decoder.weights(earlier, 0.0) is None
    assert closed.closed_at - closed.published_at == pytest.approx(moment)
