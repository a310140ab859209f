"""Records on a disk that is full: whoever runs is told at once, and no checkpoint is ahead of them."""

import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgczmq.errors import PgcError
from pgczmq.recorder import RunLog
from pgczmq.runlog import EventRecord, Result, write_result

LIMIT = 20_000


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may be larger than LIMIT bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_told_at_once_and_no_checkpoint_goes_ahead_of_its_records(
    tmp_path: Path, small_files: None
) -> None:
    told, said = threading.Event(), []

    def tell(reason: str) -> None:
        said.append(reason)
        told.set()

    with pytest.raises(PgcError, match=r"cannot be written in .*: File too large\. What it did since then"):
        fill(tmp_path, tell, told)
    assert said == [f"the run's records cannot be written in {tmp_path}: File too large"]


def fill(directory: Path, tell: object, told: threading.Event) -> None:
    with RunLog(directory) as runlog:
        runlog.when_failed(tell)  # type: ignore[arg-type]
        runlog.record(EventRecord(0.0, "first", "x"))
        runlog.sync()
        for _ in range(100):
            runlog.record(EventRecord(0.0, "more", "x" * 1000))
        assert told.wait(30)
        with pytest.raises(OSError, match="cannot be written"):
            runlog.sync()


def test_whoever_asks_later_is_told_too(tmp_path: Path) -> None:
    said: list[str] = []
    runlog = RunLog(tmp_path / "not there")
    with pytest.raises(PgcError, match="No such file"), runlog:
        runlog._thread.join()
        runlog.when_failed(said.append)
        assert len(said) == 1
        runlog.record(EventRecord(0.0, "kind", "text"))


def test_a_result_is_there_as_a_whole_or_not_at_all(tmp_path: Path, small_files: None) -> None:
    result = Result("dgd", 4, 0, 9, 1.0, 1.0, None, 0.0, False, "", 0, "x" * 2 * LIMIT, "")
    with pytest.raises(PgcError, match=r"cannot write .*result\.json: File too large\. Free space"):
        write_result(tmp_path, result)
    assert not list(tmp_path.iterdir())
