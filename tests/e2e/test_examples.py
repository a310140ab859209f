"""The programs in examples/, as somebody runs them who has just cloned the repository: all end well, having learned."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from conftest import BIN, ROOT, environment

import pgczmq

EXAMPLES = ROOT / "examples"
FALLS_TO = {
    "gpt": 0.7,
    "image_folder": 0.8,
    "tabular": 0.3,
    "my_model": 0.6,
    "my_scheme": 0.3,
    "my_delay": 0.6,
    "my_policy": 0.5,
}
"""By configuration: to what part of the loss of the first steps that of the last ones falls, at most."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of them, beside the licence that one of them reads."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "*.md", "clusters"))
    shutil.copy(ROOT / "LICENSE", tmp_path)
    return tmp_path / "examples"


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FALLS_TO)
def test_an_example_learns(name: str, examples: Path) -> None:
    if name == "image_folder":
        run(examples, sys.executable, "image_folder.py", "stripes")
    run(examples, str(BIN / "pgc"), "local", "--config", f"{name}.toml")
    (directory,) = (examples / "runs").iterdir()
    losses = [step.loss for step in pgczmq.Run(directory).steps]
    assert fmean(losses[-10:]) < FALLS_TO[name] * fmean(losses[:3]), losses


def test_the_program_from_python(examples: Path) -> None:
    said = run(examples.parent, sys.executable, "examples/api.py")
    assert "dgd" in said and "pgc-cr s=1" in said and "0.5 squared is about" in said
    first, last = map(float, re.search(r"loss (\S+) at first, (\S+) at last", said).groups())  # type: ignore[union-attr]
    assert last < 0.4 * first
    assert (examples.parent / "schemes.png").stat().st_size > 10_000


def test_every_program_is_run_here_and_short() -> None:
    programs = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert set(programs) == {*FALLS_TO, "api"} and {path.stem for path in EXAMPLES.glob("*.toml")} == set(FALLS_TO)
    assert max(programs.values()) < 60, programs
