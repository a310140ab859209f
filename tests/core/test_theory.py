"""Order statistics, bounds and switching times: the fixtures of schemes.md section 5, and independent oracles."""

import math
from itertools import pairwise

import numpy as np
import pytest

from pgczmq.core.order_statistics import BothVary, ComputationVaries, ResponseTimes, survival
from pgczmq.core.policies import Plan
from pgczmq.core.theory import (
    Bound,
    best_fraction,
    continuous_best_fraction,
    cost_to,
    ladder_k,
    ladder_k_batch,
    stages,
)
from pgczmq.core.theory_check import Check, checks
from pgczmq.errors import ConfigError

PAPER = Bound(lr=0.001, lipschitz=2, convexity=1, variance=10, samples=10, initial_error=100)
FAST = ComputationVaries(communication=0, computation=0, computation_rate=5)


@pytest.mark.parametrize("check", list(checks()), ids=lambda check: check.what)
def test_the_fixtures_to_the_digits_given(check: Check) -> None:
    assert check.holds, f"{check.what}: {check.found} instead of {check.expected}"


def test_a_figure_that_is_off_by_a_digit_does_not_hold() -> None:
    assert Check("x", 0.434824, 0.4348244, 6).holds
    assert not Check("x", 0.434824, 0.4348251, 6).holds


# ---------------------------------------------------------------- order statistics


@pytest.mark.parametrize(("n", "k", "b"), [(12, 1, 1.0), (12, 9, 0.3), (12, 12, 1.0), (50, 37, 0.5)])
@pytest.mark.parametrize("rate", [None, 0.7, 40.0], ids=["model 1", "both", "fast communication"])
def test_order_statistics_are_the_means_of_sorted_draws(n: int, k: int, b: float, rate: float | None) -> None:
    rng = np.random.default_rng(n * 100 + k)
    draws = 40_000
    times: ResponseTimes
    communication = np.full((draws, n), 0.2)
    if rate is None:
        times = ComputationVaries(0.2, 0.1, 2.0)
    else:
        times = BothVary(0.2, 0.1, rate, 2.0)
        communication = communication + rng.exponential(1 / rate, (draws, n))
    drawn = communication + b * (0.1 + rng.exponential(1 / 2.0, (draws, n)))
    kth = np.sort(drawn, axis=1)[:, k - 1]
    error = kth.std() / math.sqrt(draws)
    assert abs(times.order_statistic(n, k, b) - kth.mean()) < 4 * error


def test_the_order_statistics_of_both_models_add_up_to_the_mean_response() -> None:
    both = BothVary(0.1, 0.2, 3.0, 0.8)
    for n in (1, 7, 30, 100):
        mean = np.mean([both.order_statistic(n, k, 0.5) for k in range(1, n + 1)])
        assert mean == pytest.approx(0.1 + 1 / 3 + 0.5 * (0.2 + 1 / 0.8), rel=1e-11)


def test_order_statistics_grow_with_k_and_stay_stable_where_alternating_sums_do_not() -> None:
    mus = [BothVary(0, 0, 1, 1).order_statistic(30, k, 1) for k in range(1, 31)]
    assert all(one < other for one, other in pairwise(mus))
    assert BothVary(0, 0, 1, 1).order_statistic(1000, 1000, 1) == pytest.approx(9.93, abs=0.3)


def test_with_instant_communication_model_2_is_model_1() -> None:
    for n, k in ((5, 2), (50, 50), (300, 280)):
        one, two = ComputationVaries(0.1, 0.3, 2), BothVary(0.1, 0.3, 1e9, 2)
        assert two.order_statistic(n, k, 0.4) == pytest.approx(one.order_statistic(n, k, 0.4), rel=1e-8)


