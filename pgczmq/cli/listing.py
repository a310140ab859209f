"""``pgc runs``."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pgczmq import rundirs
from pgczmq.view.tables import go_on, listing

PIPED = 200
"""Letters of a line that goes into a file or another program."""


def show(paths: Sequence[Path], root: Path) -> int:
    """Print the runs named, or all there are.

    Raises:
        ConfigError: one that was named is no run.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=PIPED)
    runs = [rundirs.look_at_result(path) if path.is_file() else rundirs.look(path) for path in paths]
    if not paths:
        runs = rundirs.find(root)
    if not runs:
        console.print(f"There are no runs in {root}/ here. pgc local begins one, pgc sim one in virtual time.")
        return 0
    console.print(listing(runs, console.width))
    if text := go_on(runs):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0
