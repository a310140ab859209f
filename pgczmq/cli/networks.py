"""``pgc torture networks``: runs whose networks fail, as a table and as JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.torture.networks.measure import Outcome, measure
from pgczmq.bench.torture.networks.scenarios import SCENARIOS, STRAGGLERS, WORKERS, Scenario
from pgczmq.cli.common import check_writable
from pgczmq.errors import ConfigError

COLUMNS = (
    f"{'':10} {'broken s':>8} {'first step s':>12} {'pause s':>8} {'step after s':>12} {'back s':>7} {'worst s':>8} "
    f"{'steps':>6} {'sent':>5}  right"
)
LEGEND = """\
first step: from the moment of the fault until a step that was published after it was applied; pause: the longest
between two steps; step after, back: from the end of the fault until such a step, and until a worker's answer to such a
step was in (median and worst of those that it hit); sent: bytes through the master's link over what its steps need"""


def show(only: str, json_file: Path | None) -> int:
    """Print each scenario as it is over; where there can be no hosts, why. Returns the exit code."""
    wanted = chosen(only)
    if json_file is not None:
        check_writable(json_file)
    reason = Lab.why_not()
    if reason:
        typer.echo(f"skipped: {reason}")
        return 0
    typer.echo(f"gc-fr, {WORKERS} workers, s = {STRAGGLERS}; dgd where links are slow\n{LEGEND}\n{COLUMNS}")
    outcomes = []
    for scenario in wanted:
        outcomes.append(measure(scenario))
        typer.echo(line(outcomes[-1]))
        if json_file is not None:
            json_file.write_text(json.dumps([row(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def chosen(names: str) -> Sequence[Scenario]:
    """The scenarios of a list such as one,more; all for an empty one.

    Raises:
        ConfigError: there is no such scenario.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ConfigError(f"--only takes names of {', '.join(known)}: got {', '.join(unknown)}.")
    return [known[name] for name in wanted] if wanted else SCENARIOS


def row(outcome: Outcome) -> dict[str, object]:
    """As JSON has it; figures that there are not become null."""
    figures = asdict(outcome) | {"back_median": outcome.back_median, "back_worst": outcome.back_worst}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


def line(outcome: Outcome) -> str:
    """What happened, the figures, and whatever was wrong."""
    figures = " ".join(
        [
            f"{outcome.name:10} {outcome.broken:8.1f}",
            _seconds(outcome.first, 12),
            _seconds(outcome.pause, 8),
            _seconds(outcome.after, 12),
            _seconds(outcome.back_median, 7),
            _seconds(outcome.back_worst, 8),
            f"{outcome.steps:6d} {outcome.sent:5.2f}",
        ]
    )
    right = "yes" if not outcome.wrong else "NO: " + "; ".join(outcome.wrong)
    return f"{figures}  {right}  ({outcome.what})"


def _seconds(value: float, width: int) -> str:
    return f"{'-':>{width}}" if math.isnan(value) else f"{value:{width}.2f}"
