import math

import pytest

from pgczmq.view import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "0 us"),
        (85e-6, "85 us"),
        (0.99951e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (1.25, "1.25 s"),
        (59.96, "60.0 s"),
        (119.4, "119 s"),
        (120.0, "2:00"),
        (3725.0, "1:02:05"),
        (90_000.0, "1 d 01:00"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, "-"), (math.nan, "-"), (0.0, "0 %"), (0.0312, "3.1 %"), (0.125, "12 %"), (1.0, "100 %")],
)
def test_percentages(fraction: float | None, text: str) -> None:
    assert words.percent(fraction) == text


def test_numbers() -> None:
    assert [words.number(value) for value in (None, math.nan, 0.123456, 12345.6)] == ["-", "nan", "0.1235", "1.235e+04"]
    assert words.accuracy(0.97245) == "97.2 %"
    assert (words.count(1, "worker"), words.count(1200, "step")) == ("1 worker", "1,200 steps")


def test_foreign_text_is_one_printable_line() -> None:
    assert words.clean("a\nb\x1b[31mc\x07 [/tag] é") == "a b [31mc  [/tag] é"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (-0.1, "now"),
        (0.99, "now"),
        (12.4, "12 s"),
        (99.4, "99 s"),
        (150.0, "2 min"),
        (7200.0, "2 h"),
        (9e5, "10 d"),
    ],
)
def test_how_long_ago(seconds: float | None, text: str) -> None:
    assert words.ago(seconds) == text
    assert len(text) <= 5