def test_the_two_rates_may_be_exchanged_and_may_meet() -> None:
    assert BothVary(0, 0, 2, 3).order_statistic(9, 4, 1) == BothVary(0, 0, 3, 2).order_statistic(9, 4, 1)
    met = BothVary(0, 0, 2, 2).order_statistic(9, 4, 1)
    assert BothVary(0, 0, 2, 2 * (1 + 1e-9)).order_statistic(9, 4, 1) == pytest.approx(met, rel=1e-8)
    t = np.array([0.01, 0.5, 3.0])
    assert survival(t, 2.0, 2.0) == pytest.approx((1 + 2 * t) * np.exp(-2 * t), rel=1e-14)
    assert survival(t, 1.0, 3.0) == pytest.approx((3 * np.exp(-t) - np.exp(-3 * t)) / 2, rel=1e-14)


@pytest.mark.parametrize(("n", "k", "b", "word"), [(5, 6, 1.0, "k=6"), (5, 0, 1.0, "k=0"), (5, 1, 0.0, "got 0.")])
def test_what_has_no_order_statistic_is_a_sentence(n: int, k: int, b: float, word: str) -> None:
    for times in (FAST, BothVary(0, 0, 1, 1)):
        with pytest.raises(ConfigError, match=word):
            times.order_statistic(n, k, b)


# ---------------------------------------------------------------- bounds and stages


def test_the_bound_is_the_recursion_it_stands_for() -> None:
    error = 100.0
    for _ in range(50):  # e <- (1 - lr C) e + lr C floor
        error = (1 - 0.001) * error + 0.001 * PAPER.floor(3)
    assert PAPER.error(3, 50, 100.0) == pytest.approx(error, rel=1e-12)
    assert PAPER.steps_to(error, 3, 100.0) == pytest.approx(50, rel=1e-9)
    assert PAPER.steps_to(PAPER.floor(3), 3, 100.0) == math.inf
    assert PAPER.steps_to(100, 3, 50) == 0


def test_a_learning_rate_the_bound_says_nothing_about_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer.lr=0.5, convexity=2. The largest lr is below 0.5."):
        Bound(lr=0.5, lipschitz=2, convexity=2, variance=1, samples=1, initial_error=1)


def test_switching_times_are_where_the_bound_falls_equally_fast_with_both_k() -> None:
    """The rate of the next k overtakes that of this one: found numerically, not by the formula."""
    made = stages(PAPER, FAST, 5, ladder_k(1, 5, 1))
    for stage, after in pairwise(made):

        def gain(setting: Plan, mu: float, error: float) -> float:
            return (error - PAPER.floor(setting.phi)) / mu

        before_switch, after_switch = after.error * 1.001, after.error * 0.999
        for error, better in ((before_switch, stage), (after_switch, after)):
            rates = {one: gain(one.plan, one.mu, error) for one in (stage, after)}
            assert max(rates, key=lambda one: rates[one]) == better


def test_stages_join_without_gaps_and_the_last_never_ends() -> None:
    made = stages(PAPER, FAST, 5, ladder_k(1, 5, 2))
    assert [stage.plan.k for stage in made] == [1, 3, 5]
    assert [stage.ends for stage in made[:-1]] == [stage.begins for stage in made[1:]]
    assert made[-1].ends == math.inf


def test_an_error_below_the_next_floor_switches_at_once() -> None:
    easy = Bound(lr=0.001, lipschitz=2, convexity=1, variance=10, samples=10, initial_error=0.0005)
    assert [stage.begins for stage in stages(easy, FAST, 5, ladder_k(1, 3, 1))[:2]] == [0.0, 0.0]


def test_a_next_plan_that_is_faster_is_taken_at_once_even_below_its_floor() -> None:
    low = Bound(lr=0.001, lipschitz=2, convexity=1, variance=10, samples=10, initial_error=1e-9)
    slow = ComputationVaries(0, 10, 1)
    ladder = [Plan(4), Plan(5, 0.81), Plan(5)]
    for bound in (low, PAPER):
        assert stages(bound, slow, 10, ladder)[0].ends == 0.0


