"""Results as tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pgczmq.runlog import Result
from pgczmq.view import words


def comparison(results: Sequence[Result]) -> Table:
    """One line per run, in the order given."""
    table = Table()
    table.add_column("scheme", overflow="fold")
    for name in ("s", "steps", "seconds", "s/step", "loss", "accuracy", "late"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("diverged")
    for result in results:
        table.add_row(*(_cell(text) for text in _row(result)), style="red" if result.diverged else None)
    return table


def result_table(result: Result) -> Table:
    """One run, one line per number."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(result):
        table.add_row(name, _cell(text))
    return table


def _row(result: Result) -> list[str]:
    return [
        result.scheme,
        str(result.stragglers),
        f"{result.steps:,}",
        f"{result.seconds:.2f}",
        words.number(seconds_per_step(result), 3),
        words.number(result.loss),
        words.accuracy(result.accuracy),
        words.percent(result.late_fraction),
        _yes_or_no(result),
    ]


def _facts(result: Result) -> list[tuple[str, str]]:
    return [
        ("scheme", f"{result.scheme}, {words.count(result.workers, 'worker')}, stragglers={result.stragglers}"),
        ("steps", f"{result.steps:,} in {result.seconds:.2f} s, {words.duration(seconds_per_step(result))} a step"),
        ("loss", words.number(result.loss)),
        ("accuracy", words.accuracy(result.accuracy)),
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
