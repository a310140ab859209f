"""Policies as pure functions of what finished: by hand, by independent code, and through the engine."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Applied, Apply, Arrived, Command, Heard, Joined, Outcome, Publish, Ready, Tick
from pgczmq.core.policies import (
    DistanceTest,
    Finished,
    FixedPolicy,
    Needs,
    Plan,
    Policy,
    PolicyState,
    SignTest,
    StationaryPolicy,
    Statistics,
    TimedPolicy,
    power_of,
    states,
)
from pgczmq.core.schemes import ANY_K, SCHEMES, Settings, build
from pgczmq.errors import ConfigError

LADDER = (Plan(1), Plan(2), Plan(4))


def signs(values: Sequence[float | None]) -> list[Finished]:
    return [Finished(step, 1, 0.1 * (step + 1), Statistics(1.0, inner=value)) for step, value in enumerate(values)]


def ks(policy: Policy, finished: Sequence[Finished]) -> list[int]:
    return [state.plan.k for state in states(policy, finished)]


# ---------------------------------------------------------------- fixed and timed


def test_a_fixed_policy_never_moves_and_needs_nothing() -> None:
    policy = FixedPolicy(Plan(3, 0.5))
    assert {state.plan for state in states(policy, signs([-1.0] * 50))} == {Plan(3, 0.5)}
    assert policy.needs == Needs()


def test_a_timed_policy_changes_with_the_first_step_that_closes_too_late() -> None:
    policy = TimedPolicy(LADDER, (1.0, 2.0))
    times = [0.4, 0.99, 1.0, 1.5, 2.5, 9.0]
    finished = [Finished(step, 1, at) for step, at in enumerate(times)]
    assert ks(policy, finished) == [1, 1, 1, 2, 2, 4, 4]
    assert [state.changed_at for state in states(policy, finished)] == [0, 0, 0, 3, 3, 5, 5]


def test_a_timed_policy_may_skip_plans_that_are_left_at_once() -> None:
    assert ks(TimedPolicy(LADDER, (0.0, 5.0)), [Finished(0, 1, 1.0)]) == [2, 2]
    assert ks(TimedPolicy(LADDER, (1.0, 1.0)), [Finished(0, 1, 1.0)]) == [1, 4]


# ---------------------------------------------------------------- the sign test


def test_the_sign_test_counts_up_and_down_and_waits_for_its_burn_in() -> None:
    policy = StationaryPolicy(LADDER, SignTest(threshold=2, burn_in=4))
    finished = signs([-1.0] * 12)
    assert ks(policy, finished) == [1] * 5 + [2] * 5 + [4] * 3
    counters = [state.counter for state in states(policy, finished)]
    assert counters[:6] == [0, 1, 2, 3, 4, 0]
    assert counters[10:] == [0, 0, 0]  # with the last plan nothing is counted any more


def test_a_zero_counts_as_progress_and_a_step_without_a_product_not_at_all() -> None:
    policy = StationaryPolicy(LADDER, SignTest(threshold=100, burn_in=0))
    counters = [state.counter for state in states(policy, signs([None, 0.0, 1.0, -1.0, None]))]
    assert counters == [0, 0, -1, -2, -1, -1]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    values=st.lists(st.sampled_from([-1.0, 1.0]), max_size=150),
    threshold=st.integers(0, 5),
    burn_in=st.integers(0, 20),
)
def test_the_sign_test_is_the_paper_s_loop(values: list[float], threshold: int, burn_in: int) -> None:
    """Algorithm 1 as a loop with counters, written independently; k = 1, 3, 5, 6 of n = 6."""
    k, negatives, since = 1, 0, 0
    expected = [k]
    for value in values:
        since += 1
        if k < 6:
            negatives += 1 if value < 0 else -1
            if since > burn_in and negatives > threshold:
                k, negatives, since = min(k + 2, 6), 0, 0
        expected.append(k)
    ladder = tuple(Plan(k) for k in (1, 3, 5, 6))
    assert ks(StationaryPolicy(ladder, SignTest(threshold, burn_in)), signs(values)) == expected


def test_consecutive_estimates_of_a_pipelined_scheme_hide_what_the_lag_shows() -> None:
    """schemes.md section 5: at rest, estimates that share gradients agree in sign, those lag c apart do not."""
    rng = np.random.default_rng(1)
    load, steps, size = 4, 4000, 50
    fresh = rng.standard_normal((steps + load, size))
    estimates = np.stack([fresh[t : t + load].mean(axis=0) for t in range(steps)])

    def negative(lag: int) -> float:
        return float(np.mean(np.sum(estimates[lag:] * estimates[:-lag], axis=1) < 0))

    assert negative(1) < 0.05
    assert 0.45 < negative(load) < 0.7


# ---------------------------------------------------------------- the distance test


def distances(values: Sequence[float]) -> list[Finished]:
    return [Finished(step, 1, 0.0, Statistics(1.0, distance=value)) for step, value in enumerate(values)]


def test_it_looks_after_powers_of_one_and_a_half() -> None:
    looked = {steps: power for steps in range(1, 200) if (power := power_of(steps)) is not None}
    assert looked == {math.ceil(1.5**m): m for m in range(14) if math.ceil(1.5**m) < 200}
    assert power_of(0) is None


def test_progress_in_a_straight_line_never_fires_and_standing_still_does() -> None:
    policy = StationaryPolicy(LADDER, DistanceTest(threshold=0.6))
    straight = distances([float(step + 1) ** 2 for step in range(500)])  # slope 2
    assert set(ks(policy, straight)) == {1}
    still = distances([1.0 - 0.5 ** (step + 1) for step in range(40)])  # slope 0 soon
    assert ks(policy, still).index(2) == 12  # ceil(1.5^6): the first m above k0 = 5


@pytest.mark.parametrize(("slope", "squared", "fires"), [(0.7, True, False), (0.5, True, True), (0.7, False, True)])
def test_the_slope_is_of_the_squared_distance_unless_said_otherwise(slope: float, squared: bool, fires: bool) -> None:
    policy = StationaryPolicy(LADDER, DistanceTest(threshold=0.6, squared=squared))
    finished = distances([(step + 1) ** slope for step in range(12)])
    assert (ks(policy, finished)[-1] == 2) == fires


def test_it_begins_anew_with_every_plan_and_waits_for_min_steps() -> None:
    policy = StationaryPolicy(LADDER, DistanceTest(threshold=0.6, min_steps=13))
    assert ks(policy, distances([1.0] * 40)) == [1] * 18 + [2] * 18 + [4] * 5  # 18 = ceil(1.5^7), the next after 12


def test_a_reference_that_was_never_left_says_nothing() -> None:
    policy = StationaryPolicy(LADDER, DistanceTest(threshold=0.6))
    assert set(ks(policy, distances([0.0] * 100))) == {1}


# ---------------------------------------------------------------- what is asked for and what is kept


def test_needs_name_what_is_read_and_nothing_else() -> None:
    assert StationaryPolicy(LADDER, SignTest(10, 200, lag=3)).needs == Needs(lag=3)
    assert StationaryPolicy(LADDER, DistanceTest(0.6)).needs == Needs(distance=True)
    assert StationaryPolicy(LADDER[:1], SignTest(10, 200)).needs == Needs()  # nothing to decide
    assert TimedPolicy(LADDER, (1.0, 2.0)).needs == Needs()


def test_a_state_survives_json() -> None:
    for state in (PolicyState(Plan(3, 0.4)), PolicyState(Plan(2), 1, 17, -4, 0.123456789012345678)):
        assert PolicyState.from_plain(json.loads(json.dumps(state.plain()))) == state


def test_going_on_from_a_saved_state_is_going_on() -> None:
    rng = np.random.default_rng(3)
    policy = StationaryPolicy(LADDER, SignTest(2, 5))
    finished = signs([float(value) for value in rng.standard_normal(80) - 0.5])
    whole = list(states(policy, finished))
    state = PolicyState.from_plain(json.loads(json.dumps(whole[30].plain())))
    for place, one in enumerate(finished[30:], start=31):
        state = policy.next(state, one)
        assert state == whole[place]


# ---------------------------------------------------------------- through the engine


class Run:
    """A run of is-sgd whose answers all arrive at once and whose statistics are made up."""

    def __init__(self, policy: Policy, *, workers: int = 4, deterministic: bool = False, start: float = 5.0) -> None:
        self.scheme = replace(build(Settings(name="is-sgd", workers=workers)), adaptive=policy)
        rules = Rules(steps=1000, deterministic=deterministic)
        self.engine = Engine(self.scheme, rules, lambda worker, *_: 1.0 + worker, 0.0)
        self.now = start
        said: list[Command] = []
        for worker in range(workers):
            self.engine.handle(Joined(worker, "a", start))
            said = self.engine.handle(Ready(worker, "a", start))
        self.published = [one for one in said if isinstance(one, Publish)]
        self.finished: list[Finished] = []

    def step(self, statistics: Statistics | None) -> Apply:
        step = self.engine.open_step
        for worker in range(self.scheme.workers):
            self.now += 0.25
            answer = Arrived(worker, "a", step, (0,), ((worker, 1.0),), 1.0, self.now)
            for one in self.engine.handle(answer):
                if isinstance(one, Apply):
                    apply = one
        self.now += 1.0
        said = self.engine.handle(Applied(step, self.now, statistics))
        self.published += [one for one in said if isinstance(one, Publish)]
        return apply


def test_the_engine_publishes_what_the_policy_plans_and_closes_at_it() -> None:
    policy = StationaryPolicy((Plan(1, 0.5), Plan(2, 0.5), Plan(4, 1.0)), SignTest(threshold=2, burn_in=0))
    run = Run(policy)
    closed = [run.step(Statistics(1.0, inner=-1.0)).closed for _ in range(8)]
    expected = [(1, 0.5)] * 3 + [(2, 0.5)] * 3 + [(4, 1.0)] * 3
    assert [(one.k, one.batch_fraction) for one in run.published] == expected
    assert [(one.k, one.batch_fraction) for one in closed] == expected[:8]
    assert [len(one.arrived) for one in closed] == [1, 1, 1, 2, 2, 2, 4, 4]
    assert run.engine.progress.policy.plan == Plan(4, 1.0)


def test_replaying_the_records_gives_the_same_plan_at_every_step() -> None:
    rng = np.random.default_rng(7)
    for policy in (
        StationaryPolicy(LADDER, SignTest(2, 5)),
        StationaryPolicy(LADDER, DistanceTest(0.6)),
        TimedPolicy(LADDER, (20.0, 40.0)),
    ):
        run = Run(policy)
        said = [Statistics(1.0, float(rng.standard_normal() - 0.3), float(rng.random())) for _ in range(60)]
        closed = [run.step(one).closed for one in said]
        began = closed[0].published_at
        finished = [
            Finished(one.step, len(one.arrived), one.closed_at - began, statistics)
            for one, statistics in zip(closed, said, strict=True)
        ]
        replayed = [state.plan for state in states(policy, finished)]
        assert replayed == [Plan(one.k, one.batch_fraction) for one in run.published]
        assert len(set(replayed)) > 1


def test_a_deterministic_run_tells_the_policy_planned_times_whenever_it_happens() -> None:
    """Planned: the k-th arrival takes k seconds, so steps close at 1, 2, then 4, 6, then 10 s of planned time."""
    for start in (0.0, 1234.5678):
        run = Run(TimedPolicy(LADDER, (1.5, 5.5)), deterministic=True, start=start)
        for _ in range(6):
            run.step(None)
        assert [one.k for one in run.published] == [1, 1, 2, 2, 4, 4, 4]


def test_a_run_may_start_as_soon_as_the_policy_s_first_k_is_there() -> None:
    scheme = replace(build(Settings(name="is-sgd", workers=4)), adaptive=TimedPolicy(LADDER, (50.0, 90.0)))
    engine = Engine(scheme, Rules(steps=9, start_timeout=10.0), lambda *_: 0.0, 0.0)
    engine.handle(Joined(2, "a", 0.0))
    engine.handle(Ready(2, "a", 1.0))
    for at in (2.0, 6.0):
        engine.handle(Tick(at))
        engine.handle(Heard(2, "a", at))
    assert Publish(0, 1, 1.0, Outcome()) in engine.handle(Tick(10.5))


def test_a_policy_that_reads_statistics_is_not_left_without() -> None:
    with pytest.raises(ConfigError, match="statistics of the gradients"):
        Run(StationaryPolicy(LADDER, SignTest(2, 5))).step(None)


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_of_any_k_follow_a_policy_and_the_others_refuse(name: str) -> None:
    scheme = build(Settings(name=name, workers=4))
    policy = TimedPolicy(LADDER, (1.0, 2.0))
    if name in ANY_K:
        assert scheme.following(policy).policy == policy
        assert scheme.policy == FixedPolicy(Plan(scheme.k))
    else:
        with pytest.raises(ConfigError, match=f"the code of {name} fixes how many arrivals"):
            scheme.following(policy)
