"""What ``pgc task check`` shows: a paragraph a check, and a table of what each scheme costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pgczmq.view import words

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_NAME = 12
_VERDICT = 8


def paragraph(name: str, verdict: str, text: str) -> Table:
    """Verdict and name in columns, and beside them the sentences, wrapped.

    Args:
        verdict: ok, warning or problem.
    """
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_VERDICT, no_wrap=True)
    grid.add_column(width=_NAME, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(verdict, STYLES[verdict]), Text(name), Text(words.clean(text)))
    return grid


def costs(rows: Sequence[Mapping[str, Any]], *, seconds: float, workers: int, stragglers: int, master: int) -> Group:
    """What each scheme costs a worker, the run's own scheme first and bold; then what the numbers are.

    Args:
        rows: as ``pgczmq.app.task_memory.Cost``, in plain values.
        seconds: of one evaluation.
        workers, stragglers: of the run.
        master: bytes.
    """
    table = Table(title=f"A worker of {workers}, stragglers={stragglers}", title_justify="left")
    table.add_column("scheme", no_wrap=True)
    for name in ("holds", "evaluates", "computes", "retains", "memory"):
        table.add_column(name, justify="right")
    for place, row in enumerate(rows):
        if row["why_not"]:
            continue  # it is said below
        style = "" if place else "bold"
        table.add_row(*(Text(cell, style) for cell in _cells(row, seconds)))
    why_not: dict[str, list[str]] = {}
    for row in rows:
        if row["why_not"]:
            why_not.setdefault(row["why_not"], []).append(row["scheme"])
    impossible = [Text(f"{', '.join(names)}: {words.clean(why)}") for why, names in why_not.items()]
    return Group(table, Text(_NOTES.format(evaluation=words.duration(seconds), master=size(master))), *impossible)


_NOTES = (
    "computes: time of a step on one thread of this machine, where one evaluation took {evaluation}. memory: "
    "parameters, the gradient sent, those retained, and minibatches; what the model needs while it computes, the data "
    "set and PyTorch come on top. On the master's machine parameters and the gradient sent are the master's memory, "
    "which takes {master}."
)


def _cells(row: Mapping[str, Any], seconds: float) -> list[str]:
    evaluations = row["evaluations"]
    return [
        row["scheme"],
        words.count(row["load"], "partition"),
        str(evaluations),
        words.duration(evaluations * seconds),
        size(row["retained"]),
        size(row["worker"]),
    ]


def summary(verdicts: Sequence[str], *, seconds: float) -> Text:
    """How many checks found what: the last line."""
    problems, warnings = verdicts.count("problem"), verdicts.count("warning")
    worst = "problem" if problems else "warning" if warnings else "ok"
    said = f"{words.count(problems, 'problem')}, {words.count(warnings, 'warning')}, in {words.duration(seconds)}"
    return Text(said, STYLES[worst])


def size(nbytes: int) -> str:
    """Bytes with a unit and three digits: ``0``, ``512 B``, ``46.8 MB``."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            return f"{value:.3g} {unit}" if nbytes else "0"
        value /= 1000
    raise AssertionError
