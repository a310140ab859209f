"""Results as tables."""

import shlex
from collections.abc import Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from pgczmq.rundirs import RunDirectory
from pgczmq.runlog import Result
from pgczmq.view import words

NAME_LETTERS = 14
"""A longer name of a metric is cut: it is no reason to have no room for the rest."""
FOLDED = 8
"""A longer name of a task or a scheme goes on in the next line, where there is no room."""
WIDE = 110
"""Columns of a terminal that has room for everything."""


def listing(runs: Sequence[RunDirectory], width: int) -> Table:
    """One line per run, in the order given; narrow terminals are not told everything.

    Args:
        width: of the terminal, in letters.
    """
    metrics = {run.result.metric for run in runs if run.result and run.result.accuracy is not None}
    name = metrics.pop() if len(metrics) == 1 else "metric"
    columns = ["name", "state", "task", "scheme", "s", "steps", "seconds", "s/step", "loss", _metric_name(name), "late"]
    lines = [dict(zip(columns, _line(run, name), strict=True)) for run in runs]
    left_out = _left_out(columns, lines, width)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in [column for column in columns if column not in left_out]:
        if column in ("task", "scheme"):
            table.add_column(column, overflow="fold", min_width=FOLDED)
        else:
            table.add_column(column, justify="left" if column in ("name", "state") else "right", no_wrap=True)
    for run, cells in zip(runs, lines, strict=True):
        table.add_row(*(_cell(text) for column, text in cells.items() if column not in left_out), style=_style(run))
    return table


def _left_out(columns: Sequence[str], lines: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Columns that there is no room for: a name is there to be typed, so that it is not cut while another can go."""
    heading = {column: column for column in columns}
    wide = {column: max(cell_len(words.clean(line[column])) for line in (heading, *lines)) for column in columns}
    for column in ("task", "scheme"):
        wide[column] = min(wide[column], FOLDED)
    left_out = [] if width >= WIDE else ["task", "s/step", "late"]
    for column in ("task", "s/step", "late", "s", columns[-2], "seconds", "scheme"):
        if sum(wide[one] + 2 for one in columns if one not in left_out) <= width:
            break
        if column not in left_out:
            left_out.append(column)
    return left_out


def go_on(runs: Sequence[RunDirectory]) -> str:
    """What may be done with runs that ended before their time; empty when there are none with a checkpoint."""
    paths = [words.clean(shlex.quote(str(run.path))) for run in runs if run.resumable]
    return f"With a checkpoint, to go on from with --resume PATH: {', '.join(paths)}" if paths else ""


def go_on_with(run: RunDirectory) -> str:
    """How a run that has just ended before its time goes on; empty when it cannot."""
    path = words.clean(shlex.quote(str(run.path)))
    return f"To go on: the same command with --resume {path}" if run.resumable else ""


def result_table(result: Result) -> Table:
    """One run, one line per number."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(result):
        table.add_row(_cell(name), _cell(text))
    return table


def _line(run: RunDirectory, metric: str) -> list[str]:
    result, unknown = run.result, words.NOTHING
    stragglers = run.setting("scheme", "stragglers") if result is None else result.stragglers
    return [
        run.name,
        run.state,
        str(run.setting("task", "name") or unknown),
        str(run.setting("scheme", "name") or (unknown if result is None else result.scheme)),
        str(unknown if stragglers is None else stragglers),
        _steps(run),
        unknown if result is None else _seconds(result),
        unknown if result is None else words.number(seconds_per_step(result), 3),
        words.number(run.loss, 3),
        unknown if result is None else _metric(result, metric),
        unknown if result is None else words.percent(result.late_fraction),
    ]


def _steps(run: RunDirectory) -> str:
    """Those of an unfinished run beside what it was to do."""
    asked = run.settings.get("steps")
    if run.state in ("done", "diverged") or not isinstance(asked, int):
        return f"{run.steps:,}"
    return f"{run.steps:,}/{asked:,}"


def _seconds(result: Result) -> str:
    return f"{result.seconds:,.2f}{'' if result.virtual_seconds is None else ' virtual'}"


def _metric(result: Result, heading: str) -> str:
    """With its name, unless the column has it."""
    text = words.metric(result.accuracy, result.metric)
    return text if heading == result.metric or result.accuracy is None else f"{_metric_name(result.metric)} {text}"


def _metric_name(name: str) -> str:
    """As a heading."""
    name = words.clean(name) or "metric"
    return name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"


def _style(run: RunDirectory) -> str | None:
    return {"diverged": "red", "failed": "red", "died": "yellow", "interrupted": "yellow", "running": "green"}.get(
        run.state
    )


def _facts(result: Result) -> list[tuple[str, str]]:
    return [
        ("scheme", f"{result.scheme}, {words.count(result.workers, 'worker')}, stragglers={result.stragglers}"),
        ("steps", f"{result.steps:,} in {_seconds(result)} s, {words.duration(seconds_per_step(result))} a step"),
        ("loss", words.number(result.loss)),
        (_metric_name(result.metric), words.metric(result.accuracy, result.metric)),
        ("late", f"{words.percent(result.late_fraction)} of the messages"),
        ("diverged", _yes_or_no(result)),
        ("weights", f"sha256 {result.weights_sha256}" if result.weights_sha256 else words.NOTHING),
        ("ended", f"{result.reason} (exit code {result.exit})"),
        ("run", result.run),
    ]


def seconds_per_step(result: Result) -> float | None:
    """Mean over the whole run, evaluations included; None for a run without a step."""
    return result.seconds / result.steps if result.steps else None


def _yes_or_no(result: Result) -> str:
    return "yes" if result.diverged else "no"


def _cell(text: str) -> Text:
    return Text(words.clean(text))
