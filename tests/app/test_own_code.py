"""Delay models, policies and schemes of a user's own: asked for by name, given what they name, checked while used."""

from pathlib import Path
from typing import Any

import pytest

from pgczmq import config
from pgczmq.app import simulate
from pgczmq.app.allowed import asked_for, check_allowed
from pgczmq.app.build import coded_scheme_of, delay_of, scheme_of
from pgczmq.app.explain import explain
from pgczmq.app.own import CheckedDelay, CheckedPolicy
from pgczmq.config import RunConfig
from pgczmq.core.delays import DelayModel, Proportional, SomeWorkers, TwoParts
from pgczmq.core.draws import exponential
from pgczmq.core.policies import Finished, Plan, PolicyState
from pgczmq.errors import ConfigError, JoinRefused
from pgczmq.runlog import StepRecord

RUN = ("workers=4", "scheme.name=is-sgd", "steps=6")


@pytest.fixture(autouse=True)
def _own_code_can_be_imported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.syspath_prepend(request.path.parent)


def run_of(*given: str) -> RunConfig:
    run = config.load(None, [*RUN, *given], {})
    assert config.loads(run.to_toml()) == run  # as the workers get it
    return run


def refusal(*given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        run = run_of(*given)
        delay_of(run)
        scheme_of(run)
    return str(caught.value)


# ---------------------------------------------------------------- delay models


def seconds(model: DelayModel, worker: int, step: int) -> float:
    return model.seconds(worker, step, 2, 1.0)


def test_a_delay_model_gets_its_arguments_and_what_it_names() -> None:
    model = delay_of(run_of("delay.model=own_code:rush", "delay.args.every=3", "seed=5"))
    assert isinstance(model, CheckedDelay)
    assert seconds(model, 1, 3) == 2 * exponential(5, "delay", 1, 3)
    assert seconds(model, 1, 4) == 0.0


def test_a_class_is_a_function_too() -> None:
    args = "delay.args={every=1, seed=9, stream='mine'}"
    assert seconds(delay_of(run_of("delay.model=own_code:Rush", args)), 2, 1) == 2 * exponential(9, "mine", 2, 1)


def test_parts_have_models_of_their_own_with_streams_of_their_own() -> None:
    both = delay_of(run_of("delay.communication.model=own_code:rush", "delay.computation.model=own_code:rush"))
    assert isinstance(both, TwoParts) and isinstance(both.computation, Proportional)
    computed, sent = both.parts(0, 0, 1, 1.0)
    assert computed == exponential(1, "delay computed", 0, 0) != sent == exponential(1, "delay sent", 0, 0)


def test_some_workers_alone_can_be_slow() -> None:
    model = delay_of(run_of("delay.model=own_code:rush", "delay.workers=[1]"))
    assert isinstance(model, SomeWorkers)
    assert (seconds(model, 0, 0), seconds(model, 1, 0) > 0) == (0.0, True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("Drawing", "the same number whoever asks"),
        ("Remembering", "whatever was asked before: got"),
        ("negative", "at least 0: own_code:negative gave -1.0 for worker 3 at step 3"),
        ("word", "gave '1'"),
        ("Failing", "failed for worker 3 at step 3: KeyError: 3"),
        ("Halfway", "also needs"),
        ("halfway", "also needs steps, load"),
        ("DelayModel", "failed: TypeError"),
        ("absent", "has no function absent"),
        ("Rushe", "The nearest is Rush."),
    ],
)
def test_a_delay_model_that_cannot_be_used_is_a_sentence(given: str, words: str) -> None:
    assert words in refusal(f"delay.model=own_code:{given}")


def test_answers_are_checked_as_long_as_they_are_used() -> None:
    model = delay_of(run_of("delay.model=own_code:LateNegative"))
    assert seconds(model, 0, 100) == 1.0
    with pytest.raises(ConfigError, match=r"-1\.0 for worker 0 at step 101"):
        seconds(model, 0, 101)


def test_what_it_does_not_take_is_named_with_what_it_takes() -> None:
    assert refusal("delay.model=own_code:rush", "delay.args.evry=3") == (
        "delay.args: delay model own_code:rush does not take evry. It takes: every."
    )


@pytest.mark.parametrize("section", ["delay", "delay.communication", "delay.computation"])
def test_workers_must_allow_it(section: str) -> None:
    run = run_of(f"{section}.model=own_code:rush")
    assert asked_for(run) == {f"{section}.model": "own_code:rush"}
    with pytest.raises(JoinRefused, match=f"{section}.model = 'own_code:rush'"):
        check_allowed(run, ())
    check_allowed(run, ["own_code:rush"])


