"""What ``pgc theory`` shows: tables from plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pgczmq.view import words

FRACTIONS_AT_MOST = 6
"""More columns do not fit a terminal: some are left to ``--json``, never the smallest or the largest."""

POLICIES = ("bound-optimal-k", "adaptive-k-batch")


def tables(theory: Mapping[str, Any]) -> list[Table]:
    """Order statistics, the stages of both policies, and their costs when an error was asked for.

    Args:
        theory: what ``pgczmq.app.theory.theory`` returns.
    """
    made = [_orders(theory), *(_stages(name, theory[name]["stages"]) for name in POLICIES)]
    return made if theory["error"] is None else [*made, _costs(theory)]


def verdict(checks: Sequence[Mapping[str, Any]]) -> str:
    """One line: how many of the known figures come out right, and which do not."""
    wrong = [check for check in checks if not check["holds"]]
    if not wrong:
        return f"checked: all {len(checks)} known figures come out to the digits given"
    listed = "; ".join(f"{check['what']}: {check['found']} instead of {check['expected']}" for check in wrong)
    return f"WRONG: {len(wrong)} of {len(checks)} known figures: {listed}"


def _orders(theory: Mapping[str, Any]) -> Table:
    fractions: Sequence[float] = theory["fractions"]
    shown = _some(len(fractions))
    table = Table(title=f"expected seconds until the k-th of {words.count(theory['workers'], 'worker')}")
    table.add_column("k", justify="right")
    for place in shown:
        table.add_column(f"b = {words.number(fractions[place], 3)}", justify="right")
    table.add_column("error floor, b = 1", justify="right")
    for row in theory["orders"]:
        seconds = [words.number(row["seconds"][place], 6) for place in shown]
        table.add_row(str(row["k"]), *seconds, words.number(row["floor"]))
    return table


def _some(count: int) -> list[int]:
    """Places of at most FRACTIONS_AT_MOST of so many columns, evenly spread, both ends included."""
    shown = min(count, FRACTIONS_AT_MOST)
    return sorted({round(place * (count - 1) / max(1, shown - 1)) for place in range(shown)})


def _stages(name: str, stages: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"{name}: when to switch, by the bound")
    for column in ("k", "b", "seconds a step", "from, s", "to, s", "bound at its beginning"):
        table.add_column(column, justify="right")
    for stage in stages:
        table.add_row(
            str(stage["k"]),
            words.number(stage["batch_fraction"], 3),
            words.number(stage["seconds_per_step"]),
            f"{stage['begins']:.2f}",
            words.NOTHING if stage["ends"] is None else f"{stage['ends']:.2f}",
            words.number(stage["error"]),
        )
    return table


def _costs(theory: Mapping[str, Any]) -> Table:
    table = Table(title=f"until the bound is {words.number(theory['error'])}")
    for column in ("policy", "seconds", "steps", "samples a worker", "vectors sent"):
        table.add_column(column, justify="right")
    for name in POLICIES:
        cost = theory[name]["cost"]
        cells = [words.NOTHING] * 4 if cost is None else [words.number(cost[key], 6) for key in cost]
        table.add_row(name, *cells)
    return table
