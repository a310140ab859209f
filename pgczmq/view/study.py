"""A study as a table: a line for each case, medians over its seeds with least and largest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.table import Table
from rich.text import Text

from pgczmq.view import words

FRAME = 3
"""Characters of a column's frame and padding."""


class Spread(Protocol):
    """Of one figure over several runs."""

    @property
    def median(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def count(self) -> int: ...


@dataclass(frozen=True)
class Column:
    """A figure's name, what stands above it, and how many significant digits it has."""

    figure: str
    heading: str
    digits: int = 3


@dataclass(frozen=True)
class Line:
    """A case."""

    label: str
    runs: int
    figures: Mapping[str, Spread]


def tables(lines: Sequence[Line], columns: Sequence[Column], *, width: int) -> Iterator[Table]:
    """One table, or several below each other where not all columns fit into so many characters.

    Columns that no case has a figure for are left out.
    """
    shown = [column for column in columns if any(column.figure in line.figures for line in lines)]
    names = max((len(line.label) for line in lines), default=0) + FRAME
    while shown:
        count, room = 0, width - names - 1
        while count < len(shown) and (not count or room >= _width(lines, shown[count])):
            room -= _width(lines, shown[count])
            count += 1
        yield _table(lines, shown[:count])
        shown = shown[count:]


def _table(lines: Sequence[Line], columns: Sequence[Column]) -> Table:
    made = Table()
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column.heading, justify="right", width=_width(lines, column) - FRAME)
    for line in lines:
        made.add_row(Text(line.label), *_cells(line, columns))
    return made


def _cells(line: Line, columns: Sequence[Column]) -> list[str]:
    return [cell(line.figures.get(column.figure), line.runs, column.digits) for column in columns]


def _width(lines: Sequence[Line], column: Column) -> int:
    """Of the column with its frame: no figure is ever cut; the heading may wrap between words."""
    rows = [row for line in lines for text in _cells(line, [column]) for row in text.split("\n")]
    return max(map(len, [*rows, *column.heading.split()])) + FRAME


def beside(lines: Sequence[tuple[str, str, str, str]], *, title: str) -> Table:
    """What a paper says beside what was measured: figure, paper, measured, and whether it holds."""
    made = Table(title=Text(title), title_justify="left")
    made.add_column("figure", overflow="fold")
    made.add_column("paper", overflow="fold")
    made.add_column("measured", justify="right", overflow="fold")
    made.add_column("holds", no_wrap=True)
    for line in lines:
        made.add_row(*(Text(text) for text in line), style="red" if line[3].startswith("0 of") else None)
    return made


def cell(spread: Spread | None, runs: int, digits: int) -> str:
    """``median`` and below it ``low–high``; how many of the runs have the figure, unless all do."""
    if spread is None:
        return words.NOTHING
    text = significant(spread.median, digits)
    if spread.high > spread.low:
        text += f"\n{significant(spread.low, digits)}–{significant(spread.high, digits)}"
    return text if spread.count == runs else f"{text}\n({spread.count} of {runs} runs)"


def significant(value: float, digits: int) -> str:
    """A number with so many significant digits, without an exponent while it fits into ten characters."""
    if value == 0:
        return "0"
    size = abs(value)
    if not 1e-4 <= size < 1e9:
        return f"{value:.{digits - 1}e}"
    whole = len(str(int(size)))
    decimals = max(0, digits - whole) if size >= 1 else digits - 1 - _exponent(size)
    return f"{value:,.{decimals}f}"


def _exponent(size: float) -> int:
    return int(f"{size:e}".partition("e")[2])
