"""``--ui`` says what is shown, whatever the file and ``--set`` say; without a terminal that is lines at most."""

from pathlib import Path

import pytest
from test_cli import pgc

SIM = ("sim", "--timing-only", "--set", "steps=20", "--set", "workers=4")


@pytest.mark.parametrize(("ui", "told"), [("none", False), ("plain", True), ("auto", True), ("live", True)])
def test_what_is_shown(ui: str, told: bool, tmp_path: Path) -> None:
    done = pgc(*SIM, "--set", f"ui.mode={'plain' if ui == 'none' else 'none'}", "--ui", ui, cwd=tmp_path)
    assert done.returncode == 0
    assert ("done: 20 steps" in done.stderr) is told
    assert "\x1b" not in done.stderr


def test_what_there_is_to_choose_from(tmp_path: Path) -> None:
    done = pgc(*SIM, "--ui", "fancy", cwd=tmp_path)
    assert done.returncode == 2
    for mode in ("auto", "live", "plain", "none"):
        assert mode in done.stderr
