"""Charts say what the numbers say."""

import math

import pytest

from pgczmq.view.live import chart


def test_a_sparkline_has_a_cell_for_each_value_and_gaps() -> None:
    assert chart.sparkline([0.0, 1.0, math.nan, 0.5], 8) == "▁█ ▄"
    assert chart.sparkline(range(100), 4) == "▂▄▅▇"  # means of 25
    assert chart.sparkline([1.0, 2.0], 8, low=0.0, high=8.0) == "▂▃"
    assert chart.sparkline([], 8) == ""
    assert chart.sparkline([1.0], 0) == ""


def test_extreme_values_have_blocks() -> None:
    assert chart.sparkline([-1e308, 1e308], 2) == "▁█"
    assert chart.sparkline([1e308] * 10, 2) == "▅▅"
    assert chart.sparkline([math.nan, math.inf], 4) == "  "
    assert chart.sparkline([0.0, 5e-324], 2)
    assert chart.level(3.0, 0.0, 1.0) == "█"


@pytest.mark.parametrize("given", [1, 3, 64, 257])
@pytest.mark.parametrize("width", [1, 10, 100])
def test_charts_have_the_size_asked_for(given: int, width: int) -> None:
    values = [float(value) for value in range(given)]
    assert [len(line) for line in chart.curve(values, width, height=3)] == [width] * 3
    assert len(chart.sparkline(values, width)) == min(given, width)


def test_a_curve_goes_from_corner_to_corner() -> None:
    rising = chart.curve([0.0, 1.0], 3, height=2)
    assert [len(line) for line in rising] == [3, 3]
    assert ord(rising[1][0]) - 0x2800 & 0x40  # the lowest dot on the left
    assert ord(rising[0][2]) - 0x2800 & 0x08  # the highest on the right
    assert (rising[0][0], rising[1][2]) == (" ", " ")
    assert chart.curve([1.0, math.nan, math.nan, 1.0], 2, height=1) == ["⠂⠐"]
    assert chart.curve([], 2, height=2) == ["  ", "  "]


def test_a_jump_in_a_curve_has_no_holes() -> None:
    column = chart.curve([0.0, 0.0, 1.0, 1.0], 2, height=4)
    assert all(line.strip() for line in column)


@pytest.mark.parametrize("values", [[3e38, -3e38], [math.inf, 1.0, 2.0], [math.nan], [5.0, 5.0], [-1e-320, 1e-320]])
def test_curves_of_extreme_numbers(values: list[float]) -> None:
    for height in (1, 5):
        drawn = chart.curve(values, 7, height=height)
        assert [len(line) for line in drawn] == [7] * height


def test_logarithms_where_values_differ_by_orders_of_magnitude() -> None:
    assert chart.is_logarithmic([1.0, 51.0])
    assert not chart.is_logarithmic([1.0, 49.0])
    assert not chart.is_logarithmic([0.0, 1e9])
    assert not chart.is_logarithmic([])
    assert chart.logarithms([1.0, math.e])[1] == pytest.approx(1.0)
    assert math.isnan(chart.logarithms([-1.0])[0])


def test_parts_of_a_bar_add_up() -> None:
    assert chart.parts([1.0, 1.0, 1.0], 10) in ([4, 3, 3], [3, 4, 3], [3, 3, 4])
    assert chart.parts([0.0, 2.0], 5) == [0, 5]
    assert chart.parts([0.0, 0.0], 5) == [0, 0]
    assert chart.parts([math.nan, 1.0], 5) == [0, 0]
    assert sum(chart.parts([0.1 * place for place in range(9)], 77)) == 77
