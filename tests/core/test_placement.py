"""Who holds which partitions, against matrices built another way (schemes.md section 1)."""

import itertools

import numpy as np
import pytest
from core_oracles import cyclic_support, fractional_support, hybrid_support, identity_support

from pgczmq.core import placement
from pgczmq.core.independent import conflicts_of
from pgczmq.core.placement import Placement
from pgczmq.errors import ConfigError


def support(held: Placement) -> np.ndarray:
    matrix = np.zeros((held.workers, held.workers))
    for worker, partitions in enumerate(held.held):
        for partition in partitions:
            matrix[worker, partition] += 1
    return matrix


@pytest.mark.parametrize("workers", range(1, 13))
def test_identity_gives_every_worker_its_own_partition(workers: int) -> None:
    np.testing.assert_array_equal(support(placement.identity(workers)), identity_support(workers))


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n in range(1, 13) for c in range(1, n + 1)])
def test_cyclic_is_a_sum_of_shifts(workers: int, load: int) -> None:
    held = placement.cyclic(workers, load)
    np.testing.assert_array_equal(support(held), cyclic_support(workers, load))
    assert [row[0] for row in held.held] == list(range(workers))
    assert (held.workers, held.load) == (workers, load)


@pytest.mark.parametrize(("workers", "load"), [(n, c) for n in range(1, 13) for c in range(1, n + 1) if n % c == 0])
def test_fractional_is_block_diagonal_with_places_in_order(workers: int, load: int) -> None:
    held = placement.fractional(workers, load)
    np.testing.assert_array_equal(support(held), fractional_support(workers, load))
    assert all(list(row) == sorted(row) for row in held.held)


HYBRIDS = [
    (n, c, local, g)
    for n in range(1, 13)
    for g in range(1, n + 1)
    for c in range(1, n + 1)
    for local in range(c + 1)
    if n % g == 0
]


@pytest.mark.parametrize("workers", range(1, 13))
def test_hybrid_is_local_shifts_plus_cyclic_ones_and_is_refused_exactly_when_a_row_repeats(workers: int) -> None:
    for n, load, local_load, groups in (case for case in HYBRIDS if case[0] == workers):
        possible = load <= n // groups or local_load == 0
        if possible:
            held = placement.hybrid(n, load, local_load=local_load, groups=groups)
            expected = hybrid_support(n, load, local_load, groups)
            np.testing.assert_array_equal(support(held), expected)
            assert expected.max() == 1
        else:
            with pytest.raises(ConfigError, match="a partition twice"):
                placement.hybrid(n, load, local_load=local_load, groups=groups)


def test_hybrid_without_local_partitions_is_cyclic() -> None:
    assert placement.hybrid(8, 3, local_load=0, groups=4).held == placement.cyclic(8, 3).held


def test_hybrid_with_only_local_partitions_and_groups_of_load_is_fractional() -> None:
    hybrid = placement.hybrid(8, 4, local_load=4, groups=2)
    assert [set(row) for row in hybrid.held] == [set(row) for row in placement.fractional(8, 4).held]


@pytest.mark.parametrize(
    "held",
    [placement.cyclic(9, 4), placement.fractional(9, 3), placement.hybrid(12, 4, local_load=2, groups=2)],
    ids=["cyclic", "fractional", "hybrid"],
)
def test_conflicts_are_the_off_diagonal_of_the_support_times_its_transpose(held: Placement) -> None:
    matrix = support(held)
    common = matrix @ matrix.T
    conflicts = conflicts_of(held)
    for one, other in itertools.product(range(held.workers), repeat=2):
        assert (other in conflicts[one]) == (one != other and common[one, other] > 0)


def test_fractional_refuses_a_load_that_does_not_divide_and_names_worker_counts_that_do() -> None:
    with pytest.raises(ConfigError, match=r"workers=10, load=4.*: 8 and 12\.$"):
        placement.fractional(10, 4)
    assert placement.fractional(8, 4).load == placement.fractional(12, 4).load == 4


def test_fractional_with_more_load_than_workers_names_the_one_count_above() -> None:
    with pytest.raises(ConfigError, match=r"Nearest valid worker counts: 5\.$"):
        placement.fractional(3, 5)


def test_cyclic_refuses_more_load_than_workers_and_names_the_largest() -> None:
    with pytest.raises(ConfigError, match=r"load=5, workers=4.*Load 4 is the largest"):
        placement.cyclic(4, 5)
    assert placement.cyclic(4, 4).load == 4


def test_hybrid_refuses_groups_that_do_not_divide_and_names_two_that_do() -> None:
    with pytest.raises(ConfigError, match=r"groups=5.*Nearest valid groups: 4 and 6\.$"):
        placement.hybrid(12, 2, local_load=1, groups=5)
    assert placement.hybrid(12, 2, local_load=1, groups=4).load == 2
    assert placement.hybrid(12, 2, local_load=1, groups=6).load == 2


def test_every_option_that_hybrid_names_against_a_repeated_partition_builds() -> None:
    for n, load, local_load, groups in HYBRIDS:
        if load <= n // groups or local_load == 0:
            continue
        with pytest.raises(ConfigError) as caught:
            placement.hybrid(n, load, local_load=local_load, groups=groups)
        options = str(caught.value).partition("Nearest valid: ")[2].rstrip(".").split(", or ")
        assert options[0], caught.value
        for option in options:
            changed = {"load": load, "local_load": local_load, "groups": groups}
            changed |= {word.partition("=")[0]: int(word.partition("=")[2]) for word in option.split(" with ")}
            held = placement.hybrid(n, changed["load"], local_load=changed["local_load"], groups=changed["groups"])
            assert held.workers == n


@pytest.mark.parametrize(("load", "local_load"), [(9, 1), (2, 3)])
def test_hybrid_refuses_a_load_out_of_range_and_names_the_limit(load: int, local_load: int) -> None:
    limit = "load=8" if load > 8 else "local_load=2"
    with pytest.raises(ConfigError, match=rf"local_load <= load <= workers.*The most is {limit}\.$"):
        placement.hybrid(8, load, local_load=local_load, groups=2)
