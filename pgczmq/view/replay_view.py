"""What ``pgc replay`` shows: sentences and a table from plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pgczmq.view import words

LISTED_AT_MOST = 20
"""More steps are left to ``--json``."""


def sentences(replayed: Mapping[str, Any]) -> list[str]:
    """What came out, a line each.

    Args:
        replayed: what ``pgczmq.app.replay.replay`` returns.
    """
    arrivals, durations = replayed["arrivals"], replayed["durations"]
    about = words.clean(
        f"{replayed['run']}: {replayed['scheme']}, {words.count(replayed['workers'], 'worker')}, "
        f"on_new_step={replayed['on_new_step']}, {words.count(arrivals['steps'], 'step')}"
    )
    return [about, f"arrivals: {_arrivals(arrivals)}", f"durations: {_durations(durations)}"]


def others(replayed: Mapping[str, Any]) -> list[Table]:
    """The steps that were closed otherwise, a table for each way to replay them."""
    ways = [("arrivals", replayed["arrivals"]), ("durations", replayed["durations"])]
    return [_table(name, way["others"]) for name, way in ways if not isinstance(way, str) and way["others"]]


def _arrivals(way: Mapping[str, Any]) -> str:
    if not way["others"]:
        return "exact: everybody was used, spare, late and missing at the same steps"
    return f"NOT EXACT: {len(way['others'])} of {words.count(way['steps'], 'step')} closed otherwise"


def _durations(way: Mapping[str, Any] | str) -> str:
    if isinstance(way, str):
        return way
    agree = f"{way['agree']:,} of {words.count(way['steps'], 'step')} agree ({100 * way['share']:.2f} %)"
    if not way["stand_ins"]:
        return agree
    times = "once" if way["stand_ins"] == 1 else f"{way['stand_ins']:,} times"
    return (
        f"{agree}; {times} a simulated worker began a step that the real one skipped, and took as long as the real one "
        "at the step before"
    )


def _changed(one: Mapping[str, Any]) -> str:
    unknown = " (its durations were not recorded)" if one["stood_in"] else ""
    return f"{one['worker']}: {one['recorded']}, {one['replayed']}{unknown}"


def _table(name: str, listed: Sequence[Mapping[str, Any]]) -> Table:
    shown = f", the first {LISTED_AT_MOST}" if len(listed) > LISTED_AT_MOST else ""
    table = Table(title=f"{name}: steps that closed otherwise{shown}")
    table.add_column("step", justify="right")
    table.add_column("margin", justify="right")
    table.add_column("worker: recorded, replayed")
    for other in listed[:LISTED_AT_MOST]:
        changed = "; ".join(map(_changed, other["changed"]))
        margin = words.duration(other["margin"])
        table.add_row(f"{other['step']:,}", margin, changed or "the replay never closed it")
    return table
