"""Real masters that end, are killed, and go on: to the bits of a run that was never disturbed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, environment

from pgczmq import config
from pgczmq.app import simulate

TRAINED = {
    "task.name": "logistic-regression",
    "task.batch_size": 4,
    "workers": 4,
    "deterministic": "true",
    "delay.model": "exponential",
    "eval.every": 0,
    "ui.mode": "none",
    "optimizer.momentum": 0.9,
}
PLAIN = {"task.name": "soak", "task.args.size": 200, "workers": 3, "scheme.name": "dgd", "deterministic": "true"}
HALF, WHOLE = 10, 20


def command(settings: dict[str, Any], *options: str) -> list[str]:
    arguments = [str(BIN / "pgc"), "local", *options]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    return arguments


def run(directory: Path, settings: dict[str, Any], *options: str) -> dict[str, Any]:
    """A whole run; its result, and what it logged."""
    done = subprocess.run(
        command(settings, "--json", "result.json", *options),
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (directory / "result.json").exists(), done.stderr
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    assert result["exit"] == done.returncode == 0, done.stderr
    return result | {"log": done.stderr}


def records(directory: Path, kind: str) -> list[dict[str, Any]]:
    path = directory / "runs" / "run" / f"{kind}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("scheme", ["gc-cr", "pgc-cr"])
def test_a_real_run_goes_on_to_the_bits_of_its_simulation(scheme: str, tmp_path: Path) -> None:
    asked = TRAINED | {"scheme.name": scheme}
    forgetting = {"sim.forget_at": HALF} if scheme == "pgc-cr" else {}
    simulated = config.load(
        None, [f"{key}={value}" for key, value in (asked | forgetting | {"steps": WHOLE}).items()], {}
    )
    whole = simulate.run(simulated, model=simulate.model_of(simulated), sink=lambda record: None, root=tmp_path / "sim")
    run(tmp_path, asked | {"name": "run", "steps": HALF})
    second = run(tmp_path, asked | {"name": "run", "steps": WHOLE}, "--resume", "auto")
    assert "going on from runs/run/checkpoints/step_000010, after 10 steps" in second["log"]
    assert second["weights_sha256"] == whole.weights_sha256
    assert [step["step"] for step in records(tmp_path, "steps")] == list(range(WHOLE))
    state = json.loads((tmp_path / "runs/run/checkpoints/step_000020/state.json").read_text())
    first = json.loads((tmp_path / "runs/run/checkpoints/step_000010/state.json").read_text())
    assert state["run"] == first["run"]


def test_a_master_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    undisturbed = run(tmp_path, PLAIN | {"name": "whole", "steps": 300})
    asked = PLAIN | {"name": "run", "steps": 300, "checkpoint.every": 7, "task.args.seconds": 0.002}
    for ending in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        seen = len(records(tmp_path, "steps"))
        with subprocess.Popen(command(asked, "--resume", "auto"), cwd=tmp_path, env=environment()) as master:
            until(master, lambda seen=seen: len(records(tmp_path, "steps")) > seen + 40)  # type: ignore[misc]
            os.kill(master.pid, ending)
            assert master.wait(timeout=30) == (75 if ending == signal.SIGTERM else -ending)
    last = run(tmp_path, asked, "--resume", "auto")
    assert last["weights_sha256"] == undisturbed["weights_sha256"]
    steps = records(tmp_path, "steps")
    assert [step["step"] for step in steps] == list(range(300))
    times = [step["applied_at"] for step in steps]
    assert times == sorted(times)
    assert len([event for event in records(tmp_path, "events") if event["kind"] == "resumed"]) == 3
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["run", "whole"]


def until(process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    """Look until the condition holds; the bound only guards against a hang."""
    limit = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)


def test_going_on_with_a_run_that_is_done_changes_nothing_and_says_nothing_odd(tmp_path: Path) -> None:
    asked = PLAIN | {"name": "run", "steps": 5}
    first, again = run(tmp_path, asked), run(tmp_path, asked, "--resume", "auto")
    assert again["weights_sha256"] == first["weights_sha256"]
    assert len(records(tmp_path, "steps")) == 5
    assert "Warning" not in again["log"]


def test_the_configuration_that_was_is_asked_for(tmp_path: Path) -> None:
    run(tmp_path, PLAIN | {"name": "run", "steps": 5})
    asked = command(PLAIN | {"name": "run", "steps": 9, "seed": 2}, "--resume", "auto")
    done = subprocess.run(asked, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "a run goes on as it began: seed was 1 and is 2" in done.stderr.replace("\n", " ")
    assert [step["step"] for step in records(tmp_path, "steps")] == list(range(5))
