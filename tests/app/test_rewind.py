"""Records of a run that goes on: what is done again is taken out, half lines too, and no file is ever half there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgczmq.errors import ConfigError
from pgczmq.recorder import RunLog
from pgczmq.rewind import Rewound, is_in_use, locked, rewind
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, StepRecord, read

EMPTY: tuple[int, ...] = ()


def step(number: int) -> StepRecord:
    at = float(number)
    return StepRecord(
        step=number,
        published_at=at,
        closed_at=at + 9.0,  # as planned, in deterministic mode
        k=1,
        batch_fraction=1.0,
        loss=1.0,
        arrived=(0,),
        arrived_at=(at + 9.0,),
        used=(0,),
        spare=EMPTY,
        missing=EMPTY,
        weights=(1.0,),
        ages=((0,),),
        recovered=1.0,
        max_alpha=1.0,
        fresh=1,
        applied_at=at + 1.0,
        norm=1.0,
        bytes=4,
    )


def answer(number: int) -> LatencyRecord:
    return LatencyRecord(0, number, float(number), 0.0, 0.0, 0.0, 0.0, number + 0.5, 1, "open", 0, "life")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with RunLog(tmp_path) as log:
        for number in range(6):
            log.record(answer(number))
            log.record(step(number))
            log.record(EvalRecord(number + 1, number + 1.0, 0.5, None, 0.1))
            log.record(EventRecord(number + 1.25, "late", "worker 1", 1, number))
    return tmp_path


def test_what_is_of_later_steps_goes_and_events_stay(directory: Path) -> None:
    assert rewind(directory, 4) == Rewound(at=6.25, kept=4, undone=2)
    assert [record.step for record in read(directory, StepRecord)] == [0, 1, 2, 3]
    assert [record.step for record in read(directory, LatencyRecord)] == [0, 1, 2, 3]
    assert [record.step for record in read(directory, EvalRecord)] == [1, 2, 3, 4]  # after so many updates
    assert len(list(read(directory, EventRecord))) == 6
    assert rewind(directory, 4) == Rewound(at=6.25, kept=4, undone=0)


def test_half_a_line_goes_so_that_the_next_one_is_whole(directory: Path) -> None:
    for file in directory.glob("*.jsonl"):
        text = file.read_text()
        file.write_text(text + text.splitlines()[-1][:30])
    assert rewind(directory, 6) == Rewound(at=6.25, kept=6, undone=0)
    with RunLog(directory) as log:
        log.record(step(6))
        log.record(EventRecord(7.0, "finished", "done"))
    assert [record.step for record in read(directory, StepRecord)] == list(range(7))
    assert [record.kind for record in read(directory, EventRecord)][-1] == "finished"


def test_a_line_that_was_never_ended_does_not_count(directory: Path) -> None:
    """Its newline is the last of it to be written."""
    file = directory / "steps.jsonl"
    file.write_text(file.read_text().rstrip("\n"))
    assert rewind(directory, 6).kept == 5


def test_zeros_after_a_loss_of_power_are_no_records(directory: Path) -> None:
    with (directory / "steps.jsonl").open("ab") as file:
        file.write(b"\0" * 512)
    assert rewind(directory, 6).kept == 6
    assert b"\0" not in (directory / "steps.jsonl").read_bytes()


def test_nothing_on_record_is_no_error(tmp_path: Path) -> None:
    assert rewind(tmp_path, 3) == Rewound(0.0, 0, 0)
    assert not list(tmp_path.iterdir())


def test_what_a_checkpoint_needs_is_on_disk_when_it_is_written(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        for number in range(50):
            log.record(step(number))
        log.sync()
        assert len(list(read(tmp_path, StepRecord))) == 50


def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from pgczmq.rewind import locked
with locked(Path({str(tmp_path)!r})):
    print("locked", flush=True)
    input()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "locked\n"
        assert is_in_use(tmp_path)
        with pytest.raises(ConfigError, match=r"is in use. End that one first"), locked(tmp_path):
            pass
        other.kill()
        other.wait()
        assert not is_in_use(tmp_path)
        with locked(tmp_path):
            assert is_in_use(tmp_path)
