"""``pgc task check`` as a person types it."""

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
TASK = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from pgczmq.train.task import Task

def points(width: int = 4, *, seed: int):
    inputs = torch.randn(64, width, generator=torch.Generator().manual_seed(seed))
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return Task(lambda: nn.Linear(width, 2), data, data)
"""


def check(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")} | {"COLUMNS": "200"}
    return subprocess.run(
        [str(BIN / "pgc"), "task", "check", *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=120
    )


def test_a_file_of_ones_own_is_tried_here_and_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    done = check("mine:points", "--set", "task.args.width=3", "--set", "task.batch_size=8", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inputs float32 [8, 3]" in done.stdout
    assert "another process has the same data, first parameters and gradient, to the bit" in done.stdout
    assert "These are the training data." in done.stdout
    assert "0 problems, 1 warning, in" in done.stdout and "pgc-cr" in done.stdout
    assert not done.stderr


def test_what_cannot_be_tried_is_a_problem_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    done = check("mine:pints", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "module mine has no function pints. The nearest is points." in done.stdout
    assert "1 problem, 0 warnings" in done.stdout
