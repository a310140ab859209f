"""Ignore-straggler decoding against brute force, its bounds, and the fairness of its random origin (section 4)."""

import itertools
import re
from collections import Counter
from functools import cache
from math import ceil

import numpy as np
import pytest
from core_oracles import all_subsets, biggest_independent, builds, repeatable, share
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core import placement
from pgczmq.core.independent import (
    CyclicIndependentSet,
    ExactIndependentSet,
    FractionalIndependentSet,
    HybridIndependentSet,
    conflicts_of,
    hybrid_decoder,
)
from pgczmq.core.schemes import Scheme, Settings, build
from pgczmq.errors import ConfigError

ORIGINS = (0.0, 0.37, 0.99)


@cache
def size_of(scheme: Scheme, arrived: tuple[int, ...]) -> int:
    return biggest_independent(scheme.encode_NN(), arrived)


def check(scheme: Scheme, arrived: tuple[int, ...], origin: float) -> None:
    """Largest, independent, among the arrivals, uniform, and divided by what is recovered."""
    weights = scheme.decoder.weights(arrived, origin)
    if not arrived:
        assert weights is None
        return
    assert weights is not None
    size = size_of(scheme, tuple(sorted(arrived)))
    assert set(weights.workers) <= set(arrived)
    assert weights.values == pytest.approx((1 / (scheme.load * size),) * size)
    alone = share(weights, scheme.encode_NN())
    recovered = scheme.workers / (scheme.load * size)
    assert sorted(set(alone.round(9))) in ([round(recovered, 9)], [0.0, round(recovered, 9)])
    assert np.count_nonzero(alone) == scheme.load * size
    assert scheme.decoder.partial(arrived, origin) == weights


def fractional(workers: int, load: int) -> Scheme:
    return build(Settings(name="is-gc-fr", workers=workers, load=load))


def cyclic(workers: int, load: int) -> Scheme:
    return build(Settings(name="is-gc-cr", workers=workers, load=load))


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n in range(2, 9) for c in range(1, n + 1) if n % c == 0])
def test_fractional_recovers_one_of_each_group_that_came(workers: int, load: int) -> None:
    scheme = fractional(workers, load)
    for arrived in all_subsets(workers):
        check(scheme, arrived, 0.5)
        check(scheme, arrived[::-1], 0.5)


def test_fractional_takes_the_first_of_a_group() -> None:
    assert FractionalIndependentSet(6, 3).largest((5, 1, 0, 3), 0.9) == [5, 1]


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n in range(2, 9) for c in range(1, n + 1)])
def test_cyclic_recovers_as_much_as_brute_force_on_every_pattern(workers: int, load: int) -> None:
    scheme = cyclic(workers, load)
    for arrived in all_subsets(workers):
        for origin in ORIGINS:
            check(scheme, arrived, origin)
            check(scheme, arrived[::-1], origin)


@repeatable
@given(data=st.data(), workers=st.integers(9, 12), origin=st.floats(0, 1, exclude_max=True))
def test_cyclic_recovers_as_much_as_brute_force_up_to_twelve_workers(
    data: st.DataObject, workers: int, origin: float
) -> None:
    load = data.draw(st.integers(1, workers))
    arrived = data.draw(st.lists(st.integers(0, workers - 1), unique=True))
    check(cyclic(workers, load), tuple(arrived), origin)


