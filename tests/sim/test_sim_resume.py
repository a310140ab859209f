"""N steps, and N more from the checkpoint, are 2N steps to the bit: every scheme and policy, in virtual time.

Workers of pipelined schemes retain gradients, and a resumed run has new workers: it equals an unbroken one whose
workers are told to forget at step N.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sim_runs import scheme_of

from pgczmq import config
from pgczmq.app import build, simulate
from pgczmq.config import RunConfig
from pgczmq.core.delays import Failure, NoDelay
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.progress import Progress
from pgczmq.core.schemes import SCHEMES
from pgczmq.errors import ConfigError
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, Record, Result, StepRecord, read, read_result
from pgczmq.sim.cluster import Simulation
from pgczmq.sim.training import TimingOnly
from pgczmq.sim.virtual import Durations

HALF, WHOLE = 12, 24
SMALL = {
    "task.name": "logistic-regression",
    "task.batch_size": 4,
    "workers": 6,
    "scheme.stragglers": 2,
    "optimizer.lr": 0.05,
    "delay.model": "exponential",
    "deterministic": "true",
    "eval.every": 6,
    "checkpoint.every": 5,
}
MOMENTUM = {"optimizer.momentum": 0.9}
ADAM = {"optimizer.name": "adam"}
PFLUG = {"policy.name": "adaptive-k", "policy.burn_in": 1, "policy.threshold": 0, "optimizer.lr": 1.0}
DISTANCE = {"policy.name": "adaptive-k-batch", "policy.test": "distance", "policy.skip": 0, "policy.threshold": 1.9}
TIMED = {
    "policy.name": "bound-optimal-k",
    "policy.bound.initial_error": 1,
    "policy.response.computation_rate": 10,
    "optimizer.lr": 0.2,
}
CHOOSING = ("is-sgd", "is-gc-fr", "is-gc-cr", "is-gc-hr", "pgc-cr")


def settings(**changes: Any) -> RunConfig:
    given = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return config.load(None, [f"{key}={value}" for key, value in given.items()], {})


def run(root: Path, resume: str = "never", **changes: Any) -> tuple[Result, list[Record]]:
    records: list[Record] = []
    asked = settings(**changes)
    result = simulate.run(asked, model=simulate.model_of(asked), sink=records.append, root=root, resume=resume)
    return result, records


def retains(asked: dict[str, Any]) -> bool:
    scheme = build.scheme_of(settings(**asked))
    return any(len(held) > 1 for held in scheme.placement.held) and asked["scheme.name"].startswith("pgc")


CASES = [
    *({"scheme.name": name} | optimizer for name in SCHEMES for optimizer in (MOMENTUM, ADAM)),
    *({"scheme.name": name} | policy for name in CHOOSING for policy in (PFLUG, DISTANCE, TIMED)),
    {"scheme.name": "dgd", "optimizer.schedule": "step", "optimizer.step_every": 9, "optimizer.warmup": 15},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_a_run_goes_on_to_the_same_bits(case: dict[str, Any], tmp_path: Path) -> None:
    forgetting = {"sim.forget_at": HALF} if retains(case) else {}
    whole, _ = run(tmp_path, name="whole", steps=WHOLE, **case, **forgetting)
    run(tmp_path, name="halves", steps=HALF, **case)
    second, _ = run(tmp_path, "auto", name="halves", steps=WHOLE, **case)
    assert second.weights_sha256 == whole.weights_sha256
    for file in ("steps.jsonl", "evals.jsonl", "result.json"):
        assert (tmp_path / "halves" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("policy", [PFLUG, DISTANCE, TIMED], ids=lambda policy: policy["policy.name"])
def test_the_policies_above_do_change_the_plan_on_both_sides_of_the_break(
    policy: dict[str, Any], tmp_path: Path
) -> None:
    run(tmp_path, name="run", steps=WHOLE, **{"scheme.name": "is-sgd"}, **policy)
    plans = [(step.k, step.batch_fraction) for step in read(tmp_path / "run", StepRecord)]
    assert len(set(plans[:HALF])) > 1 and len(set(plans[HALF:])) > 1


def test_without_forgetting_an_unbroken_pipelined_run_is_another(tmp_path: Path) -> None:
    hashes = {
        run(tmp_path, name=f"run-{at}", steps=WHOLE, **{"scheme.name": "pgc-cr", "sim.forget_at": at})[0].weights_sha256
        for at in (HALF, HALF + 1, WHOLE)
    }
    assert len(hashes) == 3


def test_forgetting_is_between_steps_and_only_a_run_in_lockstep_has_that() -> None:
    with pytest.raises(ConfigError, match=r"sim.forget_at=3 with deterministic=false"):
        simulate.check(settings(**{"sim.forget_at": 3, "deterministic": "false"}))


def test_steps_beyond_the_checkpoint_are_done_again_and_recorded_once(tmp_path: Path) -> None:
    """As after a SIGKILL: records of more steps than the newest checkpoint, and half a line."""
    whole, _ = run(tmp_path, name="whole", steps=WHOLE, **{"scheme.name": "dgd"})
    run(tmp_path, name="broken", steps=WHOLE, **{"scheme.name": "dgd"})
    directory = tmp_path / "broken"
    (directory / "result.json").unlink()
    (directory / "checkpoints" / f"step_{WHOLE:06d}").rename(tmp_path / "gone")
    for name in ("steps", "events", "latencies", "evals"):
        with (directory / f"{name}.jsonl").open("a") as file:
            file.write('{"step":3,"at":')
    second, records = run(tmp_path, "auto", name="broken", steps=WHOLE, **{"scheme.name": "dgd"})
    assert second.weights_sha256 == whole.weights_sha256
    steps = list(read(directory, StepRecord))
    assert [step.step for step in steps] == list(range(WHOLE))
    assert [record.step for record in read(directory, EvalRecord)] == [6, 12, 18, 24]
    answers = [(answer.worker, answer.step) for answer in read(directory, LatencyRecord)]
    assert sorted(answers) == sorted(set(answers)) and len(answers) == 6 * WHOLE
    said = [record for record in records if isinstance(record, EventRecord) and record.kind == "resumed"]
    assert [(event.step, event.text) for event in said] == [(20, "from step 20; 4 recorded steps are done again")]
    times = [event.at for event in read(directory, EventRecord)]
    assert times == sorted(times) and steps[20].published_at == said[0].at > steps[19].applied_at


def test_a_run_whose_steps_are_all_done_only_says_so_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path, name="run", steps=HALF)
    again, records = run(tmp_path, "auto", name="run", steps=HALF)
    assert (again.exit, again.reason, again.steps, again.weights_sha256) == (0, "done", HALF, first.weights_sha256)
    assert (again.loss, again.seconds) == (first.loss, pytest.approx(first.seconds))
    assert not any(isinstance(record, StepRecord) for record in records)


def test_who_has_failed_before_the_break_is_still_away_and_who_came_back_is_there() -> None:
    failures = [Failure(0, 1.0), Failure(1, 1.0, 2.0), Failure(2, 7.0, 8.0), Failure(3, 3.0, 9.0)]
    scheme, records = scheme_of("is-sgd", 5, k=2), list[Record]()
    engine = Engine(
        scheme, Rules(steps=9, start_timeout=0.5), NoDelay().seconds, 5.0, Progress(4, scheme.policy.first())
    )
    Simulation(
        engine,
        scheme,
        durations=Durations(delay=lambda *_: 1.0),
        training=TimingOnly(),
        sink=records.append,
        failures=failures,
        started_at=5.0,
    ).run()
    events = [record for record in records if isinstance(record, EventRecord)]
    joined = [(event.worker, event.at) for event in events if event.kind == "joined"]
    assert joined == [(1, 5.0), (2, 5.0), (4, 5.0), (2, 8.0), (3, 9.0)]
    assert [record.step for record in records if isinstance(record, StepRecord)] == [4, 5, 6, 7, 8]


def test_ctrl_c_leaves_a_checkpoint_and_the_run_goes_on(tmp_path: Path) -> None:
    whole, _ = run(tmp_path, name="whole", steps=WHOLE, **{"scheme.name": "dgd"})
    asked = settings(name="halves", steps=WHOLE, **{"scheme.name": "dgd"})

    def interrupt(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step == 13:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    first = simulate.run(asked, model=simulate.model_of(asked), sink=interrupt, root=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert (first.exit, first.reason) == (75, "interrupted by SIGINT")
    assert first.steps in (14, 15)
    assert (tmp_path / "halves" / "checkpoints" / f"step_{first.steps:06d}").is_dir()
    second, _ = run(tmp_path, "auto", name="halves", steps=WHOLE, **{"scheme.name": "dgd"})
    assert (second.exit, second.weights_sha256) == (0, whole.weights_sha256)


def test_the_state_is_plain_and_says_whose_it_is(tmp_path: Path) -> None:
    run(tmp_path, name="run", steps=HALF, **{"scheme.name": "gc-cr"})
    state = json.loads((tmp_path / "run/checkpoints/step_000012/state.json").read_text())
    assert (state["step"], state["run"], state["scheme"], state["seed"]) == (HALF, "simulated", "gc-cr", 1)
    assert len(state["coefficients"]) == 6 and state["progress"]["steps"] == HALF
    assert config.loads(state["config"]) == settings(name="run", steps=HALF, **{"scheme.name": "gc-cr"})


def test_what_leaves_no_gradients_cannot_be_gone_on_with(tmp_path: Path) -> None:
    asked = settings(steps=3)
    with pytest.raises(ConfigError, match="without gradients, leave nothing to go on with"):
        simulate.run(asked, model=None, sink=lambda record: None, root=tmp_path, resume="auto")
    assert not list(tmp_path.iterdir())


def test_a_result_is_there_only_when_the_run_is_over(tmp_path: Path) -> None:
    run(tmp_path, name="run", steps=HALF)
    seen = []

    def look(record: Record) -> None:
        seen.append((tmp_path / "run" / "result.json").exists())

    asked = settings(name="run", steps=WHOLE)
    simulate.run(asked, model=simulate.model_of(asked), sink=look, root=tmp_path, resume="auto")
    assert not any(seen[:-1]) and read_result(tmp_path / "run").steps == WHOLE
