import math
from collections.abc import Sequence

import pytest

from pgczmq.bench.theory_study import Cell, Setting, cells
from pgczmq.errors import ConfigError

SETTINGS = (Setting(1e-3, 10, 100.0), Setting(1e-3, 10, 1.0), Setting(1e-2, 10, 100.0), Setting(1e-2, 40, 100.0))
"""The first is adaptive-k's own example: its floor at k = 1 is 1e-3. In the third nothing below k = 11 reaches that."""


def costs(setting: Setting, plans: Sequence[tuple[int, int]], n: int, rate: float, x: float) -> tuple[float, ...]:
    """Seconds, samples and vectors until the bound is 1e-3, for (k, samples); switching is seen as an error here.

    A plan is left when the next lowers the bound faster: (e - f) / mu = (e - f') / mu', that is at
    e = (mu' f - mu f') / (mu' - mu).
    """
    decay = -math.log(1 - setting.lr)
    floor = [10 * setting.lr / (k * count) for k, count in plans]
    mu = [
        x + count / setting.samples / rate * sum(1 / (n - i) for i in range(k))  # k minima, one after the other
        for k, count in plans
    ]
    error, total = setting.initial_error, [0.0, 0.0, 0.0]
    for place, (k, count) in enumerate(plans):
        until = 1e-3
        if place + 1 < len(plans):
            gap = mu[place + 1] - mu[place]
            leave = (mu[place + 1] * floor[place] - mu[place] * floor[place + 1]) / gap if gap > 0 else math.inf
            until = max(until, min(error, leave))
        steps = math.log((error - floor[place]) / (until - floor[place])) / decay if until < error else 0.0
        total = [a + steps * b for a, b in zip(total, (mu[place], count, n + k), strict=True)]
        error = until
    assert error == pytest.approx(1e-3)
    return tuple(total)


def ladder(samples: int, n: int, rate: float, x: float) -> list[tuple[int, int]]:
    """(k, samples): one worker with ever more, then one more with the best count that raises their product."""

    def mu(k: int, count: int) -> float:
        return x + count / samples / rate * sum(1 / (n - i) for i in range(k))

    made = [(1, count) for count in range(1, samples + 1)]
    for k in range(2, n + 1):
        before, phi = mu(*made[-1]), math.prod(made[-1])
        values = {
            count: k * count * (mu(k, count) - before) / (k * count - phi)
            for count in range(1, samples + 1)
            if k * count > phi
        }
        best = min(values, key=lambda count: values[count])
        made += [(k, count) for count in range(best, samples + 1)]
    return made


@pytest.mark.parametrize(("setting", "rate", "x"), [(SETTINGS[0], 0.05, 0.05), (SETTINGS[2], 1.0, 0.2)])
def test_a_cell_agrees_with_another_computation(setting: Setting, rate: float, x: float) -> None:
    (cell,) = cells(setting, rates=[rate], communication_times=[x])
    one = costs(setting, ladder(setting.samples, 50, rate, x), 50, rate, x)
    other = costs(setting, [(k, setting.samples) for k in range(1, 51)], 50, rate, x)
    expected = [a / b for a, b in zip(one, other, strict=True)]
    assert [cell.seconds, cell.computation, cell.communication] == pytest.approx(expected, rel=1e-9)


def test_the_batch_always_saves_time_and_most_where_communication_is_cheap() -> None:
    for setting in SETTINGS:
        grid = list(cells(setting))
        assert all(cell.seconds < 1 and cell.computation < 1 and cell.communication > 1 for cell in grid)
        order = sorted(grid, key=lambda cell: cell.rate * cell.communication_time)
        assert [cell.seconds for cell in order] == pytest.approx(sorted(cell.seconds for cell in grid))
        assert 1.1 < max(cell.communication for cell in grid) < 1.2


def test_only_the_product_of_rate_and_time_counts() -> None:
    one, *_, other = cells(SETTINGS[0], rates=[0.2, 5.0], communication_times=[1.0, 25.0 / 625.0])
    assert isinstance(one, Cell)
    assert (one.seconds, one.computation) == pytest.approx((other.seconds, other.computation))


def test_an_error_below_the_floor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.02 at best"):
        next(cells(Setting(1.0 - 1e-9, 10, 100.0)))
