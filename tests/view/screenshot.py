"""A terminal's screen as a picture; how ``examples/dashboard.svg`` was made:

    tmux new-session -d -s demo -x 120 -y 36 bin/demo
    tmux capture-pane -e -p -t demo | python tests/view/screenshot.py "bin/demo" >examples/dashboard.svg

Letters are text in whatever fixed-width font the viewer has; blocks, dots and lines are drawn, since fonts differ in
them. Nothing in it comes from elsewhere.
"""

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

WIDE, HIGH, MARGIN, BAR = 8.4, 17.0, 14.0, 26.0  # of a cell, around the screen, above it
COLOURS = ("#2e3436", "#f0625d", "#5fc46f", "#d9ad3c", "#6ba4f0", "#c586dc", "#45b8c2", "#d3d7cf")
PAPER, INK, FAINT = "#15181d", "#d5d9de", 0.62
FONTS = "DejaVu Sans Mono, Menlo, Consolas, monospace"
BLOCKS = "▁▂▃▄▅▆▇█"
DASHES = {"─": "", "━": "", "═": "", "╍": "3.2 1", "┅": "2 .8", "╌": "3.2 1", "┄": "2 .8"}
HEAVY = set("━╍┅")
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # of a braille letter, in the order of its bits


def svg(lines: list[Text], title: str) -> str:
    """The picture of a screen."""
    columns = max(line.cell_len for line in lines)
    width, height = columns * WIDE + 2 * MARGIN, len(lines) * HIGH + 2 * MARGIN + BAR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<g font-family="{FONTS}" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        *(f'<circle cx="{18 + 18 * place}" cy="18" r="5.5" fill="#3b414a"/>' for place in range(3)),
        f'<text x="{width / 2:.0f}" y="22" text-anchor="middle" fill="#8b929b">{escape(title)}</text>',
    ]
    for row, line in enumerate(lines):
        parts += _line(line, MARGIN + BAR + row * HIGH)
    return "\n".join([*parts, "</g></svg>\n"])


def _line(line: Text, y: float) -> Iterator[str]:
    """Runs of cells that look alike."""
    styles = [Style()] * len(line.plain)
    for span in line.spans:
        for place in range(span.start, min(span.end, len(styles))):
            if isinstance(span.style, Style):
                styles[place] = styles[place] + span.style
    x = MARGIN
    cells = zip(line.plain, styles, strict=True)
    for (style, kind), run in groupby(cells, key=lambda cell: (cell[1], _kind(cell[0]))):
        text = "".join(letter for letter, _ in run)
        wide = cell_len(text) * WIDE
        ink = _colour(style)
        if style.reverse:
            yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{HIGH}" fill="{ink}"/>'
            ink = PAPER
        faint = f' opacity="{FAINT}"' if style.dim else ""
        if text.strip():
            yield f"<g{faint}>{_DRAW[kind](text, x, y, ink, bool(style.bold))}</g>"
        x += wide


def _kind(letter: str) -> str:
    if letter in BLOCKS:
        return "block"
    if 0x2800 <= ord(letter) < 0x2900:
        return "dots"
    return letter if letter in DASHES or letter in "│┤╰" else "text"


def _colour(style: Style) -> str:
    number = style.color.number if style.color is not None else None
    return INK if number is None else COLOURS[number % 8]


def _text(text: str, x: float, y: float, ink: str, bold: bool) -> str:
    """What is between wide gaps stands by itself: a font of another width must not move it."""
    weight = ' font-weight="bold"' if bold else ""
    parts = []
    for found in re.finditer(r"\S+( \S+)*", text):
        left = x + cell_len(text[: found.start()]) * WIDE
        place = f'x="{left:.1f}" y="{y + 12.6:.1f}" textLength="{cell_len(found[0]) * WIDE:.1f}"'
        parts.append(f'<text {place} lengthAdjust="spacingAndGlyphs" fill="{ink}"{weight}>{escape(found[0])}</text>')
    return "".join(parts)


def _blocks(text: str, x: float, y: float, ink: str, bold: bool) -> str:
    path = ""
    for place, letter in enumerate(text):
        high = HIGH * (BLOCKS.index(letter) + 1) / 8
        path += f"M{x + place * WIDE:.1f} {y + HIGH:.1f}v{-high:.1f}h{WIDE}v{high:.1f}z"
    return f'<path fill="{ink}" d="{path}"/>'


def _dots(text: str, x: float, y: float, ink: str, bold: bool) -> str:
    path = ""
    for place, letter in enumerate(text):
        for bit, (column, row) in enumerate(DOTS):
            if ord(letter) - 0x2800 >> bit & 1:
                path += f"M{x + (place + 0.25 + column / 2) * WIDE:.1f} {y + (0.125 + row / 4) * HIGH:.1f}h0"
    return f'<path stroke="{ink}" stroke-width="2.6" stroke-linecap="round" d="{path}"/>'


def _rule(text: str, x: float, y: float, ink: str, bold: bool) -> str:
    middle, wide = y + HIGH / 2, len(text) * WIDE
    heights = (middle - 1.5, middle + 1.5) if text[0] == "═" else (middle,)
    path = "".join(f"M{x:.1f} {height:.1f}h{wide:.1f}" for height in heights)
    dashes = f' stroke-dasharray="{DASHES[text[0]]}"' if DASHES[text[0]] else ""
    return f'<path stroke="{ink}" stroke-width="{3 if text[0] in HEAVY else 1}"{dashes} d="{path}"/>'


def _axis(text: str, x: float, y: float, ink: str, bold: bool) -> str:
    middle = x + WIDE / 2
    shape = {
        "│": f"M{middle:.1f} {y:.1f}v{HIGH}",
        "┤": f"M{middle:.1f} {y:.1f}v{HIGH}M{x:.1f} {y + HIGH / 2:.1f}h{WIDE / 2}",
        "╰": f"M{middle:.1f} {y:.1f}v{HIGH / 2}h{WIDE / 2}",
    }
    return f'<path fill="none" stroke="{ink}" d="{shape[text[0]]}"/>'


_DRAW = {"text": _text, "block": _blocks, "dots": _dots} | dict.fromkeys(DASHES, _rule) | dict.fromkeys("│┤╰", _axis)


def main() -> None:
    screen = Text.from_ansi(sys.stdin.read().rstrip("\n"))  # as a whole: styles go on from line to line
    print(svg(list(screen.split("\n")), sys.argv[1]), end="")


if __name__ == "__main__":
    main()
