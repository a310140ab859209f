"""The step bench: parts add up, and nothing is left behind. How long anything takes, no test asks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgczmq.bench.step.account import MASTER_PARTS, Account, accounts
from pgczmq.bench.step.gradients import Baseline, busy_cores
from pgczmq.bench.step.measure import WARM_UP, Row, run_config, turns
from pgczmq.errors import ConfigError
from pgczmq.runlog import LatencyRecord, StepRecord

PGC = str(Path(sys.executable).parent / "pgc")
WORKERS, STEPS = 3, 2
SMALL = ["--task", "digits-mlp", "--workers", str(WORKERS)]


def step_record(step: int) -> StepRecord:
    """Published every second; workers 0 and 1 answer after .5 and .6; the rest takes .05, .1, .02 and .03."""
    return StepRecord(
        step=step,
        published_at=step,
        closed_at=step + 0.625,
        k=2,
        batch_fraction=1.0,
        loss=1.0,
        arrived=(1, 0),
        arrived_at=(step + 0.5, step + 0.6),
        used=(1, 0),
        spare=(),
        missing=(2,),
        weights=(0.5, 0.5),
        ages=((0,), (0,)),
        recovered=1.0,
        max_alpha=1.0,
        fresh=2,
        applied_at=step + 0.825,
        norm=1.0,
        bytes=8,
        combining=0.1,
        updating=0.02,
        writing=0.03,
    )


def answer(worker: int, step: int, **other: Any) -> LatencyRecord:
    fields: dict[str, Any] = {
        "published_at": step,
        "wait": 0.01,
        "compute": 0.45,
        "delay": 0.02,
        "send": 0.04,
        "arrived_at": step + 0.52,
        "evaluated": 2,
        "outcome": "open",
        "newest_age": 0,
        "incarnation": "a",
        "evaluations": (0.2, 0.15),
    }
    return LatencyRecord(worker, step, **(fields | other))


def test_an_account_holds_all_of_a_step() -> None:
    records = [*map(step_record, range(3)), answer(0, 1), answer(1, 1), answer(2, 1, outcome="late")]
    records += [answer(2, 2, dropped=((1, 0.0, 0.0, 0.3), (0, 0.0, 0.0, 0.3, 0.3)))]
    (found,) = accounts(records, {0: 1.0, 1: 1.25, 2: 2.0})
    parts = {name: pytest.approx(value) for name, value in zip(MASTER_PARTS, PARTS, strict=True)}
    assert {name: getattr(found, name) for name in MASTER_PARTS} == parts
    assert (found.step, found.seconds, found.evaluations, found.master) == (1, 1.0, 7, 0.25)
    workers = (found.waiting, found.evaluating, found.encoding, found.delay, found.sending)
    assert workers == pytest.approx((0.03, 1.05, 0.3, 0.06, 0.12))


PARTS = (0.5, 0.1, 0.025, 0.05, 0.1, 0.02, 0.03, 0.175)


def test_overheads_are_over_all_cores_and_all_gradients() -> None:
    nothing = dict.fromkeys(Account.__dataclass_fields__, 0.0)
    steps = [Account(**(nothing | {"seconds": seconds, "evaluations": 12})) for seconds in (6.0, 6.6, 9.0)]
    before, after = Baseline(0.9, 0.8, 1.0, 0.9, 1.0), Baseline(1.1, 1.0, 1.2, 1.1, 1.2)
    row = Row("dgd", workers=12, cores=2, before=before, after=after, steps=tuple(steps))
    assert row.compute.median == pytest.approx(6.0)
    overhead = row.overhead
    assert (overhead.low, overhead.median, overhead.high) == pytest.approx((0.0, 0.1, 0.5))
    assert row.sharing == pytest.approx(0.1)
    assert row.own.median == pytest.approx(0.0)
    assert row.missed


def test_a_run_is_as_small_as_it_can_be() -> None:
    config = run_config("resnet18-cifar", "gc-cr", workers=12, steps=8)
    assert (config.task.args, config.task.batch_size) == ({"dataset": "generated", "samples": 1008}, 21)
    assert (config.steps, config.eval.every, config.checkpoint.every, config.threads) == (WARM_UP + 9, 0, 0, 1)
    assert turns([config, config]) == 2 * config.steps + 3
    with pytest.raises(ConfigError, match="to divide workers"):
        run_config("digits-mlp", "gc-fr", workers=3, steps=1)


def test_every_scheme_gives_a_row_whose_parts_add_up(tmp_path: Path) -> None:
    asked = [*SMALL, "--steps", str(STEPS), "--schemes", "dgd,gc-cr,pgc-cr", "--json", "out.json", "--trace", "t.json"]
    done = subprocess.run([PGC, "bench", "step", *asked], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["scheme"] for row in rows] == ["dgd", "gc-cr", "pgc-cr"]
    for row in rows:
        check_row(row)
    assert [step["evaluations"] for step in rows[0]["steps"]] == [WORKERS] * STEPS
    total = turns([run_config("digits-mlp", "dgd", workers=WORKERS, steps=STEPS)] * 3)
    assert f"{total} of {total}" in done.stderr
    assert "asked for" not in done.stdout  # of this task nothing is
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    for run, name in enumerate(("dgd", "gc-cr", "pgc-cr")):
        mine = [event for event in events if event["pid"] == run]
        names = {event["args"]["name"] for event in mine if event["ph"] == "M"}
        assert names == {name, "steps", "master", *(f"worker {number}" for number in range(WORKERS))}
        spans = {event["name"] for event in mine if event["ph"] == "X"}
        assert {"wait for answers", "update", "write", "encode"} <= spans
        assert {f"step {number}" for number in range(WARM_UP + STEPS + 1)} <= spans
        assert {f"evaluate {partition}" for partition in range(WORKERS)} <= spans
    assert list(tmp_path.iterdir()) and not (tmp_path / "runs").exists()


def check_row(row: dict[str, Any]) -> None:
    assert (row["workers"], row["cores"]) == (WORKERS, busy_cores(WORKERS))
    assert [step["step"] for step in row["steps"]] == list(range(WARM_UP, WARM_UP + STEPS))
    for gradient in (row["before"], row["after"]):
        assert 0 < gradient["low"] <= gradient["alone"] <= gradient["high"]
        assert gradient["processor"] > 0 and gradient["together"] > 0
    for step in row["steps"]:
        parts = [step[name] for name in MASTER_PARTS]
        assert min(parts) >= -1e-9 and sum(parts) == pytest.approx(step["seconds"])
        workers = [step[name] for name in ("waiting", "evaluating", "encoding", "delay", "sending")]
        assert min(workers) >= -1e-9 and step["evaluating"] > 0
        assert step["master"] >= 0 and step["evaluations"] > 0
    figures = [(step["seconds"], step["evaluations"] / row["cores"]) for step in row["steps"]]
    alone = (row["before"]["alone"] + row["after"]["alone"]) / 2
    overheads = [seconds / (gradients * alone) - 1 for seconds, gradients in figures]
    assert row["overhead"]["low"] == pytest.approx(min(overheads))
    assert row["overhead"]["high"] == pytest.approx(max(overheads))


def test_what_is_wrong_with_the_task_is_a_sentence(tmp_path: Path) -> None:
    asked = ["--task", "digits-mpl", "--workers", "2", "--schemes", "dgd"]
    done = subprocess.run([PGC, "bench", "step", *asked], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "digits-mlp" in done.stderr and "Traceback" not in done.stderr


def left(directory: Path) -> list[str]:
    """Processes that work in this directory, and the bench's files there: torch makes a directory of its own."""
    found = [str(path) for path in directory.glob("pymp-*")]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink() == directory:
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The bench, with its scratch directories here."""
    process = subprocess.Popen(
        [PGC, "bench", "step", *SMALL, "--steps", "1000000", "--schemes", "dgd"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("when", ["gradients", "steps"])
def test_nothing_is_left_of_a_bench_that_is_interrupted(
    started: subprocess.Popen[str], tmp_path: Path, when: str
) -> None:
    def begun() -> bool:
        if when == "gradients":
            return len(left(tmp_path)) >= 4  # its helper's directory, itself, the helper, a process
        return any(path.stat().st_size for path in tmp_path.glob("pymp-*/*/*/steps.jsonl"))

    while not begun():
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 130
    while left(tmp_path):
        pass  # what was killed with the bench ends a moment after it
