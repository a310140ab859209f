"""What ``pgc task check`` prints: paragraphs that wrap beside their names, and the table of costs."""

from typing import Any

import pytest
from rich.console import Console, RenderableType

from pgczmq.view.task_view import costs, paragraph, size, summary


def text_of(shown: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, record=True)
    console.print(shown)
    return [line.rstrip() for line in console.export_text().splitlines()]


def cost(scheme: str, **changes: Any) -> dict[str, Any]:
    told = {"scheme": scheme, "load": 2, "evaluations": 1, "retained": 93_600_000, "worker": 187_200_000, "why_not": ""}
    return told | changes


def test_a_long_sentence_wraps_beside_its_name() -> None:
    lines = text_of(paragraph("replicas", "problem", "one two three four five six"), width=40)
    assert lines == ["problem  replicas     one two three four", "                      five six"]


def test_a_sentence_is_no_markup_and_stays_in_its_place() -> None:
    assert text_of(paragraph("data", "ok", "Tensor[3] [bold]\n\x1b[2J")) == [
        "ok       data         Tensor[3] [bold]  [2J"
    ]


def test_each_scheme_has_a_row_or_is_said_not_to_be_possible() -> None:
    impossible = [cost(name, load=0, why_not="5 is odd.") for name in ("gc-fr", "pgc-fr")]
    rows = [cost("pgc-cr"), *impossible, cost("gc-cr", evaluations=2)]
    lines = text_of(costs(rows, seconds=0.25, workers=5, stragglers=1, master=467_000_000))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert cells == [
        ["pgc-cr", "2 partitions", "1", "250 ms", "93.6 MB", "187 MB"],
        ["gc-cr", "2 partitions", "2", "500 ms", "93.6 MB", "187 MB"],
    ]
    told = " ".join(lines)
    assert "A worker of 5, stragglers=1" in told and "which takes 467 MB" in told and "gc-fr, pgc-fr: 5 is odd." in told
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0"), (512, "512 B"), (1000, "1 kB"), (999_600, "1 MB"), (46_800_000, "46.8 MB"), (2 * 10**13, "2e+04 GB")],
)
def test_bytes_have_units(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_the_last_line_counts_what_was_found() -> None:
    shown = summary(["ok", "problem", "warning", "warning"], seconds=6.25)
    assert (shown.plain, shown.style) == ("1 problem, 2 warnings, in 6.25 s", "bold red")
    assert summary(["ok", "warning"], seconds=1.0).style == "yellow"
    assert summary(["ok"], seconds=1.0).style == "green"
