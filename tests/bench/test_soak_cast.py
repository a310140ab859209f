"""How a supervisor takes the ends of its programs, with small programs in the place of the real ones."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgczmq.bench.torture.soak import cast as casts
from pgczmq.bench.torture.soak.cast import Cast
from pgczmq.bench.torture.soak.troop import Program
from pgczmq.errors import ConfigError

FOR_EVER = "import time; time.sleep(600)"
LEAVES_WHEN_ASKED = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); print(1, flush=True); " + (
    "time.sleep(600)"
)


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    made = Cast(tmp_path, "soak", workers=1, port=20_000)
    made.master = Program("master", ["python", "-c", FOR_EVER], tmp_path)
    made.master.start()
    yield made
    for program in made.programs:
        program.end(9, "killed")
        program.collect(20.0)


def plays(cast: Cast, code: str, directory: Path) -> Program:
    cast.workers[0] = Program("worker 0", ["python", "-c", code], directory)
    cast.workers[0].start()
    return cast.workers[0]


def until(cast: Cast, condition: Callable[[], object]) -> None:
    """The bound only guards against a hang."""
    limit = time.monotonic() + 60
    while not condition():
        cast.look()
        assert time.monotonic() < limit


def test_whoever_ends_of_itself_is_told_of_and_started_again(cast: Cast, tmp_path: Path) -> None:
    worker = plays(cast, "print('no more'); raise SystemExit(70)", tmp_path)
    first = worker.pid
    until(cast, lambda: worker.pid not in (first, None))
    assert cast.told.findings[0] == f"worker 0 (process {first}): exit 70, with exit code 70; it said: no more"


def test_nobody_is_started_again_with_settings_that_cannot_be(cast: Cast, tmp_path: Path) -> None:
    plays(cast, "print('error: no such task'); raise SystemExit(2)", tmp_path)
    with pytest.raises(ConfigError, match="worker 0 of the soak ended at once: error: no such task"):
        until(cast, lambda: False)


def test_whoever_leaves_as_asked_is_started_again_without_a_word(cast: Cast, tmp_path: Path) -> None:
    worker = plays(cast, LEAVES_WHEN_ASKED, tmp_path)
    until(cast, lambda: worker.last_words() == "1")
    first = worker.pid
    cast.end(0, "terminated", 0.0)
    until(cast, lambda: worker.pid not in (first, None))
    assert [(life.how, life.code) for life in worker.lives] == [("terminated", 143)]
    assert cast.told.findings == []
    assert cast.told.deeds == {"terminate": 1}


def test_another_exit_code_than_asked_for_is_told_of(cast: Cast, tmp_path: Path) -> None:
    worker = plays(cast, LEAVES_WHEN_ASKED.replace("143", "70"), tmp_path)
    until(cast, lambda: worker.last_words() == "1")
    cast.end(0, "terminated", 0.0)
    until(cast, lambda: cast.told.findings)
    assert "terminated, with exit code 70" in cast.told.findings[0]


def test_a_worker_that_says_that_the_run_is_over_is_believed_when_the_master_ends_too(
    cast: Cast, tmp_path: Path
) -> None:
    worker = plays(cast, "raise SystemExit(0)", tmp_path)
    until(cast, lambda: worker.pid is None)
    cast.master.end(9, "killed")
    cast.master.collect(20.0)
    cast.master = Program("master", ["python", "-c", "raise SystemExit(0)"], tmp_path)
    cast.master.start()
    until(cast, lambda: cast.closing)
    cast.look()
    assert cast.told.findings == []


def test_a_worker_that_says_so_alone_is_told_of(cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casts, "END_SECONDS", 0.0)
    worker = plays(cast, "raise SystemExit(75)", tmp_path)
    first = worker.pid
    until(cast, lambda: worker.pid not in (first, None))
    assert "exit 75, with exit code 75" in cast.told.findings[0]


def test_a_stopped_worker_goes_on(cast: Cast, tmp_path: Path) -> None:
    worker = plays(cast, FOR_EVER, tmp_path)
    cast.stop(0, 0.0)
    assert worker.stopped
    until(cast, lambda: worker.runs)
    worker.end(9, "killed")
    life = worker.collect(20.0)
    assert life is not None and len(life.stops) == 1
