"""Real processes: the installed programs, run as a person would."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "configs" / "digits.toml"


def environment() -> dict[str, str]:
    """This one, without settings that a developer may have around."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PGC_")}


@pytest.fixture
def pgc_local(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs ``pgc local`` in a directory of the test's own; returns its result with the run directory absolute."""

    def run(*settings: str, config: Path = DIGITS) -> dict[str, Any]:
        out = tmp_path / "result.json"
        command = [str(BIN / "pgc"), "local", "--config", str(config), "--json", str(out)]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=250)
        assert out.exists(), done.stderr
        result: dict[str, Any] = json.loads(out.read_text())
        assert result["exit"] == done.returncode
        return result | {"run": str(tmp_path / result["run"]), "stderr": done.stderr}

    return run
