"""The ``[delay]`` section: every model can be asked for, traces are read, and what contradicts itself is said."""

from pathlib import Path

import numpy as np
import pytest

from pgczmq import config
from pgczmq.app import master
from pgczmq.app.build import delay_of, failures_of
from pgczmq.app.stragglers import read_csv, read_run
from pgczmq.core.delays import (
    BimodalDelay,
    ConstantDelay,
    DelayModel,
    ExponentialDelay,
    Failure,
    NoDelay,
    ParetoDelay,
    Proportional,
    SomeWorkers,
    TwoParts,
)
from pgczmq.core.markov import MarkovDelay
from pgczmq.errors import ConfigError
from pgczmq.runlog import LatencyRecord, to_json


def delay(*settings: str) -> DelayModel:
    run = config.load(None, ["workers=4", *settings], {})
    assert config.loads(run.to_toml()) == run  # as the workers get it
    return delay_of(run)


def test_every_model_by_its_name() -> None:
    assert delay() == NoDelay()
    assert delay("delay.model=constant", "delay.mean=2") == ConstantDelay(2.0)
    assert delay("delay.model=exponential", "delay.shift=9") == ExponentialDelay(1, 0.1)
    assert delay("delay.model=shifted-exponential", "delay.shift=9") == ExponentialDelay(1, 0.1, 9.0)
    assert delay("delay.model=pareto", "delay.shape=3") == ParetoDelay(1, 0.1, 3.0)
    assert delay("delay.model=markov", "delay.factor=5") == MarkovDelay(1, 0.1, 5.0, 0.05, 0.2)
    bimodal = delay("delay.model=bimodal", "delay.slow_fraction=0.5")
    assert isinstance(bimodal, BimodalDelay) and len(bimodal.slow) == 2


def test_slow_workers_are_among_those_that_are_delayed_at_all() -> None:
    some = delay("delay.model=bimodal", "delay.workers=[1, 2]", "delay.slow_fraction=0.5")
    assert isinstance(some, SomeWorkers) and isinstance(some.model, BimodalDelay)
    assert len(some.model.slow) == 1 and some.model.slow <= {1, 2}


