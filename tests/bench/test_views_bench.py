"""The views bench: turns in alternation, intervals that hold, and one real turn of each kind."""

from typing import Any

import numpy as np
import pytest

from pgczmq.bench.views import compare
from pgczmq.bench.views import measure as module
from pgczmq.bench.views.compare import ratio
from pgczmq.bench.views.measure import KINDS, Kind, Row, Turn, Work, measure, take_turn
from pgczmq.cli import views
from pgczmq.errors import PgcError

WORK = Work("soak", 2, 5)


def scripted(taken: list[Kind], slower: dict[Kind, float]) -> Any:
    def take(kind: Kind, work: Work) -> Turn:
        taken.append(kind)
        drift = 1 + 0.1 * len(taken)  # the machine slows down
        draw = np.random.default_rng(len(taken))
        seconds = 0.02 * drift * slower[kind] * draw.uniform(0.95, 1.05, work.steps)
        share = {"nobody": 0.30, "dashboard": 0.315, "viewers": 0.31}[kind]
        return Turn(tuple(seconds.tolist()), share, (0.01, 0.02, 0.03) if kind == "viewers" else ())

    return take


def test_every_kind_has_a_turn_a_round_and_no_kind_is_always_first() -> None:
    taken: list[Kind] = []
    said: list[str] = []
    measure(WORK, 3, said.append, scripted(taken, dict.fromkeys(KINDS, 1.0)))
    assert said == taken
    assert [sorted(taken[begin : begin + 3]) for begin in (0, 3, 6)] == [sorted(KINDS)] * 3
    assert {taken[0], taken[3], taken[6]} == set(KINDS)


def test_what_is_slower_is_found_although_the_machine_slows_down() -> None:
    slower: dict[Kind, float] = {"nobody": 1.0, "dashboard": 1.0, "viewers": 1.2}
    nobody, dashboard, viewers = measure(Work("soak", 2, 200), 9, lambda kind: None, scripted([], slower))
    assert nobody.median_ratio is nobody.mean_ratio is nobody.share is None
    assert dashboard.median_ratio is not None
    assert viewers.median_ratio is not None
    assert dashboard.median_ratio.low < 1.02
    assert viewers.median_ratio.low > 1.02
    assert dashboard.share == pytest.approx(0.015)
    assert viewers.share == pytest.approx(0.02)
    assert "too much" not in views.verdict(dashboard)
    assert "too much" in views.verdict(viewers)
    assert len(views.table([nobody, dashboard, viewers]).rows) == 3


def test_an_interval_has_the_true_ratio_nineteen_times_of_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rounds that differ by 5 % and steps that scatter by 10 %."""
    monkeypatch.setattr(compare, "RESAMPLES", 300)
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        rounds = [draw.lognormal(0, 0.05, 2) for _ in range(12)]
        one, other = ([list(size[place] * draw.lognormal(0, 0.1, 50)) for size in rounds] for place in (0, 1))
        interval = ratio(one, other, np.median)
        hits += interval.low <= 1.0 <= interval.high
    assert 50 <= hits <= 60


def test_a_real_turn_of_each_kind() -> None:
    for kind in KINDS:
        turn = take_turn(kind, WORK)
        assert len(turn.seconds) == WORK.steps
        assert min(turn.seconds) > module.DELAY_SECONDS
        assert 0 <= turn.master < 2
        assert len(turn.viewers) == (module.VIEWERS if kind == "viewers" else 0)


def test_a_run_that_fails_is_a_sentence() -> None:
    with pytest.raises(PgcError, match=r"pgc local ended with exit code 2: .*there is no task"):
        take_turn("nobody", Work("nothing", 2, 5))


def test_the_table_is_no_wider_than_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    slower: dict[Kind, float] = {"nobody": 1.0, "dashboard": 1.0, "viewers": 1.0}
    rows: list[Row] = measure(Work("soak", 2, 20), 2, lambda kind: None, scripted([], slower))
    Console(width=80).print(views.table(rows))
    assert "…" not in capsys.readouterr().out
