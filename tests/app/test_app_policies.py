"""The ``[policy]`` section: what is built from it, and what is refused."""

import pytest

from pgczmq import config
from pgczmq.app.build import scheme_of
from pgczmq.app.explain import explain
from pgczmq.core.policies import (
    DistanceTest,
    FixedPolicy,
    Needs,
    Plan,
    Policy,
    SignTest,
    StationaryPolicy,
    TimedPolicy,
)
from pgczmq.errors import ConfigError


def policy(*given: str) -> Policy:
    return scheme_of(config.load(None, ["workers=6", *given], {})).policy


def test_fixed_is_the_default_and_waits_for_k() -> None:
    assert policy() == FixedPolicy(Plan(5))
    assert policy("scheme.k=2") == FixedPolicy(Plan(2))
    assert policy("scheme.name=dgd", "policy.burn_in=3") == FixedPolicy(Plan(6))


def test_adaptive_k_goes_up_with_the_sign_test_and_the_lag_of_its_scheme() -> None:
    found = policy("scheme.name=is-sgd", "policy.name=adaptive-k", "policy.increment=2")
    assert found == StationaryPolicy((Plan(1), Plan(3), Plan(5), Plan(6)), SignTest(10.0, 200, 1))
    pipelined = policy("scheme.name=pgc-cr", "scheme.stragglers=3", "policy.name=adaptive-k")
    assert pipelined.needs == Needs(lag=4)
    assert policy("scheme.name=is-gc-cr", "scheme.load=3", "policy.name=adaptive-k").needs == Needs(lag=1)
    assert policy("policy.name=adaptive-k", "policy.lag=1").needs == Needs(lag=1)


def test_the_tests_have_defaults_of_their_own() -> None:
    asked = ("policy.name=adaptive-k", "policy.start=2", "policy.most=3", "policy.test=distance")
    assert policy(*asked) == StationaryPolicy((Plan(2), Plan(3)), DistanceTest(0.6, 5, 0, True))
    more = ("policy.threshold=1.2", "policy.skip=3", "policy.min_steps=40", "policy.distance=plain")
    assert policy(*asked, *more) == StationaryPolicy((Plan(2), Plan(3)), DistanceTest(1.2, 3, 40, False))


def test_bound_optimal_k_switches_at_the_fixture_s_times() -> None:
    example = ("workers=5", "optimizer.lr=0.001", "task.batch_size=10", "policy.response.computation_rate=5")
    found = policy("scheme.name=is-sgd", "policy.name=bound-optimal-k", *example)
    assert isinstance(found, TimedPolicy)
    assert found.ladder == tuple(Plan(k) for k in (1, 2, 3, 4, 5))
    assert found.leave_at == pytest.approx((496.92, 621.62, 793.65, 1102.52), abs=0.005)


def test_adaptive_k_batch_grows_the_batch_first_and_leaves_detours_out() -> None:
    asked = ("scheme.name=is-sgd", "policy.name=adaptive-k-batch", "policy.most=3", "policy.fractions=[0.5, 1]")
    found = policy(*asked)
    assert isinstance(found, StationaryPolicy)
    assert found.ladder[:2] == (Plan(1, 0.5), Plan(1, 1.0))
    phis = [plan.phi for plan in found.ladder]
    assert phis == sorted(set(phis)) and found.ladder[-1] == Plan(3, 1.0)
    constant = policy(*asked, "policy.response.computation=100", "policy.fractions=[0.4, 0.75, 1]")
    assert isinstance(constant, StationaryPolicy)  # k costs nothing there: 2 of .75 beat 1 of 1 at once
    assert Plan(1, 1.0) not in constant.ladder and Plan(2, 0.75) in constant.ladder


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["scheme.name=dgd"], "the code of dgd fixes how many arrivals close a step"),
        (["scheme.name=gc-fr", "policy.name=bound-optimal-k"], "the code of gc-fr"),
        (["scheme.k=3"], 'got scheme.k=3 with policy.name="adaptive-k"'),
        (["policy.start=7"], "policy.start=7, policy.most=6, workers=6"),
        (["policy.name=bound-optimal-k", "optimizer.lr=2"], "the bound needs lr * convexity below 1"),
        (["policy.name=adaptive-j"], "there is no policy adaptive-j. The nearest is adaptive-k."),
        (["policy.fractions=[]"], "policy.fractions should be numbers above 0"),
    ],
)
def test_what_cannot_be_is_a_sentence(given: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy("policy.name=adaptive-k", *given)
    assert words in str(caught.value)


def test_explain_says_what_the_first_steps_wait_for_and_who_decides_later() -> None:
    given = ["workers=6", "scheme.name=is-sgd", "policy.name=adaptive-k", "policy.start=2"]
    told = explain(config.load(None, given, {}), arrived=[3, 1])
    assert (told["k"], told["policy"], told["usable"]) == (2, "adaptive-k", True)
    assert explain(config.load(None, ["workers=6"], {}))["policy"] == "fixed"
