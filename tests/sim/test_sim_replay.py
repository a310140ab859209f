"""Runs that are over through the simulator again: exact where they can be, refused in words where they cannot."""

import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sim_runs import scheme_of, simulate

from pgczmq.app import simulate as app
from pgczmq.app.recorded import RecordedDurations, read_recorded
from pgczmq.app.replay import NOT_WHOLE, Account, by_arrivals, by_durations, differences, replay
from pgczmq.app.stragglers import delay_of
from pgczmq.config import load
from pgczmq.errors import ConfigError
from pgczmq.sim.virtual import Durations
from pgczmq.view.replay_view import others, sentences

RUN = ["workers=6", "steps=60", "scheme.stragglers=2", "delay.model=exponential", "delay.mean=1", "name=run"]


def recorded(root: Path, *settings: str) -> Path:
    """The directory of a simulated run without gradients."""
    app.run(load(None, [*RUN, *settings], {}), model=None, sink=lambda record: None, root=root)
    return root / "run"


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------- seams of the simulator


def test_updates_take_time_in_which_answers_are_late() -> None:
    durations = Durations(delay=lambda worker, *_: 1.0 + worker, update=lambda step: 1.5)
    run = simulate(scheme_of("is-sgd", 4, stragglers=2), steps=3, durations=durations)
    assert [(step.published_at, step.closed_at, step.applied_at) for step in run.steps] == [
        (0.0, 2.0, 3.5),
        (3.5, 5.5, 7.0),
        (7.0, 9.0, 10.5),
    ]
    assert [(late.worker, late.step, late.at) for late in run.events("late")][:2] == [(2, 0, 3.0), (3, 0, 4.0)]
    assert run.ending.seconds == 10.5


def test_parameters_take_time_and_the_newest_count() -> None:
    """Worker 1 gets step 0 after step 1 was published, and step 1 before it has done with step 0."""
    durations = Durations(
        delay=lambda worker, step, *_: 1.0 if worker == 0 else 1.25,
        parameters=lambda worker, step: 0.0 if worker == 0 else 1.5,
    )
    run = simulate(scheme_of("is-sgd", 2, stragglers=1), steps=4, durations=durations)
    mine = [(answer.step, answer.arrived_at) for answer in run.latencies if answer.worker == 1]
    assert mine == [(0, 2.75), (1, 4.0)]
    assert [step.closed_at for step in run.steps] == [1.0, 2.0, 3.0, 4.0]


# ---------------------------------------------------------------- what comes out exactly


@pytest.mark.parametrize("on_new_step", ["skip", "abandon", "queue"])
@pytest.mark.parametrize("name", ["dgd", "is-sgd", "gc-fr", "gc-cr", "is-gc-cr", "pgc-cr", "pgc-fr-staggered"])
def test_a_simulated_run_comes_out_again(name: str, on_new_step: str, tmp_path: Path) -> None:
    run = recorded(tmp_path, f"scheme.name={name}", f"scheme.on_new_step={on_new_step}", "scheme.load=3")
    result = replay(run)
    for way in (result["arrivals"], result["durations"]):
        assert (way["agree"], way["steps"], way["share"], way["others"]) == (60, 60, 1.0, [])
    assert sentences(result)[1].startswith("arrivals: exact")
    assert not others(result)


