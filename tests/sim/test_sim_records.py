"""What a simulated run leaves: every step once and in order, failures and returns, the end of a run that is stuck."""

import math

import pytest
from sim_runs import Simulated, scheme_of, simulate

from pgczmq.core.delays import Failure
from pgczmq.core.schemes import SCHEMES
from pgczmq.runlog import EvalRecord
from pgczmq.sim.virtual import Aside, Durations

STEPS = 60


def check(run: Simulated) -> None:
    workers = list(range(run.scheme.workers))
    assert [step.step for step in run.steps] == list(range(len(run.steps)))
    before = 0.0
    for step in run.steps:
        assert before == step.published_at <= step.closed_at == step.applied_at
        before = step.applied_at
        assert sorted(step.arrived + step.missing) == workers
        assert sorted(step.used + step.spare) == sorted(step.arrived)
        assert list(step.arrived_at) == sorted(step.arrived_at)
        assert math.isnan(step.loss)
    keys = [(record.worker, record.step) for record in run.latencies]
    assert len(keys) == len(set(keys))
    in_time = {(record.worker, record.step) for record in run.latencies if record.outcome == "open"}
    assert in_time == {(worker, step.step) for step in run.steps for worker in step.arrived}
    for record in run.latencies:
        spent = record.wait + record.compute + record.delay + record.send
        assert record.published_at + spent == pytest.approx(record.arrived_at)


@pytest.mark.parametrize("on_new_step", ["skip", "abandon", "queue"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_step_comes_once_and_in_order(scheme: str, on_new_step: str) -> None:
    run = simulate(scheme_of(scheme, 6, stragglers=1, on_new_step=on_new_step), steps=STEPS)
    assert (run.ending.exit_code, run.ending.steps) == (0, STEPS)
    check(run)


def test_two_runs_are_the_same() -> None:
    first, second = (simulate(scheme_of("pgc-cr", 8, stragglers=2), steps=STEPS) for _ in range(2))
    assert repr(first.records) == repr(second.records)


def test_a_worker_fails_and_returns_with_nothing_retained() -> None:
    scheme = scheme_of("pgc-cr", 4, on_new_step="abandon")
    durations = Durations(delay=lambda *_: 1.0)
    run = simulate(scheme, steps=20, durations=durations, failures=[Failure(1, 4.5, 9.5)])
    assert [step.step for step in run.steps if 1 in step.missing] == [4, 5, 6, 7, 8, 9]
    assert [(event.at, event.worker) for event in run.events("left")] == [(4.5, 1)]
    again = [record for record in run.latencies if record.worker == 1 and record.incarnation == "1.1"]
    assert (again[0].step, again[0].evaluated) == (10, 1)
    assert run.steps[10].ages[1] == (1, 0)  # it was sent the open step 9, warmed up and dropped it
    assert run.ending.seconds == 20.0


def test_a_run_waits_for_a_worker_that_returns() -> None:
    run = simulate(
        scheme_of("dgd", 3), steps=4, durations=Durations(delay=lambda *_: 1.0), failures=[Failure(0, 1.5, 100.0)]
    )
    assert [step.closed_at for step in run.steps] == [1.0, 101.0, 102.0, 103.0]
    assert [event.kind for event in (*run.events("waiting"), *run.events("enough"))] == ["waiting", "enough"]


def test_a_run_that_is_stuck_ends_after_step_timeout() -> None:
    durations = Durations(delay=lambda *_: 1.0)
    for failures in ([Failure(0, 1.5)], [Failure(0, 1.5, 800.0)]):
        run = simulate(scheme_of("dgd", 3), steps=4, durations=durations, failures=failures)
        assert (run.ending.exit_code, run.ending.steps) == (74, 1)
        assert "step_timeout=600 s; dgd needs 3 of 3 workers; missing 0" in run.ending.reason
        assert 601.0 < run.events("finished")[0].at < 601.1


def test_a_run_starts_without_those_who_are_not_there_after_start_timeout() -> None:
    run = simulate(scheme_of("pgc-cr", 4), steps=3, failures=[Failure(2, 0.0)])
    assert 120 < run.steps[0].published_at < 120.1
    assert {step.missing for step in run.steps} == {(2,)}
    run = simulate(scheme_of("pgc-cr", 4), steps=3, failures=[Failure(2, 0.0), Failure(3, 0.0)])
    assert run.ending.exit_code == 74


def test_a_lost_worker_ends_a_deterministic_run() -> None:
    run = simulate(
        scheme_of("dgd", 3), steps=4, durations=Durations(), rules={"deterministic": True}, failures=[Failure(1, 1.0)]
    )
    assert run.ending.exit_code == 74


def test_evaluations_and_checkpoints_are_asked_for() -> None:
    saved: list[int] = []
    aside = Aside(evaluate=lambda: (0.5, None), checkpoint=lambda progress: saved.append(progress.steps) or "saved")
    rules = {"eval_every": 4, "checkpoint_every": 3}
    run = simulate(scheme_of("pgc-cr", 4), steps=10, aside=aside, rules=rules)
    assert [record.step for record in run.records if isinstance(record, EvalRecord)] == [4, 8, 10]
    assert saved == [3, 6, 9, 10]
    assert [event.step for event in run.events("checkpoint")] == saved
