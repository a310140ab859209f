import math

import pytest

from pgczmq.view import chart, words


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


# ---------------------------------------------------------------- charts


def test_an_area_fills_its_cells_from_the_least_value_to_the_largest() -> None:
    assert chart.area([0.0, 1.0], 2, height=2) == [" █", "▁█"]
    assert chart.area([3.0, 2.0, 1.0], 3, height=1) == ["█▅▁"]


def test_a_chart_of_one_level_lies_in_the_middle() -> None:
    assert chart.area([5.0, 5.0], 2, height=1) == ["▅▅"]


def test_gaps_where_a_value_is_not_finite() -> None:
    assert chart.area([0.0, math.nan, 1.0], 3, height=1) == ["▁ █"]
    assert chart.area([math.nan, math.inf], 4, height=2) == ["    ", "    "]
    assert chart.area([], 3, height=1) == ["   "]


def test_extreme_values_draw() -> None:
    assert chart.area([-1e308, 1e308], 2, height=1) == ["▁█"]
    assert chart.area([1e308] * 10, 2, height=1) == ["▅▅"]
    assert chart.area([0.0, 5e-324], 2, height=1)


def test_charts_have_the_size_asked_for() -> None:
    for given in (1, 3, 64, 257):
        for width in (1, 10, 100):
            drawn = chart.area([float(value) for value in range(given)], width, height=3)
            assert [len(line) for line in drawn] == [width] * 3
    assert len(chart.sparkline([1.0, 2.0, 3.0], 10)) == 3
    assert chart.sparkline([1.0, 2.0], 0) == ""


def test_bars_count_half_cells_and_keep_their_width() -> None:
    assert chart.bar(0.5, 4) == "━━  "
    assert chart.bar(0.625, 4) == "━━╸ "
    assert (chart.bar(2.0, 2), chart.bar(-1.0, 2), chart.bar(math.nan, 2), chart.bar(1.0, 0)) == ("━━", "  ", "  ", "")
