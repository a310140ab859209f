"""``pgc sim`` as an application: the same bytes twice, the same run directory, what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from pgczmq import config
from pgczmq.app import master, simulate
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.runlog import FILES, EvalRecord, Record, Result, RunRecord, StepRecord, read, read_result

SMALL = {
    "task.name": "linear-regression",
    "task.batch_size": 4,
    "optimizer.lr": 0.01,
    "delay.model": "exponential",
    "workers": 8,
    "steps": 40,
    "eval.every": 20,
    "checkpoint.every": 25,
}


def settings(**changes: Any) -> RunConfig:
    given = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return config.load(None, [f"{key}={value}" for key, value in given.items()], {})


def run(root: Path, timing_only: bool = False, **changes: Any) -> tuple[Result, list[Record]]:
    records: list[Record] = []
    run_config = settings(**changes)
    model = None if timing_only else simulate.model_of(run_config)
    result = simulate.run(run_config, model=model, sink=records.append, root=root)
    return result, records


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize("name", ["pgc-cr", "gc-cr", "async"])
def test_two_runs_leave_the_same_bytes(name: str, timing_only: bool, tmp_path: Path) -> None:
    results = [run(tmp_path, timing_only, scheme__name=name)[0] for _ in range(2)]
    first, second = (Path(result.run) for result in results)
    assert first != second
    for file in (*FILES.values(), "result.json", "config.toml"):
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert bool(results[0].weights_sha256) is not timing_only


def test_a_run_leaves_what_a_real_one_leaves(tmp_path: Path) -> None:
    result, records = run(tmp_path)
    directory = Path(result.run)
    steps = list(read(directory, StepRecord))
    assert [step.step for step in steps] == list(range(40))
    assert steps == [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in read(directory, EvalRecord)] == [20, 40]
    assert sorted(path.name for path in (directory / "checkpoints").iterdir()) == ["step_000025", "step_000040"]
    assert isinstance(records[0], RunRecord)
    assert records[-1] == result
    kept = read_result(directory)
    assert (kept.exit, kept.steps, kept.loss) == (0, 40, result.loss)
    assert kept.virtual_seconds == kept.seconds == steps[-1].applied_at
    assert kept.seconds_per_step == pytest.approx(kept.seconds / 40)


def test_timing_only_has_the_times_of_a_gradient_run_and_no_losses(tmp_path: Path) -> None:
    with_gradients, _ = run(tmp_path)
    without, _ = run(tmp_path, timing_only=True)
    assert without.virtual_seconds == with_gradients.virtual_seconds
    assert (without.loss is None or without.loss != without.loss) and without.accuracy is None
    line = (Path(without.run) / "steps.jsonl").read_text().splitlines()[0]
    assert '"loss":null' in line and '"norm":null' in line


def test_the_asynchronous_baseline_applies_every_arrival_divided_by_the_workers(tmp_path: Path) -> None:
    result, records = run(tmp_path, scheme__name="async", steps=800)
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [step.step for step in steps] == list(range(800))
    assert all(step.weights == (1 / 8,) and step.arrived == step.used for step in steps)
    arrivals = [step.closed_at for step in steps]
    assert arrivals == sorted(arrivals)
    ages = [step.ages[0][0] for step in steps]
    assert sum(ages) / len(ages) == pytest.approx(7, abs=0.1)  # everybody else arrives once meanwhile
    first, last = steps[0].loss, steps[-1].loss
    assert not result.diverged and last < first
    assert result.virtual_seconds == pytest.approx(800 * 0.1 / 8, rel=0.1)  # delays have mean .1 by default


def test_undivided_steps_end_an_asynchronous_run_that_diverges(tmp_path: Path) -> None:
    result, _ = run(tmp_path, scheme__name="async", optimizer__lr=1e4, steps=400)
    assert (result.exit, result.diverged) == (0, True)
    assert result.steps < 400


def test_failures_come_from_the_configuration(tmp_path: Path) -> None:
    _, records = run(tmp_path, delay__failures="[{worker = 2, down_at = 0.5, back_at = 1.5}]")
    gone = {record.step for record in records if isinstance(record, StepRecord) and 2 in record.missing}
    assert len(gone) > 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scheme__on_new_step": "queue"}, "a real worker does not queue steps"),
        ({"scheme__name": "async"}, "asynchronous SGD is a baseline in simulation only"),
    ],
)
def test_real_runs_refuse_what_is_simulated_only(changes: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        master.check(settings(**changes))
    simulate.check(settings(**changes))


@pytest.mark.parametrize("changes", [{"scheme__name": "async"}, {"scheme__on_new_step": "abandon"}])
def test_lockstep_knows_no_worker_that_is_behind(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="lockstep"):
        simulate.check(settings(deterministic="true", **changes))
