"""Which arrivals may be added up before their step closes: those that turn out to have one weight."""

import itertools
from collections.abc import Iterable, Sequence
from functools import cache

import pytest
from core_oracles import repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Apply, Arrived, Command, Joined, Ready, Refuse, Spoiled, Use
from pgczmq.core.schemes import SCHEMES, Scheme, Settings, build

FOLDING = {"dgd", "is-sgd", "fastest-k", "pgc-cr", "gc-fr", "pgc-fr"}
OF_GROUPS = {"gc-fr", "pgc-fr"}


@cache
def scheme_of(name: str, workers: int = 6, load: int = 3, **more: object) -> Scheme:
    return build(Settings(name, workers, stragglers=load - 1, load=load, **more))  # type: ignore[arg-type]


def engine_of(scheme: Scheme, *, deterministic: bool = False) -> Engine:
    engine = Engine(scheme, Rules(steps=5, deterministic=deterministic), lambda *_: 0.0, started_at=0.0)
    for worker in range(scheme.workers):
        engine.handle(Joined(worker, "a", 0.0))
        engine.handle(Ready(worker, "a", 0.0))
    return engine


def answer(engine: Engine, scheme: Scheme, worker: int) -> list[Command]:
    held = scheme.placement.held[worker]
    losses = tuple((partition, 1.0) for partition in held)
    return engine.handle(Arrived(worker, "a", 0, (0,) * len(held), losses, 1.0, 1.0))


def told(engine: Engine, scheme: Scheme, order: Iterable[int]) -> tuple[dict[int, bool], Apply | None]:
    """Whether each of these arrivals folds, until the step closes; and how it does."""
    folds: dict[int, bool] = {}
    for worker in order:
        for command in answer(engine, scheme, worker):
            if isinstance(command, Use):
                folds[command.worker] = command.fold
            elif isinstance(command, Apply):
                return folds, command
    return folds, None


@pytest.mark.parametrize("name", SCHEMES)
def test_all_that_fold_have_one_weight_in_whatever_order_they_come(name: str) -> None:
    scheme = scheme_of(name, workers=4, load=2)
    for order in itertools.permutations(range(4)):
        folds, apply = told(engine_of(scheme), scheme, order)
        assert apply is not None
        check(name, scheme, folds, apply)


def check(name: str, scheme: Scheme, folds: dict[int, bool], apply: Apply) -> None:
    weights = dict(zip(apply.weights.workers, apply.weights.values, strict=True))
    folded = [worker for worker, fold in folds.items() if fold]
    assert len({weights.get(worker, 0.0) for worker in folded}) == (1 if name in FOLDING else 0)
    if name in FOLDING:
        assert sorted(folded) == sorted(weights), "nobody who counts was left out"
    assert set(apply.closed.spare).isdisjoint(folded)


@repeatable
@given(order=st.permutations(range(12)), name=st.sampled_from(list(SCHEMES)), wait=st.sampled_from(["k", "usable"]))
def test_the_same_with_many_workers_and_when_a_usable_set_is_enough(order: Sequence[int], name: str, wait: str) -> None:
    scheme = scheme_of(name, 12, wait=wait)
    folds, apply = told(engine_of(scheme), scheme, order)
    assert apply is not None
    check(name, scheme, folds, apply)


@pytest.mark.parametrize("name", sorted(OF_GROUPS))
def test_a_spare_does_not_fold(name: str) -> None:
    scheme = scheme_of(name)
    folds, _ = told(engine_of(scheme), scheme, (4, 3, 0, 5))
    assert folds == {4: True, 3: False, 0: True, 5: False}


@pytest.mark.parametrize("name", SCHEMES)
def test_nothing_folds_in_deterministic_mode(name: str) -> None:
    """There the sum has one order, by worker, whatever the order of arrival."""
    scheme = scheme_of(name)
    folds, apply = told(engine_of(scheme, deterministic=True), scheme, (5, 3, 1, 0, 2, 4))
    assert apply is not None
    assert folds == dict.fromkeys(range(6), False)


@pytest.mark.parametrize("name", ["gc-fr", "pgc-cr"])
def test_what_a_partial_step_adds_up_has_one_weight_too(name: str) -> None:
    scheme = scheme_of(name, shortfall="partial")
    for arrived in ((4, 3, 5), (0,), (1, 5), (2, 1, 0)):
        folds = [worker for place, worker in enumerate(arrived) if scheme.folds(worker, arrived[:place])]
        weights = scheme.decoder.partial(arrived, 0.0)
        assert weights is not None
        assert (list(weights.workers), len(set(weights.values))) == (folds, 1)


def test_after_a_spoiled_step_the_next_of_the_group_folds() -> None:
    """The first of its group was refused; who comes now comes first."""
    scheme = scheme_of("gc-fr", wait="usable")
    engine = engine_of(scheme)
    folds, apply = told(engine, scheme, (0, 3))
    assert apply is not None
    assert folds == {0: True, 3: True}
    spoiled = engine.handle(Spoiled(0, (3,), 2.0))
    assert any(isinstance(command, Refuse) for command in spoiled)
    folds, apply = told(engine, scheme, (1, 5))
    assert folds == {1: False, 5: True}
    assert apply is not None
    assert sorted(apply.weights.workers) == [0, 5]