@repeatable
@given(data=st.data(), workers=st.integers(9, 40), origin=st.floats(0, 1, exclude_max=True))
def test_cyclic_keeps_its_bounds_and_its_independence_with_many_workers(
    data: st.DataObject, workers: int, origin: float
) -> None:
    load = data.draw(st.integers(1, 8))
    arrived = data.draw(st.lists(st.integers(0, workers - 1), unique=True, min_size=1))
    chosen = CyclicIndependentSet(workers, load).largest(arrived, origin)
    least = min(workers // load, ceil(len(arrived) / load))
    assert least <= len(chosen) <= min(workers // load, len(arrived))
    held = [(worker + place) % workers for worker in chosen for place in range(load)]
    assert len(held) == len(set(held))


HYBRIDS = [
    (n, c, local, g)
    for n in range(2, 9)
    for g in range(1, n + 1)
    for c in range(1, n + 1)
    for local in range(c + 1)
    if n % g == 0 and (c <= n // g or local == 0)
]


@pytest.mark.parametrize("workers", range(2, 9))
def test_hybrid_recovers_as_much_as_brute_force_for_all_its_parameters(workers: int) -> None:
    kinds = Counter()
    for n, load, local, groups in (case for case in HYBRIDS if case[0] == workers):
        scheme = builds(name="is-gc-hr", workers=n, load=load, local_load=local, groups=groups)
        assert scheme is not None
        kinds[type(scheme.decoder)] += 1
        origins = (0.0, 0.6) if workers < 8 else (0.37,)
        for arrived, origin in itertools.product(all_subsets(n), origins):
            check(scheme, arrived, origin)
    assert kinds[HybridIndependentSet] > 0
    assert kinds[CyclicIndependentSet] > 0
    assert kinds[ExactIndependentSet] > 0


@pytest.mark.parametrize("case", [(9, 3, 1, 3), (12, 3, 1, 4), (12, 4, 1, 3)])
def test_a_hybrid_of_three_or_more_groups_is_right_where_its_circle_closes(case: tuple[int, int, int, int]) -> None:
    workers, load, local, groups = case
    scheme = build(Settings(name="is-gc-hr", workers=workers, load=load, local_load=local, groups=groups))
    assert type(scheme.decoder) is HybridIndependentSet
    for number, arrived in enumerate(all_subsets(workers)):
        check(scheme, arrived, number * 0.618 % 1)


@repeatable
@given(data=st.data(), workers=st.integers(1, 9), origin=st.floats(0, 1, exclude_max=True))
def test_the_exact_search_is_right_on_any_graph_of_conflicts(data: st.DataObject, workers: int, origin: float) -> None:
    pairs = list(itertools.combinations(range(workers), 2))
    edges = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    around = [frozenset({a + b - w for a, b in edges if w in (a, b)}) for w in range(workers)]
    chosen = ExactIndependentSet(workers, 1, tuple(around)).largest(range(workers), origin)
    assert all(pair not in edges for pair in itertools.combinations(sorted(chosen), 2))
    free = (s for s in all_subsets(workers) if not any(pair in edges for pair in itertools.combinations(s, 2)))
    assert len(chosen) == max(len(s) for s in free)


PROGRAMMES = [(9, 2, 1, 3), (10, 3, 2, 2), (12, 3, 2, 3), (12, 2, 2, 4), (12, 4, 2, 2), (12, 4, 3, 2), (12, 3, 1, 4)]


@repeatable
@given(data=st.data(), case=st.sampled_from(PROGRAMMES), origin=st.floats(0, 1, exclude_max=True))
def test_the_dynamic_programme_and_the_exact_search_agree_with_brute_force_to_twelve_workers(
    data: st.DataObject, case: tuple[int, int, int, int], origin: float
) -> None:
    workers, load, local, groups = case
    scheme = build(Settings(name="is-gc-hr", workers=workers, load=load, local_load=local, groups=groups))
    arrived = tuple(data.draw(st.lists(st.integers(0, workers - 1), unique=True)))
    check(scheme, arrived, origin)
    exact = ExactIndependentSet(workers, load, conflicts_of(scheme.placement))
    assert len(exact.largest(arrived, origin)) == size_of(scheme, tuple(sorted(arrived)))


@pytest.mark.parametrize("case", PROGRAMMES)
def test_hybrids_whose_conflicts_reach_neighbours_only_use_the_dynamic_programme(
    case: tuple[int, int, int, int],
) -> None:
    workers, load, local, groups = case
    size = workers // groups
    decoder = hybrid_decoder(
        placement.hybrid(workers, load, local_load=local, groups=groups), local_load=local, groups=groups
    )
    fits = load <= size <= min(2 * load - 1, load + local)
    assert type(decoder) is (HybridIndependentSet if fits else ExactIndependentSet)


@repeatable
@given(data=st.data(), origin=st.floats(0, 1, exclude_max=True))
def test_the_exact_search_agrees_with_the_cyclic_walk_up_to_thirty_two_workers(
    data: st.DataObject, origin: float
) -> None:
    workers, load = data.draw(st.integers(13, 32)), data.draw(st.integers(1, 6))
    arrived = data.draw(st.lists(st.integers(0, workers - 1), unique=True))
    exact = ExactIndependentSet(workers, load, conflicts_of(placement.cyclic(workers, load)))
    walk = CyclicIndependentSet(workers, load)
    assert len(exact.largest(arrived, origin)) == len(walk.largest(arrived, origin))


def test_a_hybrid_of_many_workers_that_neither_way_decodes_is_refused_and_the_named_ones_build() -> None:
    for workers in (36, 37, 40, 45):
        given_ = {"name": "is-gc-hr", "workers": workers, "load": 3, "local_load": 1, "groups": 1}
        with pytest.raises(ConfigError, match=f"got workers={workers}, groups=1") as caught:
            build(Settings(**given_))
        options = re.findall(r"(groups|local_load)=(\d+)", str(caught.value).partition("Nearest valid: ")[2])
        assert ("local_load", "0") in options
        for name, value in options:
            assert builds(**(given_ | {name: int(value)})) is not None, (name, value)


@pytest.mark.parametrize("workers", range(2, 33))
@pytest.mark.parametrize("load", [None, 3, 4])
def test_hybrid_defaults_build_for_every_number_of_workers(workers: int, load: int | None) -> None:
    scheme = builds(name="is-gc-hr", workers=workers, load=load)
    assert (scheme is not None) == (workers >= (load or 2))


# ---------------------------------------------------------------- fairness of the origin


def counts(scheme: Scheme, arrived: tuple[int, ...], grid: int) -> np.ndarray:
    """How often each partition is recovered over a grid of origins."""
    total = np.zeros(scheme.workers)
    for step in range(grid):
        weights = scheme.decoder.weights(arrived, (step + 0.5) / grid)
        assert weights is not None
        total += share(weights, scheme.encode_NN()) > 0
    return total


@pytest.mark.parametrize(("workers", "load"), [(5, 2), (7, 2), (7, 3), (8, 3), (11, 4), (12, 5), (13, 2)])
def test_with_everybody_here_the_cyclic_walk_recovers_every_partition_equally_often(workers: int, load: int) -> None:
    found = counts(cyclic(workers, load), tuple(range(workers)), workers * 10)
    assert found.min() == found.max() == 10 * load * (workers // load)


@pytest.mark.parametrize(("workers", "load"), [(5, 2), (7, 2), (7, 3), (8, 3)])
def test_over_all_patterns_of_a_size_the_cyclic_walk_favours_no_partition(workers: int, load: int) -> None:
    scheme = cyclic(workers, load)
    for size in range(1, workers + 1):
        total = sum(counts(scheme, arrived, size) for arrived in itertools.combinations(range(workers), size))
        assert np.min(total) == np.max(total), size


def test_a_fixed_origin_would_favour_some_partitions_for_ever() -> None:
    scheme = cyclic(7, 3)
    weights = scheme.decoder.weights(range(7), 0.0)
    assert weights is not None
    assert share(weights, scheme.encode_NN()).min() == 0


SYMMETRIC = [(8, 3, 2, 2), (10, 3, 2, 2), (9, 2, 1, 3), (12, 3, 1, 3), (12, 4, 3, 2), (10, 4, 2, 2)]
SYMMETRIC += [(10, 2, 1, 2), (14, 3, 2, 2), (15, 2, 1, 3), (10, 2, 2, 2), (7, 2, 1, 1), (10, 3, 1, 1)]


@pytest.mark.parametrize("case", SYMMETRIC)
def test_with_everybody_here_a_hybrid_recovers_every_partition_equally_often(case: tuple[int, int, int, int]) -> None:
    workers, load, local, groups = case
    scheme = build(Settings(name="is-gc-hr", workers=workers, load=load, local_load=local, groups=groups))
    found = counts(scheme, tuple(range(workers)), workers * 10)
    assert found.min() == found.max() > 0
