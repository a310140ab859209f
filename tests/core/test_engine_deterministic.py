"""Deterministic mode: planned times decide who is used and who is late, whatever the real order of arrival."""

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest

from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import (
    Applied,
    Apply,
    Arrived,
    Checkpoint,
    ClosedStep,
    Command,
    Finish,
    Joined,
    Left,
    Note,
    Publish,
    Ready,
    Refuse,
    Use,
)
from pgczmq.core.schemes import Scheme, Settings, build

Times = Mapping[int, float]


def engine_with(scheme: Scheme, times: Times, asked: list[tuple[int, int, int, float]] | None = None) -> Engine:
    def planned(worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        if asked is not None:
            asked.append((worker, step, evaluated, batch_fraction))
        return times[worker]

    engine = Engine(scheme, Rules(steps=5, deterministic=True), planned, started_at=0.0)
    for worker in range(scheme.workers):
        engine.handle(Joined(worker, "a", 0.0))
        engine.handle(Ready(worker, "a", 10.0))
    return engine


def answer(scheme: Scheme, worker: int, step: int = 0, at: float = 12.0, norm: float = 1.0) -> Arrived:
    held = scheme.placement.held[worker]
    return Arrived(worker, "a", step, (0,) * len(held), tuple((k, float(worker)) for k in held), norm, at)


def everybody(engine: Engine, scheme: Scheme, order: Sequence[int], step: int = 0) -> list[Command]:
    for place, worker in enumerate(order):
        said = engine.handle(answer(scheme, worker, step, at=12.0 + place))
        if place < len(order) - 1:
            assert said == [Use(step, worker)]
    return said


def closed(commands: Sequence[Command]) -> ClosedStep:
    return next(command.closed for command in commands if isinstance(command, Apply))


def test_planned_times_decide_and_the_real_order_does_not_matter() -> None:
    scheme = build(Settings(name="is-sgd", workers=4, stragglers=1))
    times = {0: 3.0, 1: 1.0, 2: 9.0, 3: 2.0}
    accounts = []
    for order in itertools.permutations(range(4)):
        said = everybody(engine_with(scheme, times), scheme, order)
        assert [type(command) for command in said] == [Use, Note, Apply]
        assert said[1] == Note("late", "worker 2 answered step 0 late", 2, 0)
        accounts.append(closed(said))
    assert set(accounts) == {accounts[0]}
    account = accounts[0]
    assert (account.arrived, account.arrived_at) == ((1, 3, 0), (11.0, 12.0, 13.0))
    assert (account.used, account.spare, account.missing) == ((0, 1, 3), (), (2,))
    assert (account.published_at, account.closed_at, account.fresh) == (10.0, 13.0, 3)
    assert account.loss == pytest.approx((0 + 1 + 3) / 3)


def test_all_not_later_than_the_closing_moment_are_used_ties_included() -> None:
    scheme = build(Settings(name="is-sgd", workers=5, stragglers=3))
    account = closed(everybody(engine_with(scheme, {0: 2.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.5}), scheme, (4, 3, 2, 1, 0)))
    assert account.used == (0, 1, 2, 3)
    assert account.arrived == (1, 0, 2, 3)


@pytest.mark.parametrize(
    "name", ["dgd", "is-sgd", "gc-fr", "gc-cr", "is-gc-cr", "pgc-fr", "pgc-cr", "pgc-fr-staggered"]
)
def test_without_injected_delays_everybody_counts(name: str) -> None:
    scheme = build(Settings(name=name, workers=4, stragglers=1))
    account = closed(everybody(engine_with(scheme, dict.fromkeys(range(4), 0.0)), scheme, (2, 0, 3, 1)))
    assert account.missing == ()
    assert account.arrived == (0, 1, 2, 3)
    assert set(account.used) | set(account.spare) == {0, 1, 2, 3}
    assert account.closed_at == account.published_at == 10.0


def test_the_first_of_a_group_is_its_lowest_number() -> None:
    scheme = build(Settings(name="gc-fr", workers=4, stragglers=1))
    account = closed(everybody(engine_with(scheme, {0: 2.0, 1: 1.0, 2: 3.0, 3: 3.0}), scheme, (3, 2, 1, 0)))
    assert account.arrived == (1, 0, 2, 3)
    assert account.used == (0, 2)


def test_a_planned_set_that_is_not_usable_yet_waits_for_the_next_moment() -> None:
    scheme = build(Settings(name="gc-fr", workers=4, stragglers=1))
    account = closed(everybody(engine_with(scheme, {0: 1.0, 1: 1.0, 2: 8.0, 3: 5.0}), scheme, (0, 1, 2, 3)))
    assert (account.used, account.missing, account.closed_at) == ((0, 3), (2,), 15.0)


def test_waiting_for_usable_closes_before_k_planned_arrivals() -> None:
    scheme = build(Settings(name="gc-fr", workers=4, stragglers=1, wait="usable"))
    account = closed(everybody(engine_with(scheme, {0: 1.0, 1: 3.0, 2: 3.0, 3: 2.0}), scheme, (0, 1, 2, 3)))
    assert (account.used, account.missing, account.closed_at) == ((0, 3), (1, 2), 12.0)


def test_the_plan_is_asked_with_the_partitions_that_were_evaluated() -> None:
    scheme = build(Settings(name="pgc-cr", workers=3, stragglers=1))
    asked: list[tuple[int, int, int, float]] = []
    engine = engine_with(scheme, dict.fromkeys(range(3), 1.0), asked)
    everybody(engine, scheme, range(3))
    assert sorted(asked) == [(worker, 0, 2, 1.0) for worker in range(3)]
    engine.handle(Applied(0, 20.0))
    asked.clear()
    for worker in range(3):
        engine.handle(Arrived(worker, "a", 1, (0, 1), ((worker, 1.0),), 1.0, 21.0))
    assert sorted(asked) == [(worker, 1, 1, 1.0) for worker in range(3)]


def test_the_late_of_a_step_are_reported_when_the_next_is_published() -> None:
    scheme = build(Settings(name="is-sgd", workers=4, stragglers=2))
    engine = engine_with(scheme, {0: 4.0, 1: 1.0, 2: 3.0, 3: 2.0})
    everybody(engine, scheme, range(4))
    (published,) = engine.handle(Applied(0, 20.0))
    assert isinstance(published, Publish)
    assert published.outcome.used == (1, 3)
    assert published.outcome.late == ((0, 0), (2, 0))
    assert (engine.late, engine.messages, engine.late_fraction) == (2, 4, 0.5)


def test_nothing_closes_before_all_real_messages_are_in() -> None:
    scheme = build(Settings(name="is-sgd", workers=4, k=1))
    engine = engine_with(scheme, {0: 0.0, 1: 5.0, 2: 5.0, 3: 5.0})
    for worker in (0, 1, 2):
        assert engine.handle(answer(scheme, worker)) == [Use(0, worker)]
    assert closed(engine.handle(answer(scheme, 3))).used == (0,)


def test_a_lost_worker_ends_the_run_by_name() -> None:
    scheme = build(Settings(name="is-sgd", workers=3, k=1))
    engine = engine_with(scheme, dict.fromkeys(range(3), 0.0))
    everybody(engine, scheme, range(3))
    engine.handle(Applied(0, 20.0))
    said = engine.handle(Left(2, "a", "said goodbye", 21.0))
    assert said == [
        Note("left", "worker 2 said goodbye", worker=2),
        Checkpoint(1),
        Finish(74, "a deterministic run needs every worker: lost 2"),
    ]


def test_one_gradient_that_is_not_finite_ends_the_run_as_diverged() -> None:
    scheme = build(Settings(name="is-sgd", workers=3, k=1))
    engine = engine_with(scheme, dict.fromkeys(range(3), 0.0))
    engine.handle(answer(scheme, 0))
    said = engine.handle(answer(scheme, 1, norm=math.inf))
    assert [type(command) for command in said] == [Refuse, Note, Finish]
    assert said[-1].diverged  # type: ignore[union-attr]