def test_weights_and_order_come_out_of_the_arrivals_too(tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=gc-cr")
    before = read_recorded(run)
    after = by_arrivals(before)
    same = ("k", "arrived", "used", "spare", "missing", "weights", "recovered", "max_alpha")
    for step in before.steps:
        assert [getattr(step, name) for name in same] == [getattr(after.steps[step.step], name) for name in same]


def test_a_policy_that_goes_by_time_switches_at_the_same_steps(tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=is-sgd", "policy.name=bound-optimal-k", "policy.start=1", "optimizer.lr=0.3")
    before = read_recorded(run)
    assert len({step.k for step in before.steps}) > 1
    assert [by_arrivals(before).steps[step.step].k for step in before.steps] == [step.k for step in before.steps]
    assert replay(run)["arrivals"]["others"] == []


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
def test_the_clocks_of_workers_need_not_agree(on_new_step: str, tmp_path: Path) -> None:
    """Each worker's clock began at another time."""
    before = read_recorded(recorded(tmp_path, "scheme.name=pgc-cr", f"scheme.on_new_step={on_new_step}"))
    answers = [
        replace(answer, received_at=answer.published_at + 1000.0 * (answer.worker - 3)) for answer in before.answers
    ]
    fed = RecordedDurations(replace(before, answers=answers), delay_of(before.config))
    replayed = by_durations(before, fed)
    assert differences(Account.of([*before.steps, *before.answers]), replayed, 6) == []


def test_a_step_that_was_given_up_takes_what_it_took_and_its_delay_is_drawn_again(tmp_path: Path) -> None:
    before = read_recorded(recorded(tmp_path, "scheme.name=is-sgd"))
    last = next(answer for answer in before.answers if answer.worker == 2 and answer.step > 3)
    told = replace(last, dropped=((float(last.step - 1), last.published_at, 99.0, 0.25),))
    rest = [answer for answer in before.answers if (answer.worker, answer.step) not in {(2, last.step - 1)}]
    answers = [told if answer is last else answer for answer in rest]
    fed = RecordedDurations(replace(before, answers=answers), delay_of(before.config))
    durations = fed.durations
    assert durations.evaluation is not None
    assert durations.delay is not None
    assert durations.evaluation(2, last.step - 1, 1, 1.0) == 0.25
    assert durations.delay(2, last.step - 1, 1, 1.0) == pytest.approx(99.0)  # longer than what was slept
    assert durations.delay(2, last.step, 1, 1.0) == last.delay
    assert fed.stood_in == set()
    durations.evaluation(2, 10_000, 1, 1.0)
    assert fed.stood_in == {(2, 10_000)}


ODD = [
    (),
    (3.0, 1.0),
    (-1.0, 1.0, 0.0, 0.25),
    (-7.5, 1.0, 0.0, 0.25),
    (2.5, 1.0, 0.0),
    (60.0, 1.0, 0.0, 0.25),
    (1e300, 1.0, 0.0),
    (3.0, None, 0.0),
    (3.0, 1.0, -1.0),
    (3.0, 1.0, 0.0, math.inf),
    ("3", 1.0, 0.0),
]


@pytest.mark.parametrize("entry", ODD, ids=str)
def test_a_step_given_up_that_cannot_have_been_is_left_out(entry: Any, tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=is-sgd")
    expected = replay(run)
    lines = [json.loads(line) for line in (run / "latencies.jsonl").read_text().splitlines()]
    lines[20]["dropped"] = [entry]
    (run / "latencies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replay(run) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"step": -7},
        {"step": 2.5},
        {"worker": 6},
        {"worker": None},
        {"arrived_at": None},
        {"compute": None},
        {"delay": -1.0},
        {"evaluations": [None]},
        {"received_at": math.inf},
        {"evaluated": "2"},
    ],
    ids=str,
)
def test_an_answer_that_no_worker_can_have_given_is_said_to_be_none(change: dict[str, Any], tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=is-sgd")
    lines = [json.loads(line) for line in (run / "latencies.jsonl").read_text().splitlines()]
    lines[20] |= change
    (run / "latencies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ConfigError, match=r"line 21 of latencies\.jsonl in .*run is no answer that a worker can"):
        replay(run)


def test_the_record_may_say_more_than_the_steps_that_are_replayed(tmp_path: Path) -> None:
    """Of a run that was cut off: answers to a step that is left out arrived at the moment the last one was applied."""
    run = recorded(tmp_path, "scheme.name=is-sgd", "delay.model=none")
    lines = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    (run / "steps.jsonl").write_text("".join(lines[:10]))
    result = replay(run)
    assert (result["arrivals"]["steps"], result["durations"]["steps"]) == (10, 10)


def test_workers_that_die_and_come_back_are_replayed_by_arrivals_alone(tmp_path: Path) -> None:
    failures = "delay.failures=[{worker=1, down_at=5, back_at=20}, {worker=1, down_at=30, back_at=31}, "
    run = recorded(tmp_path, "scheme.name=pgc-cr", failures + "{worker=4, down_at=10}]")
    result = replay(run)
    assert result["arrivals"]["agree"] == 60
    assert result["durations"] == NOT_WHOLE
    assert sentences(result)[2] == f"durations: {NOT_WHOLE}"


def test_a_run_that_was_cut_off_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=pgc-cr")
    lines = (run / "latencies.jsonl").read_text().splitlines(keepends=True)
    (run / "latencies.jsonl").write_text("".join(lines[:150]) + lines[150][:20])
    arrivals = replay(run)["arrivals"]
    assert arrivals["agree"] == arrivals["steps"]
    assert 20 < arrivals["steps"] < 60


# ---------------------------------------------------------------- what does not


def test_an_answer_that_came_otherwise_is_listed_with_its_margin(tmp_path: Path) -> None:
    """The arrival that closed a step and the late one behind it change places, where they were closest."""
    before = read_recorded(recorded(tmp_path, "scheme.name=is-sgd"))
    pairs = [
        (late.arrived_at - step.closed_at, before.answers[before.answers.index(late) - 1], late)
        for step in before.steps
        for late in before.answers
        if late.step == step.step and late.outcome == "late"
    ]
    gap, closing, following = min(pair for pair in pairs if pair[1].step == pair[2].step)
    swapped = [
        replace(a, arrived_at=following.arrived_at)
        if a is closing
        else replace(a, arrived_at=closing.arrived_at)
        if a is following
        else a
        for a in before.answers
    ]
    swapped.sort(key=lambda answer: answer.arrived_at)
    replayed = by_arrivals(replace(before, answers=swapped))
    (other,) = differences(Account.of([*before.steps, *before.answers]), replayed, 6)
    assert other.step == closing.step
    assert other.margin == pytest.approx(gap)
    assert {worker for worker, *_ in other.changed} == {closing.worker, following.worker}


def test_what_disagrees_is_said_and_listed() -> None:
    changed = [
        {"worker": 3, "recorded": "used", "replayed": "late", "stood_in": False},
        {"worker": 5, "recorded": "missing", "replayed": "used", "stood_in": True},
    ]
    listed = [{"step": 7, "margin": 0.00123, "changed": changed}, {"step": 8, "margin": None, "changed": []}]
    way = {"steps": 400, "agree": 398, "share": 0.995, "others": listed, "answers": 2000, "stand_ins": 1}
    result = {"run": "runs/a", "scheme": "pgc-cr", "on_new_step": "skip", "workers": 6, "arrivals": way}
    result["durations"] = way
    assert sentences(result) == [
        "runs/a: pgc-cr, 6 workers, on_new_step=skip, 400 steps",
        "arrivals: NOT EXACT: 2 of 400 steps closed otherwise",
        "durations: 398 of 400 steps agree (99.50 %); once a simulated worker began a step that the "
        "real one skipped, and took as long as the real one at the step before",
    ]
    shown = io.StringIO()
    for table in others(result):
        Console(file=shown, width=120).print(table)
    for text in ("1.23 ms", "3: used, late; 5: missing, used (its durations were not recorded)", "never closed it"):
        assert shown.getvalue().count(text) == 2


def test_a_step_that_the_replay_never_closes_is_listed_without_a_margin(tmp_path: Path) -> None:
    before = read_recorded(recorded(tmp_path, "scheme.name=dgd"))
    lost = [answer for answer in before.answers if (answer.worker, answer.step) != (2, 50)]
    replayed = by_arrivals(replace(before, answers=lost))
    found = differences(Account.of([*before.steps, *before.answers]), replayed, 6)
    assert [(other.step, other.margin) for other in found] == [(step, None) for step in range(50, 60)]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["scheme.name=pgc-cr", "deterministic=true"], "a deterministic run closes its steps as planned"),
        (["scheme.name=async"], "asynchronous SGD closes no steps"),
        (
            ["scheme.name=gc-cr", "scheme.shortfall=partial", "delay.failures=[{worker=1, down_at=5, back_at=20}]"],
            'with scheme.shortfall="partial" it counts who could still answer',
        ),
    ],
)
def test_runs_that_cannot_be_replayed_say_so(settings: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        replay(recorded(tmp_path, *settings))
    assert "What can be replayed is" in str(caught.value)


def test_a_run_that_refused_a_gradient_cannot_be_replayed(tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=pgc-cr")
    line = {
        "at": 3.0,
        "kind": "refused",
        "text": "worker 2: the gradient for step 3 is not finite",
        "worker": 2,
        "step": 3,
    }
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(ConfigError, match=r"at step 3 of .* one was refused"):
        replay(run)


def test_a_worker_that_was_not_let_in_is_no_hindrance(tmp_path: Path) -> None:
    run = recorded(tmp_path, "scheme.name=pgc-cr")
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"at": 3.0, "kind": "refused", "text": "a worker was not let in"}) + "\n")
    assert replay(run)["durations"]["share"] == 1.0


def test_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run directory: cannot read config\.toml"):
        replay(tmp_path)
    run = recorded(tmp_path, "scheme.name=pgc-cr")
    (run / "steps.jsonl").write_text("")
    with pytest.raises(ConfigError, match="holds no step that could be replayed"):
        replay(run)
    shutil.rmtree(run)
    with pytest.raises(ConfigError, match="is not a run directory"):
        replay(run)
