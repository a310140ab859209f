"""Programs of a user, run as a user runs them, in a directory of the test's own; and who is left of them."""

import os
import subprocess
import sys
from pathlib import Path

TASK = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

import pgczmq


def lines(width: int = 1, *, seed: int) -> pgczmq.Task:
    x = torch.rand(120, 1, generator=torch.Generator().manual_seed(seed))
    return pgczmq.Task(lambda: nn.Linear(1, width), TensorDataset(x, 2 * x), None, nn.functional.mse_loss, None)
"""


def environment(directory: Path) -> dict[str, str]:
    """This one, without settings that a developer may have around, and with room for temporary files of its own."""
    temporary = directory / "temporary"
    temporary.mkdir(exist_ok=True)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")}
    # Torch would make its own there, in whichever process is the first to load some part of it.
    return mine | {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor")}


def run_script(
    directory: Path, text: str, *arguments: str, name: str = "script.py"
) -> subprocess.CompletedProcess[str]:
    """Write a program into the directory, and run it there until it ends."""
    (directory / name).write_text(text)
    return subprocess.run(
        [sys.executable, name, *arguments],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=120,
    )


def left_in(directory: Path) -> list[str]:
    """Processes that work in the directory, and temporary files."""
    found = [str(path) for path in (directory / "temporary").iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == directory.resolve():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # it has ended, or is another's
    return found
