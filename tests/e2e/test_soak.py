"""Real programs, killed and stopped for a while, and the audit of what they did; for longer: ``pgc soak``."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import BIN, environment
from test_leftovers import children

SMALL = ["--workers", "4", "--set", "scheme.stragglers=1", "--set", "scheme.load=2"]


def soak(directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [str(BIN / "pgc"), "soak", *SMALL, "--json", "soak.json", *options]
    return subprocess.Popen(
        command, cwd=directory, env=environment() | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
    )


def saved(directory: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((directory / "soak.json").read_text())
    return told


def test_a_run_whose_workers_and_master_are_killed_is_audited_clean(tmp_path: Path) -> None:
    process = soak(tmp_path, "--minutes", "0.23", "--kill-every", "3", "--master-every", "6", "--seed", "17")
    said, _ = process.communicate(timeout=250)
    sys.stdout.write(said)  # for whoever reads a failure, or wants to know the times
    told = saved(tmp_path)
    assert (process.returncode, told["findings"]) == (0, [])
    assert "audit: clean" in said
    assert told["deeds"].keys() == {"kill", "kill master", "stop", "terminate"}
    assert told["masters"] == 1 + told["deeds"]["kill master"]
    assert told["worker_processes"] >= 4 + told["deeds"]["kill"]
    assert told["answers"]["used"] == 3 * told["steps"] > 0
    assert children(Path(told["directory"])) == []


def test_an_interrupted_soak_ends_everybody_and_is_audited_all_the_same(tmp_path: Path) -> None:
    process = soak(tmp_path, "--minutes", "10")
    assert process.stdout is not None
    said = ""
    while " 4 are ready" not in said:
        said = process.stdout.readline()
        assert said, "the soak ended by itself"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "interrupted: ending everybody" in said
    told = saved(tmp_path)
    assert told["findings"] == []
    assert children(Path(told["directory"])) == []
