"""``pgc bench``: what this program costs, as a table and as JSON."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from pgczmq.bench.simulator import gradient_cost, speeds


def simulator(json_file: Path | None) -> None:
    """Print each row as it is measured."""
    rows = []
    typer.echo(f"{'scheme':18} {'workers':>7} {'steps/s':>9}")
    for row in speeds():
        rows.append(asdict(row))
        typer.echo(f"{row.scheme:18} {row.workers:7d} {row.steps_per_second:9,.0f}")
    cost = gradient_cost()
    typer.echo(f"a gradient run of the digits CNN costs {cost.ratio:.3f} times its gradients alone")
    if json_file is not None:
        json_file.write_text(json.dumps({"rows": rows, "gradient_run": asdict(cost)}, indent=1) + "\n")