def test_parts_have_streams_of_their_own_and_computation_is_proportional() -> None:
    model = delay("delay.communication.model=exponential", "delay.computation.model=exponential")
    assert isinstance(model, TwoParts) and isinstance(model.computation, Proportional)
    computed, sent = model.parts(0, 0, 1, 1.0)
    assert computed != sent
    assert model.parts(0, 0, 2, 1.0) == (2 * computed, sent)
    alone = delay("delay.computation.model=constant", "delay.computation.mean=3")
    assert isinstance(alone, TwoParts)
    assert alone.parts(0, 0, 1, 0.5) == (1.5, 0.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["delay.model=exponential", "delay.computation.model=constant"], 'got delay.model="exponential" beside'),
        (["delay.model=trace"], "needs delay.file"),
        (["delay.model=trace", "delay.file=nowhere-load000.csv"], "cannot read the trace nowhere-load000.csv"),
        (["delay.model=trace", "delay.file=nowhere.csv"], "got nowhere.csv"),
        (["delay.model=markov", "delay.turns_slow=0.9", "delay.recovers=0.9"], "add up to at most 1"),
    ],
)
def test_what_contradicts_itself_is_a_sentence(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        delay(*settings)
    assert words in str(caught.value)


def test_failures_are_sorted_checked_and_refused_by_a_real_run() -> None:
    asked = (
        "delay.failures=[{worker=2, down_at=9, back_at=12}, {worker=1, down_at=3}, {worker=2, down_at=1, back_at=2}]"
    )
    run = config.load(None, ["workers=4", asked], {})
    assert config.loads(run.to_toml()) == run
    assert failures_of(run) == (Failure(2, 1.0, 2.0), Failure(1, 3.0), Failure(2, 9.0, 12.0))
    with pytest.raises(ConfigError, match="pgc sim"):
        master.check(run)
    for bad, words in (
        ("[{worker=4, down_at=1}]", "0 to 3: got worker=4"),
        ("[{worker=1, down_at=1}, {worker=1, down_at=5}]", "worker=1, down_at=5 before it is back"),
        ("[{worker=1, down_at=5, back_at=4}]", "back_at=4"),
    ):
        with pytest.raises(ConfigError) as caught:
            failures_of(config.load(None, ["workers=4", f"delay.failures={bad}"], {}))
        assert words in str(caught.value)


# ---------------------------------------------------------------- traces


def write_csv(path: Path, rows: np.ndarray) -> str:
    header = ",".join(["round", *(f"w{worker}" for worker in range(rows.shape[1]))])
    lines = [",".join([str(number), *map(str, row)]) for number, row in enumerate(rows.tolist())]
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def test_csv_files_are_one_trace_with_the_loads_of_their_names(tmp_path: Path) -> None:
    files = [
        write_csv(tmp_path / f"made-up-load{load:03}.csv", np.full((3, 6), 1.0 + load / 10)) for load in (0, 25, 100)
    ]
    model = delay("delay.model=trace", f"delay.file={files}")
    assert [model.seconds(1, 5, evaluated, 1.0) for evaluated in range(5)] == pytest.approx([1, 3.5, 6, 8.5, 11])
    single = delay("delay.model=trace", f"delay.file={files[1]}")
    assert single.seconds(1, 5, 4, 1.0) == 3.5


@pytest.mark.parametrize(
    "text", ["round,w0,w1\n0,1.0\n", "round,w0\n0,late\n", "a,b\n0,1\n", "", "round,w0,w1\n0,1,2\n1,3\n"]
)
def test_a_file_of_another_form_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x-load000.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not a trace"):
        read_csv(path)


def record(worker: int, step: int, seconds: float, *, evaluated: int = 1, compute: float = 2.0) -> LatencyRecord:
    return LatencyRecord(
        worker, step, 0.0, 7.0, compute, seconds, 0.5, 0.0, evaluated, "late" if seconds > 3 else "open", 0, "a"
    )


def test_an_earlier_run_is_a_trace_at_two_loads(tmp_path: Path) -> None:
    records = [record(worker, 0, 1.0, evaluated=2) for worker in range(2)]
    records += [record(0, step, float(step)) for step in (1, 2, 3)] + [record(1, 2, 9.0)]
    (tmp_path / "latencies.jsonl").write_text("".join(to_json(one) + "\n" for one in records))
    without, whole = read_run(tmp_path)
    assert (without.load, whole.load) == (0.0, 0.5)
    assert without.seconds_RW.tolist() == [[1.5, 9.5], [2.5, 9.5], [3.5, 9.5]]
    assert (whole.seconds_RW - without.seconds_RW == 2.0).all()
    model = delay("delay.model=trace", f"delay.file={tmp_path}", "workers=2")
    assert model.seconds(1, 0, 1, 1.0) == pytest.approx(11.5)
    assert model.seconds(1, 0, 2, 1.0) == pytest.approx(13.5)  # twice the partitions, twice the computation
    assert delay("delay.model=trace", f"delay.file={tmp_path / 'latencies.jsonl'}", "workers=1") is not None


def test_a_run_that_cannot_be_replayed_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        read_run(tmp_path)
    (tmp_path / "latencies.jsonl").write_text("")
    with pytest.raises(ConfigError, match="holds no latencies"):
        read_run(tmp_path)
    (tmp_path / "latencies.jsonl").write_text(to_json(record(2, 1, 1.0)) + "\n")
    with pytest.raises(ConfigError, match="no answers of workers 0, 1"):
        read_run(tmp_path)
    with pytest.raises(ConfigError, match="one earlier run or CSV files"):
        delay("delay.model=trace", f"delay.file=['{tmp_path}', 'a-load000.csv']")