def test_a_ladder_ends_with_the_most_whatever_the_increment() -> None:
    assert [rung.k for rung in ladder_k(10, 40, 10)] == [10, 20, 30, 40]
    assert [rung.k for rung in ladder_k(1, 6, 2)] == [1, 3, 5, 6]
    assert [rung.k for rung in ladder_k(4, 4, 1)] == [4]


# ---------------------------------------------------------------- k and batch fraction


@pytest.mark.parametrize(("n", "k"), [(20, 1), (20, 5), (50, 1), (50, 3)])
def test_the_grid_optimum_is_the_continuous_one_whatever_communication_costs(n: int, k: int) -> None:
    fine = [place / 20_000 for place in range(1, 20_001)]
    found = best_fraction(ComputationVaries(0.7, 0, 3), n, before=Plan(k), k=k + 1, fractions=fine)
    assert found == pytest.approx(continuous_best_fraction(n, before=Plan(k), k=k + 1), abs=1e-4)


def test_a_next_stage_that_is_no_slower_is_taken_at_its_smallest_fraction() -> None:
    slow = ComputationVaries(0, 10, 1)  # hardly any straggling: half a minibatch halves the time
    for fractions in ([0.81, 0.9, 1.0], [0.85, 0.9, 1.0], [0.9, 0.95, 1.0]):
        assert best_fraction(slow, 10, before=Plan(4), k=5, fractions=fractions) == fractions[0]
    assert best_fraction(slow, 10, before=Plan(4), k=5, fractions=[0.5, 0.7, 0.81, 0.9, 1.0]) == 0.81
    assert slow.order_statistic(10, 5, 0.81) < slow.order_statistic(10, 4, 1)


def test_a_fraction_that_does_not_raise_phi_is_never_chosen() -> None:
    with pytest.raises(ConfigError, match="no allowed batch fraction"):
        best_fraction(FAST, 5, before=Plan(1), k=2, fractions=[0.5])


def test_the_ladder_of_k_and_batch_always_raises_phi() -> None:
    for times in (ComputationVaries(0.01, 0, 1), BothVary(0.1, 0.2, 1, 2)):
        ladder = ladder_k_batch(times, 20, most=10, fractions=(0.2, 0.4, 0.6, 0.8))
        assert ladder[0] == Plan(1, 0.2) and ladder[-1] == Plan(10, 1.0)
        phis = [rung.phi for rung in ladder]
        assert all(one < other for one, other in pairwise(phis))


def test_adapting_the_batch_too_is_never_slower_and_costs_some_communication() -> None:
    """The shape of the paper's Fig. 1 to 3, model 1 with y = 0, to a bound of 1e-3."""
    for rate, x in ((0.05, 0.05), (1, 0.05), (20, 20)):
        times = ComputationVaries(x, 0, rate)
        fractions = [place / 10 for place in range(1, 11)]
        k_only = cost_to(1e-3, PAPER, 50, stages(PAPER, times, 50, ladder_k(1, 50, 1)))
        both = cost_to(
            1e-3, PAPER, 50, stages(PAPER, times, 50, ladder_k_batch(times, 50, most=50, fractions=fractions))
        )
        assert k_only is not None and both is not None
        assert both.seconds <= k_only.seconds * (1 + 1e-12)
        assert both.communication >= k_only.communication * (1 - 1e-12)


def test_costs_add_up_over_the_stages_by_hand() -> None:
    made = stages(PAPER, FAST, 5, ladder_k(1, 2, 1))
    cost = cost_to(0.0009, PAPER, 5, made)
    assert cost is not None
    first = made[0].ends / made[0].mu
    second = PAPER.steps_to(0.0009, 2, made[1].error)
    assert cost.steps == pytest.approx(first + second)
    assert cost.seconds == pytest.approx(made[0].ends + second * 0.09)
    assert cost.computation == pytest.approx(10 * (first + second))
    assert cost.communication == pytest.approx(6 * first + 7 * second)
    assert cost_to(0.0005, PAPER, 5, made) is None
