"""``pgc bench sim`` and ``pgc bench transport``: run, print and save."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from pgczmq.bench.simulator import RATIO_AT_MOST, GradientCost, Speed, gradient_cost, speeds
from pgczmq.bench.transport.demands import Ratio, ratios
from pgczmq.bench.transport.race import Race, Row, entrants, why_not
from pgczmq.bench.transport.work import Work
from pgczmq.cli.common import check_writable
from pgczmq.view.progress import Steps


def simulator(json_file: Path | None) -> None:
    """Print each row as it is measured."""
    if json_file is not None:
        check_writable(json_file)
    rows = []
    typer.echo(f"{'scheme':18} {'workers':>7} {'steps/s':>9} {'asked for':>9} {'us/worker/step':>14}")
    for row in speeds():
        rows.append(asdict(row))
        typer.echo(_line(row))
    cost = gradient_cost()
    typer.echo(_gradient_line(cost))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"rows": rows, "gradient_run": asdict(cost)}, indent=1) + "\n", encoding="utf-8"
        )


def _line(row: Speed) -> str:
    asked = "" if row.at_least is None else f"{row.at_least:,.0f}"
    missed = "  too slow" if row.at_least is not None and row.steps_per_second < row.at_least else ""
    measured = f"{row.steps_per_second:9,.0f} {asked:>9} {row.worker_microseconds:14.2f}"
    return f"{row.scheme:18} {row.workers:7d} {measured}{missed}"


def _gradient_line(cost: GradientCost) -> str:
    missed = "  too slow" if cost.ratio > RATIO_AT_MOST else ""
    text = f"a gradient run of the digits CNN costs {cost.ratio:.3f} times its gradients alone"
    return f"{text} ({cost.lowest:.3f} to {cost.highest:.3f}; at most {RATIO_AT_MOST:g} asked for){missed}"


def transport(work: Work, *, steps: int, against: Sequence[str], json_file: Path | None) -> None:
    """Run the race, print who took how long, and what this program takes of that."""
    if json_file is not None:
        check_writable(json_file)
    console = Console(stderr=True)
    reasons = {name: why_not(name) for name in entrants(against)}
    for name, reason in reasons.items():
        if reason:
            console.print(f"without {name}: {reason}", markup=False, highlight=False, soft_wrap=True)
    race = Race(work, steps=steps, names=[name for name, reason in reasons.items() if not reason])
    with Steps(console, "turns", race.turns) as progress:
        for name in race.run():
            progress.advance(name)
    found = ratios(race.rows, work.params)
    for line in _transport_lines(race.rows, found):
        typer.echo(line)
    if json_file is not None:
        measured = {"rows": [asdict(row) for row in race.rows], "ratios": [asdict(ratio) for ratio in found]}
        json_file.write_text(json.dumps(asdict(work) | {"steps": steps} | measured, indent=1) + "\n", encoding="utf-8")


def _transport_lines(rows: Sequence[Row], found: Sequence[Ratio]) -> list[str]:
    lines = [f"{'a step of':16} {'median ms':>10} {'min ms':>10} {'max ms':>10} {'MB':>9} {'peak RSS MB':>11}"]
    for row in rows:
        measured = f"{row.median_ms:10.3f} {row.min_ms:10.3f} {row.max_ms:10.3f}"
        lines.append(f"{row.name:16} {measured} {row.bytes / 1e6:9.1f} {row.peak_rss_mb:11.1f}")
    for own in dict.fromkeys(ratio.name for ratio in found):
        of = [f"{ratio.ratio:.3g} of {ratio.over}" for ratio in found if ratio.name == own]
        lines.append(f"{own} takes {', '.join(of)}")
    for ratio in found:
        if ratio.at_most is not None:
            missed = "  too slow" if ratio.missed else ""
            lines.append(f"{ratio.name} at most {ratio.at_most:g} of {ratio.over}: {ratio.ratio:.3g}{missed}")
    return lines
