"""How it is with a run is told from its directory, and what cannot be told is not made up."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest
from left_runs import checkpoint, done, left_run, made_up
from made_up_run import latency_record

from pgczmq import rewind, rundirs
from pgczmq.errors import ConfigError
from pgczmq.rewind import locked
from pgczmq.runlog import StepRecord, read


@pytest.mark.parametrize(
    ("other", "state"),
    [
        ({}, "done"),
        ({"diverged": True, "reason": "diverged at step 3"}, "diverged"),
        ({"exit": 75}, "interrupted"),
        ({"exit": 74}, "failed"),
    ],
)
def test_a_result_says_how_a_run_ended(tmp_path: Path, other: dict[str, object], state: str) -> None:
    run = rundirs.look(left_run(tmp_path / "try", end=done(**other)))
    assert (run.name, run.state, run.steps, run.loss) == ("try", state, 40, 0.125)
    assert not run.resumable, "there is no checkpoint"
    assert run.setting("scheme", "name") == "pgc-cr"
    assert run.setting("scheme", "colour") is None


def test_without_a_result_the_lock_of_the_directory_says_whether_it_is_running(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try")
    with locked(directory):
        assert rundirs.look(directory).state == "running"
    run = rundirs.look(directory)
    assert (run.state, run.steps) == ("died", 40)
    assert run.loss == pytest.approx(2.0 / 40)


def test_asking_whether_a_run_is_running_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = left_run(tmp_path / "try")
    asking = os.open(directory, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert rundirs.look(directory).state == "died", "to others who ask"
    monkeypatch.setattr(rewind.time, "sleep", lambda _: os.close(asking))
    with locked(directory):
        assert rundirs.look(directory).state == "running"


def test_what_did_not_end_well_can_be_gone_on_with_from_a_checkpoint(tmp_path: Path) -> None:
    interrupted = left_run(tmp_path / "one", end=done(exit=75))
    died, finished = left_run(tmp_path / "two"), left_run(tmp_path / "three", end=done())
    for directory in (interrupted, died, finished):
        checkpoint(directory)
    assert [rundirs.look(one).resumable for one in (interrupted, died, finished)] == [True, True, False]
    with locked(died):
        assert not rundirs.look(died).resumable, "somebody works on it"


@pytest.mark.parametrize(("steps", "tail"), [(0, ""), (0, '{"step": 0'), (40, '{"step": 40, "loss": 3'), (40, "")])
def test_steps_so_far_are_those_of_whole_lines(tmp_path: Path, steps: int, tail: str) -> None:
    records = [record for record in made_up() if isinstance(record, StepRecord)][:steps]
    directory = left_run(tmp_path / "try", records)
    with (directory / "steps.jsonl").open("a") as file:
        file.write(tail)
    assert rundirs.look(directory).steps == steps


def test_a_line_may_be_long(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try", [])
    (directory / "steps.jsonl").write_text('{"step": 0}\n{"step": 1, "loss": 0.5, "used": "' + "x" * 70_000 + '"}\n')
    run = rundirs.look(directory)
    assert (run.steps, run.loss) == (2, 0.5)


def test_runs_are_found_newest_last_and_other_folders_are_none(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "old", "older"]):
        directory = left_run(tmp_path / name, end=done())
        os.utime(directory / "config.toml", (1e9 - age, 1e9 - age))
    (tmp_path / "soak").mkdir()
    (tmp_path / "a file").touch()
    assert [run.name for run in rundirs.find(tmp_path)] == ["older", "old", "new"]
    assert rundirs.find(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("name", "given"), [("nowhere", "not there"), ("folder", "a folder without"), ("file", "a file")]
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, name: str, given: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}")
    with pytest.raises(ConfigError, match=f"named by its directory.*{name}, which is {given}"):
        rundirs.look(tmp_path / name)


def test_a_file_of_json_is_a_result_without_a_directory(tmp_path: Path) -> None:
    file = left_run(tmp_path / "try", end=done()) / "result.json"
    run = rundirs.look_at_result(file)
    assert (run.name, run.state, run.settings) == ("result.json", "done", {})


def test_virtual_seconds_are_known_with_and_without_a_result(tmp_path: Path) -> None:
    """Answers of simulated workers have no receipt."""
    assert rundirs.look(left_run(tmp_path / "one", end=done(virtual_seconds=10.0))).simulated
    assert not rundirs.look(left_run(tmp_path / "two", end=done())).simulated
    simulated, real = (replace(latency_record(0, 0, 0.1), received_at=at) for at in (None, 7.0))
    assert rundirs.look(left_run(tmp_path / "three", [simulated])).simulated
    assert not rundirs.look(left_run(tmp_path / "four", [real])).simulated
    assert not rundirs.look(left_run(tmp_path / "five", [])).simulated


@pytest.mark.parametrize("result", ["", "[]", '{"steps": 3}', '{"loss": "<b>"}'])
def test_whatever_lies_there_can_be_listed(tmp_path: Path, result: str) -> None:
    directory = left_run(tmp_path / "try", [])
    (directory / "config.toml").write_bytes(b"\xff = [")
    (directory / "steps.jsonl").write_bytes(b'[1]\n"\xff"\n')
    (directory / "result.json").write_text(result)
    run = rundirs.look(directory)
    assert (run.state, run.steps, run.settings) == ("died", 0, {})


def test_a_number_in_a_result_is_a_number(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try", end=done())
    file = directory / "result.json"
    file.write_text(file.read_text().replace('"steps":40', '"steps":"<b>"'))
    assert rundirs.look(directory).result is None
    with pytest.raises(ConfigError, match="does not hold the result of a run: steps is '<b>'"):
        rundirs.look_at_result(file)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try")
    lines = (directory / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "steps.jsonl").write_bytes(b"".join([*lines[:2], b"\0\0\0\n", *lines[3:]]))
    with pytest.raises(ConfigError, match=r"line 3 of .*steps.jsonl is not a StepRecord: it is damaged"):
        list(read(directory, StepRecord))
