"""A sample of the matrix of states and faults; all of it, with times: ``pgc torture matrix``."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, environment

from pgczmq.bench.torture.matrix import cells

SAMPLE = [
    ("connecting", "SIGINT"),
    ("hello", "SIGTERM"),
    ("preparing", "SIGTERM"),
    ("idle", "cut"),
    ("sending", "SIGKILL"),
    ("orphaned", "SIGSTOP"),
    ("starting", "SIGKILL"),
    ("open", "garbage"),
    ("applying", "SIGINT"),
    ("checkpointing", "SIGTERM"),
    ("finishing", "SIGKILL"),
]


@pytest.mark.parametrize(("state", "fault"), SAMPLE)
def test_the_run_comes_to_its_end(state: str, fault: str) -> None:
    [cell] = cells.chosen(state, fault)
    outcome = cells.run(*cell)
    print(outcome)  # for whoever wants to know the times
    assert outcome.wrong == ""


def test_the_command_shows_what_became_of_each_cell(tmp_path: Path) -> None:
    command = [str(BIN / "pgc"), "torture", "matrix", "--states", "computing", "--faults", "SIGTERM,cut"]
    done = subprocess.run(
        [*command, "--json", "matrix.json"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "matrix.json").read_text())
    assert [(cell["fault"], cell["codes"], cell["wrong"]) for cell in told] == [
        ("SIGTERM", [143, 0], ""),
        ("cut", [0], ""),
    ]
    assert "2 cells, 0 wrong" in done.stdout
