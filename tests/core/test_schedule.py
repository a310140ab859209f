"""What a worker of a pipelined scheme evaluates (schemes.md section 0, rule 4), with on-time and slow workers."""

from collections import Counter
from collections.abc import Iterable

import pytest
from core_oracles import repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core.schedule import Behind, EvaluateAll, EvaluateOne, when_behind


def run(schedule: EvaluateOne, load: int, steps: Iterable[int], worker: int = 0) -> list[tuple[int, list[int], set]]:
    """(step, ages after evaluating, places evaluated) for the steps this worker takes part in."""
    at: list[int | None] = [None] * load
    told = []
    for step in steps:
        places = schedule.places(worker, step, at)
        for place in places:
            at[place] = step
        told.append((step, [step - seen for seen in at if seen is not None], set(places)))
    return told


LOADS = [1, 2, 3, 4, 5, 8]


@pytest.mark.parametrize("load", LOADS)
def test_on_time_the_places_rotate_by_step_number_from_step_one(load: int) -> None:
    told = run(EvaluateOne(2 * load - 1), load, range(5 * load))
    assert told[0][2] == set(range(load))
    for step, _, places in told[1:]:
        assert places == {(step - 1) % load}


@pytest.mark.parametrize("load", LOADS)
def test_on_time_the_ages_run_from_zero_to_load_minus_one(load: int) -> None:
    told = run(EvaluateOne(2 * load - 1), load, range(5 * load))
    for step, ages, _ in told:
        if step >= load - 1:
            assert sorted(ages) == list(range(load))
        assert 0 <= min(ages) <= max(ages) <= load - 1


@pytest.mark.parametrize("load", LOADS)
def test_the_least_preferred_age_does_not_disturb_the_rotation(load: int) -> None:
    assert run(EvaluateOne(load - 1), load, range(30)) == run(EvaluateOne(2 * load - 1), load, range(30))


@pytest.mark.parametrize("start", [0, 1, 7, 100])
def test_a_late_start_warms_up_everything_and_joins_the_rotation_at_once(start: int) -> None:
    told = run(EvaluateOne(7), 4, range(start, start + 12))
    assert told[0] == (start, [0, 0, 0, 0], {0, 1, 2, 3})
    assert [places for _, _, places in told[1:]] == [{(step - 1) % 4} for step in range(start + 1, start + 12)]


def test_after_one_skip_the_worker_is_in_rotation_again() -> None:
    told = run(EvaluateOne(7), 4, [0, 1, 2, 4, 5, 6, 7, 8])
    assert [places for _, _, places in told[1:]] == [{(step - 1) % 4} for step in (1, 2, 4, 5, 6, 7, 8)]
    assert max(max(ages) for _, ages, _ in told) <= 7


def test_beyond_the_preferred_age_the_oldest_is_evaluated_instead_of_the_turn() -> None:
    schedule = EvaluateOne(max_age=5)
    assert schedule.places(0, 10, [9, 8, 4, 5]) == (2,)
    assert schedule.places(0, 10, [9, 8, 5, 7]) == (1,)
    assert schedule.places(0, 10, [3, 2, 1, 4]) == (2,)


def test_of_equally_old_ones_the_next_in_rotation_comes_first() -> None:
    schedule = EvaluateOne(max_age=5)
    assert (11 - 1) % 4 == 2
    assert schedule.places(0, 11, [1, 1, 9, 1]) == (3,)
    assert schedule.places(0, 11, [1, 1, 9, 9]) == (0,)
    assert schedule.places(0, 11, [1, 1, 1, 1]) == (2,)


def test_whatever_has_no_gradient_comes_first_all_at_once_and_in_order() -> None:
    assert EvaluateOne(5).places(0, 40, [None, 3, None, 1]) == (0, 2)


@pytest.mark.parametrize("period", [2, 3])
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_worker_two_or_three_times_too_slow_keeps_ages_near_ten_and_starves_nobody(period: int, phase: int) -> None:
    told = run(EvaluateOne(7), 4, range(phase, 600, period))
    oldest = max(max(ages) for _, ages, _ in told)
    assert 4 <= oldest <= 12
    counted = Counter(place for _, _, places in told[1:] for place in places)
    assert min(counted[place] for place in range(4)) >= len(told) / 10


@repeatable
@given(load=st.integers(1, 6), gaps=st.lists(st.integers(1, 3), min_size=60, max_size=150), worker=st.integers(0, 9))
def test_with_any_skips_of_up_to_two_steps_nothing_starves(load: int, gaps: list[int], worker: int) -> None:
    steps = [sum(gaps[:count]) for count in range(len(gaps))]
    for stagger in (0, 1):
        told = run(EvaluateOne(2 * load - 1, stagger), load, steps, worker)
        assert all(len(places) == 1 for _, _, places in told[1:])
        # Past max_age it is oldest first: each of load places within load turns of at most 3 steps.
        assert max(max(ages) for _, ages, _ in told) <= 2 * load - 1 + 3 * load


@pytest.mark.parametrize(("workers", "load"), [(4, 2), (6, 3), (12, 4), (9, 3), (5, 5), (6, 1)])
def test_staggered_on_time_all_partitions_are_fresh_at_every_step(workers: int, load: int) -> None:
    told = [run(EvaluateOne(2 * load - 1, 1), load, range(20), worker) for worker in range(workers)]
    for step in range(20):
        fresh = {worker // load * load + place for worker in range(workers) for place in told[worker][step][2]}
        assert fresh == set(range(workers))
        assert all(max(told[worker][step][1]) <= load - 1 for worker in range(workers))
        if step:
            assert all(told[worker][step][2] == {(step - 1 + worker % load) % load} for worker in range(workers))


def test_without_stagger_the_members_of_a_group_evaluate_the_same() -> None:
    assert run(EvaluateOne(7), 4, range(20), worker=0) == run(EvaluateOne(7), 4, range(20), worker=3)


@pytest.mark.parametrize("at", [[None, None, None], [0, 1, 2], [5, None, 5]])
def test_schemes_that_are_not_pipelined_evaluate_all_places_whatever_is_retained(at: list[int | None]) -> None:
    assert EvaluateAll().places(1, 6, at) == (0, 1, 2)


def test_who_is_behind_finishes_when_skipping_and_drops_what_is_not_being_evaluated_when_abandoning() -> None:
    assert when_behind("skip", evaluating=True) is Behind.FINISH
    assert when_behind("skip", evaluating=False) is Behind.FINISH
    assert when_behind("abandon", evaluating=True) is Behind.FINISH
    assert when_behind("abandon", evaluating=False) is Behind.DROP
