"""Faults that befall whole processes: killed and started again, stopped and woken, cut off, as planned."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, environment
from test_leftovers import children

RUN = """
name = "run"
workers = 4
steps = 30
[task]
name = "soak"
[scheme]
name = "dgd"
[eval]
every = 0
[net]
heartbeat = 0.2
step_timeout = 20
"""
Local = Callable[..., dict[str, Any]]


@pytest.fixture
def soak(tmp_path: Path, pgc_local: Local) -> Local:
    config = tmp_path / "soak.toml"
    config.write_text(RUN)
    return lambda *settings: pgc_local(*settings, config=config)


def said(result: dict[str, Any], worker: int) -> str:
    return (Path(result["run"]) / f"worker-{worker}.log").read_text()


def events(result: dict[str, Any], kind: str, worker: int | None = None) -> list[dict[str, Any]]:
    lines = (Path(result["run"]) / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["kind"] == kind and worker in (None, e["worker"])]


def test_a_killed_worker_is_started_again_and_the_weights_are_those_of_a_run_without_kills(soak: Local) -> None:
    """Twice one worker, and once all at the same step: no step of this scheme can close without any of them."""
    undisturbed = soak("name=calm")
    twice = "{kind='kill', workers=[3], steps=[5, 12], seconds=0.3}"
    result = soak(f"faults=[{twice}, {{kind='kill', steps=[20], seconds=1.5}}]")
    assert (result["exit"], result["steps"]) == (0, 30)
    assert result["weights_sha256"] == undisturbed["weights_sha256"]
    assert re.findall(r"fault: kill at step (\d+), ", said(result, 3)) == ["5", "12", "20"]
    assert len(events(result, "joined", 3)) == 4
    assert [len(events(result, "joined", worker)) for worker in range(3)] == [2, 2, 2]
    assert [event["text"].partition(":")[0] for event in events(result, "fault")] == ["planned", "planned"]


def test_one_that_is_not_to_come_back_stays_away_and_the_run_does_without_it(soak: Local) -> None:
    result = soak("scheme.name=pgc-cr", "faults=[{kind='kill', workers=[2], first=5}]")
    assert (result["exit"], result["steps"]) == (0, 30)
    assert len(re.findall("fault: kill at step", said(result, 2))) == 1
    assert len(events(result, "joined", 2)) == 1
    everybody = soak("name=all", "faults=[{kind='kill', first=5}]")
    assert (everybody["exit"], everybody["reason"]) == (74, "all local workers are gone")


def test_a_kill_spares_the_first_step_of_a_process_so_that_even_one_at_every_step_ends(soak: Local) -> None:
    result = soak("workers=2", "steps=5", "faults=[{kind='kill', workers=[1], seconds=0.01}]")
    assert (result["exit"], result["steps"]) == (0, 5)
    assert re.findall(r"fault: kill at step (\d+), ", said(result, 1)) == ["1", "2", "3", "4"]


def test_a_stopped_worker_is_let_go_and_is_back_once_it_is_woken(soak: Local) -> None:
    """No step can close without it, so that the run waits until then."""
    result = soak("faults=[{kind='stop', workers=[1], steps=[9], seconds=2}]")
    assert (result["exit"], result["steps"]) == (0, 30)
    assert re.findall("fault: stop at step 9, 2 s", said(result, 1)) == ["fault: stop at step 9, 2 s"]
    assert "has been silent" in events(result, "left", 1)[0]["text"]
    (back,) = events(result, "ready", 1)[1:]
    assert back["text"].startswith("worker 1 is back after")
    assert len(events(result, "joined", 1)) == 1, "the same life went on"


def test_a_process_that_is_cut_off_is_so_once_though_its_next_life_begins_at_the_same_step(soak: Local) -> None:
    """No step can close without it, so that the life after begins where the one before was cut off."""
    result = soak("faults=[{kind='partition', workers=[1], steps=[9], seconds=2.5}]")
    assert (result["exit"], result["steps"]) == (0, 30)
    assert len(re.findall("fault: partition at step 9, 2.5 s", said(result, 1))) == 1
    assert "worker 1 is back in run" in said(result, 1)
    assert len(events(result, "joined", 1)) == 2


def test_who_wakes_a_stopped_worker_is_not_left_behind_when_the_worker_is_killed(tmp_path: Path) -> None:
    (tmp_path / "soak.toml").write_text(RUN)
    stop = "faults=[{kind='stop', workers=[1], steps=[3], seconds=1000}]"
    command = [str(BIN / "pgc"), "local", "--config", "soak.toml", "--set", "scheme.name=pgc-cr", "--set", stop]
    local = subprocess.Popen([*command, "--set", "steps=1000000"], cwd=tmp_path, env=environment())
    log = tmp_path / "runs" / "run" / "worker-1.log"
    limit = time.monotonic() + 60
    while not (log.exists() and "fault: stop at step 3" in log.read_text() and waking(tmp_path)):
        assert time.monotonic() < limit and local.poll() is None
        time.sleep(0.02)
    local.send_signal(signal.SIGINT)
    assert local.wait(timeout=30) == 75
    while children(tmp_path):
        assert time.monotonic() < limit, children(tmp_path)
        time.sleep(0.05)


def waking(directory: Path) -> list[int]:
    return [pid for pid in children(directory) if b"SIGCONT" in Path(f"/proc/{pid}/cmdline").read_bytes()]