# ---------------------------------------------------------------- policies


def test_a_policy_gets_its_arguments_and_what_it_names() -> None:
    scheme = scheme_of(run_of("policy.name=own_code:halfway", "policy.args.start=2"))
    policy: Any = scheme.policy
    assert isinstance(policy, CheckedPolicy)
    assert (policy.policy.workers, policy.policy.steps, policy.policy.load) == (4, 6, 1)


def test_a_policy_decides_a_simulation(tmp_path: Path) -> None:
    closed: list[int] = []
    run = run_of("policy.name=own_code:Halfway", "delay.model=own_code:rush", "delay.args.every=1")
    result = simulate.run(
        run,
        model=None,
        root=tmp_path,
        sink=lambda record: closed.append(record.k) if isinstance(record, StepRecord) else None,
    )
    assert (result.exit, closed) == (0, [1, 1, 1, 4, 4, 4])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("Counting", "decides the same of the same state"),
        ("needless", "has needs = None"),
        ("Numbers", "a policy returns PolicyState(Plan(k)): own_code:Numbers gave 3"),
        ("Breaking", "failed after step 0: ZeroDivisionError: oh"),
        ("Rush", "also needs every, stream"),
        ("negative", "gave ConstantDelay"),
    ],
)
def test_a_policy_that_cannot_be_used_is_a_sentence(given: str, words: str) -> None:
    assert words in refusal(f"policy.name=own_code:{given}")


@pytest.mark.parametrize("plan", [Plan(0), Plan(5), Plan(2, 0.0), Plan(2, 1.5), Plan(2.5)])  # type: ignore[arg-type]
def test_plans_are_checked_as_long_as_they_are_made(plan: Plan) -> None:
    class Fixed:
        def next(self, state: PolicyState, finished: Finished) -> PolicyState:
            return PolicyState(plan)

    with pytest.raises(ConfigError, match="a step closes at 1 to 4 arrivals"):
        CheckedPolicy(Fixed(), "mine", 4).next(PolicyState(Plan(1)), Finished(0, 1, 1.0))  # type: ignore[arg-type]


def test_a_run_ends_in_a_sentence_when_a_policy_asks_for_too_many(tmp_path: Path) -> None:
    run = run_of("policy.name=own_code:Growing")
    with pytest.raises(ConfigError, match="own_code:Growing gave k=5"):
        simulate.run(run, model=None, root=tmp_path, sink=lambda record: None)


def test_a_worker_neither_runs_nor_allows_a_policy() -> None:
    run = run_of("policy.name=own_code:absent")
    assert asked_for(run) == {}
    assert coded_scheme_of(run).takes_any_k


# ---------------------------------------------------------------- schemes, and what is ignored


def test_a_scheme_that_fails_is_a_sentence() -> None:
    assert "scheme own_code:failing_scheme failed: ZeroDivisionError: oh (" in refusal(
        "scheme.name=own_code:failing_scheme"
    )


@pytest.mark.parametrize("module", ["own_code.py", "tests/own_code.py", "./own_code"])
def test_a_file_is_named_as_a_module(module: str) -> None:
    assert "A file is named as a module, from its own directory: own_code:scheme." in refusal(
        f"scheme.name={module}:scheme"
    )


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        (["delay.model=own_code:rush", "delay.args.every=3"], []),
        (["delay.model=own_code:rush", "delay.mean=3"], ["delay.mean"]),
        (["delay.model=exponential", "delay.mean=3", "delay.shape=3"], ["delay.shape"]),
        (["delay.model=exponential", "delay.args.every=3"], ["delay.args"]),
        (["delay.computation.model=own_code:rush", "delay.computation.shift=1"], ["delay.computation.shift"]),
        (["policy.name=own_code:Halfway", "policy.start=2"], ["policy.start"]),
        (["policy.start=2", "policy.args.start=2"], ["policy.args", "policy.start"]),
        (["policy.name=adaptive-k", "policy.burn_in=3", "policy.min_steps=2"], ["policy.min_steps"]),
        (["policy.name=adaptive-k", "policy.test=distance", "policy.min_steps=2", "policy.lag=2"], ["policy.lag"]),
    ],
)
def test_settings_that_nobody_reads_are_called_ignored(given: list[str], ignored: list[str]) -> None:
    assert explain(run_of(*given))["ignored"] == ignored


def test_explain_says_who_decides() -> None:
    told = explain(run_of("policy.name=own_code:Halfway"))
    assert (told["k"], told["policy"]) == (1, "own_code:Halfway")
    with pytest.raises(ConfigError, match=r"there is no delay model expo\. The nearest is exponential"):
        explain(run_of("delay.model=expo"))
