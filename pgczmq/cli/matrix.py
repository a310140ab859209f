"""``pgc torture matrix``: each cell as it comes, then all of them as a table and as JSON."""

import json
import signal
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from pgczmq.bench.torture.matrix import cells
from pgczmq.cli.common import check_writable
from pgczmq.view.matrix_view import matrix_table

SLOW_SECONDS = 2.0
"""Whoever is asked to leave is gone by then, on a machine that is not overloaded."""


def show(states: str, faults: str, *, jobs: int, times: cells.Times, json_file: Path | None) -> int:
    """Play the cells; returns 1 when a run hangs or something else is wrong in one of them."""
    todo = cells.chosen(states, faults)
    if json_file is not None:
        check_writable(json_file)
    for number in (signal.SIGINT, signal.SIGTERM):  # whoever ignores Ctrl+C has children that do
        signal.signal(number, signal.default_int_handler)
    outcomes = []
    for outcome in cells.run_all(todo, jobs=jobs, times=times):
        outcomes.append(outcome)
        typer.echo(f"{len(outcomes)}/{len(todo)} {line(outcome)}")
    shown = Console() if Console().is_terminal else Console(width=160)
    shown.print(matrix_table([asdict(outcome) for outcome in outcomes]))
    slow = [outcome for outcome in outcomes if (outcome.gone or 0) > SLOW_SECONDS]
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in [*wrong, *(one for one in slow if one not in wrong)]:
        typer.echo(line(outcome))
    typer.echo(f"{len(outcomes)} cells, {len(wrong)} wrong, {len(slow)} took over {SLOW_SECONDS:g} s to leave")
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def line(outcome: cells.Outcome) -> str:
    """A cell in words."""
    what = f"{outcome.end} {outcome.state}, {outcome.fault}:"
    if outcome.wrong:
        return f"{what} {outcome.wrong}"
    ended = f"exit code {outcome.codes[0]} after {outcome.gone:.2f} s, " if outcome.gone is not None else ""
    return f"{what} {ended}goes on after {outcome.progress:.2f} s"
