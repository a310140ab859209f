"""``pgczmq.train``: real runs from scripts, threads and loops, stopped, killed and wrong, and what is left of them."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_scripts import TASK, left_in, run_script

import pgczmq
from pgczmq.errors import ClusterError, ConfigError

SOAK: dict[str, Any] = {"workers": 2, "task": {"name": "soak"}, "scheme": {"name": "dgd"}, "ui": {"mode": "none"}}
STOP = """
import os, signal, sys, threading, time
from pathlib import Path

import pgczmq


GATES = Path("gates")
args = {}
if sys.argv[1] == "twice":
    from pgczmq.train import gates

    GATES.mkdir()
    gates.close(GATES, "checkpoint")
    args = {"gates": str(GATES)}
else:
    gates = None


def strike() -> None:
    while not any(path.stat().st_size for path in Path("runs").glob("*/steps.jsonl")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
    if gates:
        while not gates.is_reached(GATES, "checkpoint"):  # it would not end of itself
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=strike, daemon=True).start()
before = signal.getsignal(signal.SIGINT)
try:
    pgczmq.train(
        workers=2, steps=1_000_000, task={"name": "soak", "args": args}, scheme={"name": "dgd"}, ui={"mode": "none"}
    )
except KeyboardInterrupt as stopped:
    print(type(stopped).__name__, stopped)
    assert signal.getsignal(signal.SIGINT) is before and threading.active_count() <= 2, threading.enumerate()
    if isinstance(stopped, pgczmq.Interrupted):
        more = stopped.run.result.steps + 10
        again = pgczmq.train(stopped.run.directory / "config.toml", steps=more, resume=stopped.run.directory)
        print(len(again.steps) == more, again.directory == stopped.run.directory)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's own directory as the current one, in which nobody and nothing is left afterwards."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    assert left_in(tmp_path) == []


def test_a_run_and_its_records(here: Path) -> None:
    run = pgczmq.train(**SOAK, steps=12)
    assert run.directory.parent == here / "runs"
    assert (run.result.exit, run.result.steps, run.config.scheme.name) == (0, 12, "dgd")
    assert [step.step for step in run.steps] == list(range(12)) and len(run.latencies) == 24
    assert {"joined", "ready", "checkpoint", "finished"} <= {event.kind for event in run.events} and run.evals == []
    assert run.steps[-1].loss == pytest.approx(run.result.loss) and "dgd, 12 steps, loss" in repr(run)
    same = pgczmq.Run(os.path.relpath(run.directory))
    assert same.result == run.result and same.directory == run.directory
    with pytest.raises(ConfigError, match=r"has no whole one with model\.pt"):
        run.state_dict()


def test_the_process_is_as_it_was(here: Path) -> None:
    def state() -> tuple[object, ...]:
        handlers = [logging.getLogger(name).handlers[:] for name in (None, "pgczmq")]
        descriptors = sorted(path.name for path in Path("/proc/self/fd").iterdir())
        handler = signal.getsignal(signal.SIGINT)
        return handlers, descriptors, handler, sys.path[:], dict(os.environ), threading.enumerate(), Path.cwd()

    pgczmq.train(**SOAK, steps=2)
    before = state()
    pgczmq.train(**SOAK, steps=2)
    assert state() == before


def test_two_at_once_and_in_a_running_loop(here: Path) -> None:
    async def cell() -> list[pgczmq.Run]:
        calls = [asyncio.to_thread(pgczmq.train, **SOAK, steps=8, seed=seed, root="threads") for seed in (1, 2)]
        return [pgczmq.train(**SOAK, steps=8), *await asyncio.gather(*calls)]

    runs = asyncio.run(cell())
    assert [run.result.steps for run in runs] == [8, 8, 8] and len({run.directory for run in runs}) == 3
    assert sorted(run.config.seed for run in runs) == [1, 1, 2]


def test_lines_off_a_terminal_and_what_the_task_prints(tmp_path: Path) -> None:
    call = 'pgczmq.train(workers=2, steps=5, task={"name": lines, "batch_size": 8})'
    main = f'\nif __name__ == "__main__":\n    print({call}.model()(torch.ones(1, 1)).shape)\n'
    done = run_script(tmp_path, TASK.replace("    x =", '    print("begun")\n    x =') + main, name="my_task.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2:] == ["torch.Size([1, 1])", ""] and "begun" in done.stdout
    assert "my_task:lines with pgc-cr" in done.stderr and "done: 5 steps" in done.stderr
    assert "\x1b" not in done.stderr and left_in(tmp_path) == []


def test_a_program_that_begins_a_run_when_it_is_imported_is_told(tmp_path: Path) -> None:
    done = run_script(tmp_path, f'{TASK}\npgczmq.train(steps=5, task={{"name": lines}}, ui={{"mode": "none"}})\n')
    last = done.stderr.splitlines()[-1]
    assert "this one begins a run by that: pgczmq.train at its top level" in last and '__name__ == "__main__"' in last


def test_ctrl_c_stops_it_properly_and_it_goes_on(tmp_path: Path) -> None:
    done = run_script(tmp_path, STOP, "once")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("Interrupted interrupted by SIGINT after ") and 'the same call with resume="' in first
    assert second == "True True" and done.stderr == "" and left_in(tmp_path) == []


def test_ctrl_c_twice_ends_it_at_once(tmp_path: Path) -> None:
    done = run_script(tmp_path, STOP, "twice")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.strip().startswith("KeyboardInterrupt") and left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (ConfigError, {"scheme": {"name": "pgc-fr", "stragglers": 1}, "workers": 3}, "divide workers: got workers=3"),
        (ConfigError, {"task": {"name": "soak", "args": {"sise": 3}}}, "soak does not take sise"),
        (ConfigError, {"resume": "nowhere"}, "nowhere is not there"),
        (ConfigError, {"task": {"name": "nowhere:task"}}, "cannot import nowhere"),
        (ClusterError, {"net": {"start_timeout": 0.2}, "steps": 3}, "ready within start_timeout=0.2 s"),
    ],
)
def test_what_goes_wrong_is_raised(kind: type[Exception], given: dict[str, Any], sentence: str, here: Path) -> None:
    with pytest.raises(kind) as raised:
        pgczmq.train(**{**SOAK, "steps": 4, **given})
    assert sentence in str(raised.value)


def test_a_run_whose_process_is_killed_is_told_of(here: Path) -> None:
    (here / "deadly.py").write_text("import os\n\ndef task():\n    os.kill(os.getpid(), 9)\n")
    with pytest.raises(pgczmq.PgcError, match=r"ended by signal 9, .* resume=\"auto\" goes on"):
        pgczmq.train(**{**SOAK, "task": {"name": "deadly:task"}})
    for left in (here / "temporary").glob("pymp-*"):
        shutil.rmtree(left)  # a process that is killed cannot do that itself


def test_the_log_is_the_callers_to_show(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pgczmq"):
        pgczmq.train(**SOAK, steps=2, resume="auto")
    assert any("a new run begins" in record.getMessage() for record in caplog.records)


def test_a_directory_without_a_run_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a run directory holds a config.toml: there is none in"):
        pgczmq.Run(tmp_path)
