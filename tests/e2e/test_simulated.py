"""``pgc sim`` trains the very weights of ``pgc local`` in deterministic mode."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, DIGITS, environment

STEPS = 20


@pytest.mark.parametrize("scheme", ["dgd", "gc-cr", "is-gc-hr", "pgc-cr", "pgc-fr-staggered"])
def test_both_end_with_the_same_bits(scheme: str, pgc_local: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    settings = [
        "deterministic=true",
        f"steps={STEPS}",
        f"scheme.name={scheme}",
        "delay.model=exponential",
        "delay.mean=5",
        "task.args.dropout=0.2",
        "task.args.batchnorm=true",
    ]
    real = pgc_local(*settings)
    out = tmp_path / "simulated.json"
    command = [str(BIN / "pgc"), "sim", "--config", str(DIGITS), "--json", str(out)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    simulated = json.loads(out.read_text())
    for same in ("weights_sha256", "loss", "accuracy", "late_fraction", "steps"):
        assert simulated[same] == real[same], same
    mine, theirs = (
        [json.loads(line) for line in (Path(run) / "steps.jsonl").read_text().splitlines()]
        for run in (tmp_path / simulated["run"], real["run"])
    )
    for same in ("loss", "norm", "used", "spare", "missing", "weights", "ages", "recovered", "max_alpha"):
        assert [step[same] for step in mine] == [step[same] for step in theirs], same
