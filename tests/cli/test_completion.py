"""What the shell offers when Tab is pressed, asked as bash asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgczmq.cli import completion

BIN = Path(sys.executable).parent


def offered(line: str) -> list[str]:
    """What there is for the last word of a line."""
    words = line.split(" ")
    asked = {
        f"_{words[0].upper().replace('-', '_')}_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run([str(BIN / words[0])], env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pgc lo", ["local"]),
        ("pgc local --conf", ["--config"]),
        ("pgc local --config ", ["run.toml", "runs/"]),
        ("pgc local --set scheme.na", ["scheme.name="]),
        ("pgc compare --schemes dgd,is-s", ["dgd,is-sgd"]),
        ("pgc replay ", ["runs/first/", "runs/second/"]),
        ("pgc torture fu", ["fuzz"]),
        ("pgc-master --conf", ["--config"]),
        ("pgc-worker --all", ["--allow"]),
    ],
)
def test_it_completes(line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "second").mkdir()
    for name in ("run.toml", "note.txt", ".hidden.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert offered(line) == words


def test_places_that_are_not_there_have_nothing_to_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert completion.run_directories("") == completion.toml_files("nowhere/a") == []
