"""Records as files that other programs read."""

import builtins
import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from left_runs import done, left_run, made_up

from pgczmq import rundirs
from pgczmq.errors import ConfigError
from pgczmq.rundirs import RunDirectory
from pgczmq.runlog import StepRecord
from pgczmq.view import export


def run_of(directory: Path) -> RunDirectory:
    return rundirs.look(left_run(directory, end=done()))


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_tables(tmp_path: Path) -> None:
    files = export.write_csv(run_of(tmp_path / "try"), tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["steps.csv", "answers.csv", "evals.csv", "events.csv"]
    steps, answers, evals, events = map(rows, files)
    assert (len(steps), len(answers), len(evals), len(events)) == (40, 150, 2, 11)
    assert (steps[1]["step"], steps[1]["arrived"], steps[1]["missing"], steps[1]["mean_age"]) == ("1", "3", "1", "0.5")
    assert float(answers[1]["seconds"]) == pytest.approx(0.02)
    assert evals[0]["metric"] == str(20 / 41)
    assert events[-1]["text"] == "worker 3 can no longer be reached"


def test_a_trace_is_json_of_the_trace_format(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert export.write_trace(run_of(tmp_path / "try"), file) == 40
    events = json.loads(file.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    assert [event["name"] for event in events if event["ph"] == "X" and event["tid"] == 0][:2] == ["step 0", "step 1"]


def test_a_trace_is_no_longer_than_viewers_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "TRACED_ANSWERS", 12)
    file = tmp_path / "trace.json"
    assert export.write_trace(run_of(tmp_path / "try"), file) == 3
    last = max(event["ts"] for event in json.loads(file.read_text())["traceEvents"])
    assert last < 1e6 * (1.0 + 3 * 0.25)


def test_a_run_without_a_step_has_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no step"):
        export.write_trace(rundirs.look(left_run(tmp_path / "try", [])), tmp_path / "trace.json")


def scalars(folder: Path) -> dict[str, Sequence[Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}


def test_tensorboard_reads_what_was_recorded(tmp_path: Path) -> None:
    run = run_of(tmp_path / "try")
    for _ in range(2):  # the second time in the place of the first
        file = export.write_tensorboard(run, tmp_path / "board")
    found = scalars(tmp_path / "board")
    assert [(one.step, one.value) for one in found["loss/training"]][:2] == [(1, 2.0), (2, 1.0)]
    assert [(one.step, one.value) for one in found["loss/held out"]] == [
        (20, pytest.approx(0.05)),
        (40, pytest.approx(0.025)),
    ]
    assert len(found["accuracy/held out"]) == 2
    assert [one.value for one in found["step/missing answers"]][:4] == [0, 1, 0, 0]
    assert found["loss/training"][1].wall_time == pytest.approx(0.25 + 0.24), "seconds since the first step"
    assert file.name == "events.out.tfevents.0.try"


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    steps = [replace(step, loss=math.nan) for step in made_up() if isinstance(step, StepRecord)]
    export.write_tensorboard(rundirs.look(left_run(tmp_path / "try", steps)), tmp_path / "board")
    assert "loss/training" not in scalars(tmp_path / "board")


def test_runs_are_not_mixed_in_one_folder(tmp_path: Path) -> None:
    export.write_tensorboard(run_of(tmp_path / "one"), tmp_path / "board")
    with pytest.raises(ConfigError, match=r"holds events.out.tfevents.0.one already. --out .*board/two would work"):
        export.write_tensorboard(run_of(tmp_path / "two"), tmp_path / "board")


def test_without_the_package_a_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("tensorboard"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'pip install "pgczmq\[tensorboard\]"'):
        export.write_tensorboard(run_of(tmp_path / "try"), tmp_path / "board")
