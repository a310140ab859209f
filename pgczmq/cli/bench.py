"""``pgc bench``: what this program costs, as a table and as JSON."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from pgczmq.bench.simulator import RATIO_AT_MOST, GradientCost, Speed, gradient_cost, speeds


def simulator(json_file: Path | None) -> None:
    """Print each row as it is measured."""
    rows = []
    typer.echo(f"{'scheme':18} {'workers':>7} {'steps/s':>9} {'asked for':>9} {'us/worker/step':>14}")
    for row in speeds():
        rows.append(asdict(row))
        typer.echo(_line(row))
    cost = gradient_cost()
    typer.echo(_gradient_line(cost))
    if json_file is not None:
        json_file.write_text(json.dumps({"rows": rows, "gradient_run": asdict(cost)}, indent=1) + "\n")


def _line(row: Speed) -> str:
    asked = "" if row.at_least is None else f"{row.at_least:,.0f}"
    missed = "  too slow" if row.at_least is not None and row.steps_per_second < row.at_least else ""
    measured = f"{row.steps_per_second:9,.0f} {asked:>9} {row.worker_microseconds:14.2f}"
    return f"{row.scheme:18} {row.workers:7d} {measured}{missed}"


def _gradient_line(cost: GradientCost) -> str:
    missed = "  too slow" if cost.ratio > RATIO_AT_MOST else ""
    text = f"a gradient run of the digits CNN costs {cost.ratio:.3f} times its gradients alone"
    return f"{text} ({cost.lowest:.3f} to {cost.highest:.3f}; at most {RATIO_AT_MOST:g} asked for){missed}"
