"""HTML by small values: text is escaped unless it is ``Html`` already, so that no foreign text becomes markup."""

import base64
import html
from collections.abc import Iterable, Sequence

VOID = frozenset({"img", "meta", "br"})


class Html(str):
    """Markup, as it is to stand in the page."""

    __slots__ = ()


def tag(element: str, /, *content: str, **attributes: str) -> Html:
    """An element; of ``class_`` and the like the underscore at the end is left out."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    if element in VOID:
        return Html(f"<{element}{given}>")
    return Html(f"<{element}{given}>{together(content)}</{element}>")


def together(content: Iterable[str]) -> Html:
    """One after the other."""
    return Html("".join(part if isinstance(part, Html) else _escaped(part) for part in content))


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> Html:
    """A table that scrolls by itself where it is too wide.

    Args:
        heading: of the columns.
        rows: the first cell of each is its heading.
        text_columns: how many columns from the left are text; the others are numbers.
    """

    def side(place: int) -> str:
        return "text" if place < text_columns else "number"

    head = tag("tr", *(tag("th", name, scope="col", class_=side(place)) for place, name in enumerate(heading)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=side(0)),
            *(tag("td", cell, class_=side(place)) for place, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide", tabindex="0")


def details(summary: str, *content: str) -> Html:
    """What is folded away at first."""
    return tag("details", tag("summary", summary), *content)


def picture(svg: bytes, alt: str, class_: str = "") -> Html:
    """A picture inside the page; ``class_`` says how wide it is to be."""
    source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    return tag("figure", tag("img", src=source, alt=alt), class_=class_)


def _escaped(text: str) -> str:
    """Letters that do not print become spaces, but for the ends of lines."""
    return html.escape("".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text))
