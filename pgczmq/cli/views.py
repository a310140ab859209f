"""``pgc bench views``: what it costs a run to be looked at, as a table and as JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pgczmq.bench.views.compare import Interval
from pgczmq.bench.views.measure import KINDS, RATIO_AT_MOST, SHARE_AT_MOST, VIEWERS, Row, Work, measure
from pgczmq.cli.common import check_writable
from pgczmq.view import words

NAMES = {"nobody": "nobody", "dashboard": "dashboard", "viewers": f"{VIEWERS} viewers"}


def show(work: Work, *, rounds: int, json_file: Path | None) -> None:
    """Measure, say how far it is, print what came out, write what is wanted."""
    if json_file is not None:
        check_writable(json_file)
    rows = measure(work, rounds, _progress(Console(stderr=True), rounds * len(KINDS)))
    console = Console()
    console.print(table(rows))
    for row in rows[1:]:
        console.print(verdict(row), markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        found = {**asdict(work), "rounds": rounds, "rows": [asdict(row) for row in rows]}
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _progress(console: Console, total: int) -> Callable[[str], None]:
    done = 0

    def said(kind: str) -> None:
        nonlocal done
        done += 1
        console.print(f"turn {done} of {total}: {NAMES[kind]}", markup=False, highlight=False)

    return said


def table(rows: Sequence[Row]) -> Table:
    """A line for each way of looking."""
    found = Table(
        title="seconds of a step, times those that nobody looks at; % of a core", box=None, title_justify="left"
    )
    found.add_column("", no_wrap=True)
    for column in ("median", "times", "mean", "times", "core"):
        found.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        median, mean = (words.duration(ms / 1e3) for ms in (row.median_ms, row.mean_ms))
        share = "-" if row.share is None else f"{100 * row.share:.1f} %"
        found.add_row(NAMES[row.kind], median, _interval(row.median_ratio), mean, _interval(row.mean_ratio), share)
    return found


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def verdict(row: Row) -> str:
    """Whether it is what is asked for."""
    assert row.median_ratio is not None
    assert row.share is not None
    slow = row.median_ratio.low >= RATIO_AT_MOST
    text = f"{NAMES[row.kind]}: a step takes {_interval(row.median_ratio)} times as long"
    text += f" (an interval from below {RATIO_AT_MOST:g} is asked for){': too much' if slow else ''}"
    if row.kind == "dashboard":
        heavy = row.share >= SHARE_AT_MOST
        text += f"; {100 * row.share:.1f} % of a core (below {100 * SHARE_AT_MOST:g} %){': too much' if heavy else ''}"
    return text
