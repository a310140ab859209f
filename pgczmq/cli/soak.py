"""``pgc soak``: progress as it comes, then a table, a verdict, and all of it as JSON."""

import json
import signal
import time
from pathlib import Path

import typer
from rich.console import Console

from pgczmq.bench.torture.soak.measure import Plan, configured, soak
from pgczmq.cli.common import RUNS, check_writable
from pgczmq.runlog import create_directory
from pgczmq.view.soak_view import soak_table, verdict


def show(plan: Plan, json_file: Path | None) -> int:
    """Run it; returns 1 when the audit finds anything."""
    configured(plan, Path(), 1)  # for its complaints
    if json_file is not None:
        check_writable(json_file)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever ignores Ctrl+C has children that do
    directory = create_directory(RUNS.resolve(), f"soak-{time.strftime('%Y%m%d-%H%M%S')}")
    typer.echo(f"everything stays in {directory}")
    soaked = soak(plan, directory, typer.echo)
    Console().print(soak_table(soaked))
    for finding in soaked["findings"]:
        typer.echo(finding)
    typer.echo(verdict(soaked))
    if json_file is not None:
        json_file.write_text(json.dumps(soaked, indent=1) + "\n", encoding="utf-8")
    return 1 if soaked["findings"] else 0
