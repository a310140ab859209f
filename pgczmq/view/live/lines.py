"""Lines of known width, and a screen made of them.

A dashboard draws hundreds of pieces of text four times a second for 2 % of a core: so a line is a list of pieces whose
widths are known, not markup that is parsed. A style is words that rich understands too, such as ``bold red``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from pgczmq.view import words

CUT = "…"
_ATTRIBUTES = {"bold": "1", "dim": "2", "reverse": "7"}
_COLOURS = {
    name: str(30 + place) for place, name in enumerate(["black", "red", "green", "yellow", "blue", "magenta", "cyan"])
}


@cache
def codes(style: str, colour: bool) -> str:
    """The numbers of a style in a terminal's escape sequence; without colour the attributes alone."""
    names = style.split()
    found = [_ATTRIBUTES[name] for name in names if name in _ATTRIBUTES]
    return ";".join(found + [_COLOURS[name] for name in names if colour and name in _COLOURS])


@dataclass(slots=True)
class Line:
    """Pieces of text from left to right, and how many cells they take."""

    pieces: list[tuple[str, str]] = field(default_factory=list)
    width: int = 0

    def add(self, text: str, style: str = "") -> Self:
        """Append this program's own text, of which every character takes one cell."""
        if text:
            self.pieces.append((text, style))
            self.width += len(text)
        return self

    def foreign(self, text: str, most: int, style: str = "") -> Self:
        """Append text from elsewhere in at most ``most`` cells: whatever does not print is a space."""
        text = words.clean(text)
        if text.isascii():
            return self.add(text if len(text) <= most else text[: most - 1] + CUT if most > 0 else "", style)
        if cell_len(text) > most:
            text = set_cell_size(text, most - 1) + CUT if most > 0 else ""
        self.pieces.append((text, style))
        self.width += cell_len(text)
        return self

    def join(self, other: "Line") -> Self:
        """Append another line."""
        self.pieces += other.pieces
        self.width += other.width
        return self

    def to(self, column: int) -> Self:
        """Append spaces up to a column."""
        return self.add(" " * (column - self.width))

    def cut(self, width: int) -> "Line":
        """This line, or as much of it as fits, with a sign that there was more."""
        if self.width <= width:
            return self
        line = Line()
        for text, style in self.pieces:
            room = width - line.width
            size = cell_len(text)
            if size < room:
                line.pieces.append((text, style))
                line.width += size
            else:
                return line.add(set_cell_size(text, room - 1) + CUT if room > 0 else "", style)
        return line

    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self.pieces)

    def ansi(self, colour: bool) -> str:
        """The text with escape sequences."""
        parts = []
        for text, style in self.pieces:
            numbers = codes(style, colour) if style else ""
            parts.append(f"\x1b[{numbers}m{text}\x1b[0m" if numbers else text)
        return "".join(parts)


@dataclass(frozen=True)
class Frame:
    """A whole screen; rich can print it, ``view.terminal`` draws it faster."""

    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Each line as it is."""
        for line in self.lines:
            yield from (Segment(text, Style.parse(style)) for text, style in line.pieces)
            yield Segment.line()


def text(own: str, style: str = "") -> Line:
    """A line of one piece of this program's own text."""
    return Line().add(own, style)


def beside(left: Sequence[Line], right: Sequence[Line], column: int) -> Iterator[Line]:
    """Two columns, the right one from ``column`` on; each line of the left one must be shorter than that."""
    for row in range(max(len(left), len(right))):
        line = Line().join(left[row]) if row < len(left) else Line()
        yield line.to(column).join(right[row]) if row < len(right) else line


def stacked(lines: Sequence[Line], height: int) -> list[Line]:
    """Exactly so many lines: the first ones, then empty ones."""
    return [*lines[:height], *(Line() for _ in range(height - len(lines)))]


def titled(title: str, width: int, facts: Sequence[Line] = ()) -> Line:
    """A heading with a rule to its right, and at the rule's end as many facts as fit, the first ones first."""
    end = Line()
    for fact in facts:
        if fact.width and len(title) + end.width + fact.width + 6 <= width:
            end.add("  " if end.width else " ").join(fact)
    line = text(title, "bold").add(" ")
    return line.add("─" * (width - line.width - end.width), "dim").join(end)
