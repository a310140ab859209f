"""A real run decides as the simulator does, told of its arrivals or of its durations alone."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, ROOT, environment

from pgczmq.app import build
from pgczmq.app.recorded import RecordedDurations, read_recorded
from pgczmq.app.replay import Account, by_durations, differences

STEPS = 100
SETTINGS = [
    f"steps={STEPS}",
    "scheme.stragglers=2",
    "delay.model=exponential",
    "delay.shift=0",
    "delay.mean=0.03",
    "delay.workers=[0, 1, 2, 3, 4, 5]",
    "eval.every=30",
    "checkpoint.every=25",
    "net.heartbeat=8",  # nobody counts as gone because the machine is busy
]


def replayed(run: str, tmp_path: Path) -> dict[str, Any]:
    """What ``pgc replay`` says of it."""
    command = [str(BIN / "pgc"), "replay", run, "--json", str(tmp_path / "replay.json")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arrivals: exact" in done.stdout
    result: dict[str, Any] = json.loads((tmp_path / "replay.json").read_text())
    return result


def share_under(other_rule: str, run: str) -> float:
    """How many steps a simulator with another rule gets right from the durations."""
    recorded = read_recorded(Path(run))
    changed = replace(recorded, scheme=replace(recorded.scheme, on_new_step=other_rule))
    account = by_durations(changed, RecordedDurations(recorded, build.delay_of(recorded.config)))
    others = differences(Account.of([*recorded.steps, *recorded.answers]), account, recorded.scheme.workers)
    return 1 - len(others) / len(recorded.steps)


@pytest.mark.parametrize(("on_new_step", "other_rule"), [("skip", "abandon"), ("abandon", "skip")])
@pytest.mark.parametrize("scheme", ["pgc-cr", "gc-fr", "is-sgd"])
def test_the_simulator_decides_as_the_run_did(
    scheme: str, on_new_step: str, other_rule: str, pgc_local: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Every duration between two decisions is measured, so how busy the machine is makes no difference.

    The wrong rule with the same durations gets few steps right: it is the rule that decides, not the record.
    """
    settings = [f"scheme.name={scheme}", f"scheme.on_new_step={on_new_step}", *SETTINGS]
    run = pgc_local(*settings, config=ROOT / "configs" / "linear.toml")
    assert run["exit"] == 0, run["stderr"]
    result = replayed(run["run"], tmp_path)
    assert (result["arrivals"]["agree"], result["arrivals"]["steps"]) == (STEPS, STEPS)
    durations = result["durations"]
    assert durations["steps"] == STEPS
    assert durations["share"] >= 0.99, durations
    assert share_under(other_rule, run["run"]) < 0.9
    steps = [json.loads(line) for line in (Path(run["run"]) / "steps.jsonl").read_text().splitlines()]
    assert any(step["missing"] for step in steps)
    assert scheme != "gc-fr" or any(step["spare"] for step in steps)
