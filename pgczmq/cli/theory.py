"""``pgc theory``: tables on the terminal, the same as JSON in a file."""

import json
from pathlib import Path

from rich.console import Console

from pgczmq.app.theory import theory
from pgczmq.config import RunConfig
from pgczmq.view.theory_view import tables, verdict


def show(config: RunConfig, *, error: float | None, json_file: Path | None) -> int:
    """Print what theory says of a run; 1 when the formulas do not give the figures that are known."""
    computed = theory(config, error=error)
    console = Console()
    for table in tables(computed):
        console.print(table)
    console.print(verdict(computed["checks"]), markup=False, highlight=False)
    if json_file is not None:
        json_file.write_text(json.dumps(computed, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 0 if all(check["holds"] for check in computed["checks"]) else 1
