"""``pgc bench step``: where the time of real steps goes, as a table, as JSON and as a Chrome trace."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pgczmq.bench.step.account import MASTER_PARTS, WORKER_PARTS, Account
from pgczmq.bench.step.measure import OVERHEAD_AT_MOST, TASK, Row, measure, turns
from pgczmq.cli.common import check_writable
from pgczmq.config import RunConfig
from pgczmq.runlog import Record
from pgczmq.view import words
from pgczmq.view.progress import SECONDS_BETWEEN_LINES
from pgczmq.view.trace import chrome_trace

PARTS = {
    "first": "the first answer comes",
    "rest": "the last one comes",
    "closing": "it is closed",
    "adding": "added up, and taken over",
    "combining": "combined",
    "updating": "updated",
    "writing": "written",
    "publishing": "published",
    "waiting": "wait",
    "evaluating": "evaluate",
    "encoding": "encode",
    "delay": "delay",
    "sending": "send, both ways",
}
"""What the table calls the parts of an account: until when a step of the master's lasts, what a worker does."""
OTHERS_AT_MOST = 0.03
"""Part of the time that a process with a core of its own may be without it: with more, figures are worth nothing."""


def show(runs: Sequence[RunConfig], *, json_file: Path | None, trace_file: Path | None) -> None:
    """Run all, say how far it is, print what came out, write what is wanted."""
    for file, option in ((json_file, "--json"), (trace_file, "--trace")):
        if file is not None:
            check_writable(file, option)
    rows: list[Row] = []
    records: dict[str, Sequence[Record]] = {}
    for row, seen in measure(runs, _progress(Console(stderr=True), turns(runs))):
        rows.append(row)
        records[row.scheme] = seen
    print_rows(rows, runs[0].task.name)
    if json_file is not None:
        found = {"task": runs[0].task.name, "rows": [as_json(row) for row in rows]}
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if trace_file is not None:
        trace_file.write_text(json.dumps(chrome_trace(records), allow_nan=False) + "\n", encoding="utf-8")


def _progress(console: Console, total: int) -> Callable[[str], None]:
    """A line now and then, on a terminal over the one before: a bar would want a thread in the measured process."""
    done, said_at = 0, time.monotonic()

    def said(what: str) -> None:
        nonlocal done, said_at
        done += 1
        last = done == total
        if console.is_terminal or last or time.monotonic() - said_at >= SECONDS_BETWEEN_LINES:
            said_at = time.monotonic()
            end = "\r" if console.is_terminal and not last else "\n"
            console.print(f"{done} of {total}, last: {what:24}", end=end, markup=False, highlight=False)

    return said


def as_json(row: Row) -> dict[str, object]:
    """All that is known."""
    figures = {"compute": asdict(row.compute), "overhead": asdict(row.overhead), "own": asdict(row.own)}
    return asdict(row) | {"sharing": row.sharing} | figures


def print_rows(rows: Sequence[Row], task: str) -> None:
    """Tables, and whether the overhead is what is asked for."""
    console = Console()
    for table in (_overheads(rows), _parts(rows)):
        console.print(table)
    for row in rows:
        console.print(_verdict(row, task), markup=False, highlight=False, soft_wrap=True)


def _verdict(row: Row, task: str) -> str:
    """Nothing is said of a measurement that others disturbed: a process with a core of its own suffers most."""
    others = 1 - row.gradient.processor / row.gradient.alone
    if others > OTHERS_AT_MOST:
        return f"{row.scheme}: others had the cores {words.percent(others)} of the time; measure again"
    text = f"{row.scheme}: a step takes {_percent(row.overhead.median)} more than its compute"
    if task != TASK:
        return text
    return f"{text} (at most {100 * OVERHEAD_AT_MOST:g} % asked for){': too much' if row.missed else ''}"


def _overheads(rows: Sequence[Row]) -> Table:
    table = _table("a step, medians", rows)
    seconds = [row.over_steps(lambda step: step.seconds) for row in rows]
    own, overheads = [row.own for row in rows], [row.overhead for row in rows]
    lines: list[tuple[str, Iterable[str]]] = [
        ("seconds", [words.duration(one.median) for one in seconds]),
        ("  least", [words.duration(one.low) for one in seconds]),
        ("  most", [words.duration(one.high) for one in seconds]),
        ("gradients", [f"{row.over_steps(lambda step: step.evaluations).median:g}" for row in rows]),
        ("one alone, before the run", [words.duration(row.before.alone) for row in rows]),
        ("one alone, after the run", [words.duration(row.after.alone) for row in rows]),
        (f"compute: gradients x alone / {rows[0].cores}", [words.duration(row.compute.median) for row in rows]),
        ("overhead over compute", [_percent(one.median) for one in overheads]),
        ("  least", [_percent(one.low) for one in overheads]),
        ("  most", [_percent(one.high) for one in overheads]),
        (f"gradients of {rows[0].workers} processes: overhead", [_percent(row.sharing) for row in rows]),
        ("overhead over these", [_percent(one.median) for one in own]),
        ("  least", [_percent(one.low) for one in own]),
        ("  most", [_percent(one.high) for one in own]),
    ]
    for name, texts in lines:
        table.add_row(name, *texts)
    return table


def _parts(rows: Sequence[Row]) -> Table:
    table = _table("where the time goes, medians", rows)
    table.add_row("the master, until")
    for part in MASTER_PARTS:
        table.add_row(f"  {PARTS[part]}", *(words.duration(row.over_steps(_part(part)).median) for row in rows))
    busy = (words.duration(row.over_steps(_part("master")).median) for row in rows)
    table.add_row("its processor time", *busy, end_section=True)
    table.add_row("a worker, on average")
    for part in WORKER_PARTS:
        each = (row.over_steps(_part(part)).median / row.workers for row in rows)
        table.add_row(f"  {PARTS[part]}", *map(words.duration, each))
    return table


def _part(name: str) -> Callable[[Account], float]:
    def value(step: Account) -> float:
        found: float = getattr(step, name)
        return found

    return value


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_column(row.scheme, justify="right")
    return table


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
