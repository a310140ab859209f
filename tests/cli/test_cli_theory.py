"""``pgc theory`` as a person types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgczmq.view.theory_view import verdict

PGC = str(Path(sys.executable).parent / "pgc")
EXAMPLE = ["workers=5", "optimizer.lr=0.001", "task.batch_size=10", "policy.response.computation_rate=5"]


def theory(*settings: str, rest: tuple[str, ...] = (), cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")} | {"COLUMNS": "160"}
    options = [part for setting in settings for part in ("--set", setting)]
    return subprocess.run(
        [PGC, "theory", *options, *rest], cwd=cwd, env=env, capture_output=True, text=True, timeout=60
    )


def test_theory_prints_the_paper_s_example_and_checks_itself(tmp_path: Path) -> None:
    done = theory(*EXAMPLE, rest=("--error", "1e-3", "--json", "out.json"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "checked: all 13 known figures" in done.stdout
    for figure in ("496.92", "621.62", "793.65", "1102.52", "0.456667"):
        assert figure in done.stdout
    table = json.loads((tmp_path / "out.json").read_text())
    assert [stage["k"] for stage in table["bound-optimal-k"]["stages"]] == [1, 2, 3, 4, 5]
    assert [row["k"] for row in table["orders"]] == [1, 2, 3, 4, 5]
    assert table["adaptive-k-batch"]["cost"]["seconds"] < table["bound-optimal-k"]["cost"]["seconds"]
    assert all(check["holds"] for check in table["checks"])


@pytest.mark.parametrize(
    ("settings", "rest", "sentence"),
    [
        (("optimizer.lr=1.5",), (), "the bound needs lr * convexity below 1"),
        (("policy.start=9", "workers=5"), (), "policy.start=9"),
        (("policy.most=9", "workers=5"), (), "policy.most=9"),
        (("policy.fractions=[0.5, 2]",), (), "policy.fractions should be numbers above 0 and at most 1"),
        (("policy.response.computation_rate=0",), (), "policy.response.computation_rate should be greater than 0"),
        ((), ("--error", "0"), "--error is a loss above the least possible"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_exit_code_2(
    settings: tuple[str, ...], rest: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = theory(*settings, rest=rest, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_figure_that_does_not_come_out_is_named() -> None:
    good = {"what": "a", "expected": 1.0, "found": 1.0, "holds": True}
    assert verdict([good]) == "checked: all 1 known figures come out to the digits given"
    assert verdict([good, good | {"what": "b", "found": 2.0, "holds": False}]) == (
        "WRONG: 1 of 2 known figures: b: 2.0 instead of 1.0"
    )
