"""Studies as tables, and how far a long command is."""

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from pgczmq.view import study
from pgczmq.view.progress import SECONDS_BETWEEN_LINES, Steps


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int


def printed(thing: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (0.1, "0.100"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (1234.5, "1,234"),
        (42_000, "42,000"),
        (-3.14159, "-3.14"),
        (2.2e-4, "0.000220"),
        (3.3e-7, "3.30e-07"),
        (2.5e12, "2.50e+12"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent_while_they_are_short(value: float, text: str) -> None:
    assert study.significant(value, 3) == text


def test_a_cell_says_the_spread_and_how_many_runs_have_the_figure() -> None:
    assert study.cell(Spread(1.0, 0.9, 1.1, 5), 5, 3) == "1.00\n0.900–1.10"
    assert study.cell(Spread(1.0, 1.0, 1.0, 5), 5, 3) == "1.00"
    assert study.cell(Spread(1.0, 1.0, 1.0, 2), 5, 3) == "1.00\n(2 of 5 runs)"
    assert study.cell(None, 5, 3) == "-"


def test_columns_without_figures_are_left_out() -> None:
    lines = [study.Line("dgd", 1, {"loss": Spread(0.5, 0.5, 0.5, 1)}), study.Line("pgc-cr s=1", 1, {})]
    columns = [study.Column("loss", "final loss"), study.Column("metric", "metric")]
    (table,) = study.tables(lines, columns, width=100)
    text = printed(table)
    assert "final" in text and "loss" in text and "metric" not in text
    assert "0.500" in text and "pgc-cr s=1" in text


@pytest.mark.parametrize("width", [45, 60, 70, 79, 80, 120, 200])
def test_no_figure_is_cut_however_narrow_the_terminal(width: int) -> None:
    figures = {name: Spread(1234.5, 1000.25, 9999.75, 3) for name in "abcdefg"}
    lines = [study.Line("pgc-fr-staggered s=3", 5, figures), study.Line("dgd", 5, figures)]
    columns = [study.Column(name, f"a heading of {name}") for name in "abcdefg"]
    made = list(study.tables(lines, columns, width=width))
    text = "".join(printed(table, width) for table in made)
    assert text.count("1,234") == 14 and text.count("1,000–10,000") == 14 and "…" not in text
    assert text.count("pgc-fr-staggered s=3") == len(made)
    assert all(len(line) <= width and line[-1] in "┓┃┩│┘" for line in text.splitlines())  # no border is cut either


def test_what_a_paper_says_stands_beside_what_is_measured() -> None:
    text = printed(study.beside([("steps, s=[1]", "0.45", "1.02 [1, 1.1]", "no")], title="a claim [bold]"))
    for part in ("steps, s=[1]", "0.45", "1.02 [1, 1.1]", "no", "a claim [bold]"):
        assert part in text  # brackets are text, never markup


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=100)
    with Steps(console, "runs", 4, clock=lambda: now[0]) as steps:
        for number in range(4):
            now[0] += SECONDS_BETWEEN_LINES * 0.6
            steps.advance(f"run {number}")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == ["2 of 4 runs, 12.0 s left, last: run 1", "4 of 4 runs, done"]


def test_on_a_terminal_progress_is_a_bar_that_goes_away() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Steps(console, "runs", 2) as steps:
        steps.advance("the first")
        steps._progress.refresh()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1/2" in text and "the first" in text and text.endswith("\x1b[2K")
