"""When a step has waited long enough: median + k MAD of what recent answers took."""

import math
import statistics

import pytest
from core_oracles import repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.config import parse
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Applied, Apply, Arrived, Joined, Ready, Tick
from pgczmq.core.pace import ANSWERS_A_WORKER, ANSWERS_AT_LEAST, SPREAD_AT_LEAST, Pace
from pgczmq.core.schemes import Settings, build
from pgczmq.errors import ConfigError

SECONDS = st.lists(st.floats(0.001, 100.0), min_size=ANSWERS_AT_LEAST, max_size=60)


@repeatable
@given(SECONDS, st.floats(0.0, 20.0))
def test_the_limit_is_median_plus_k_median_deviations(seconds: list[float], deviations: float) -> None:
    pace = Pace(100, deviations)
    for step, taken in enumerate(seconds):
        pace.opened(step, 5.0)
        pace.answered(step, 5.0 + taken)
    taken = [5.0 + one - 5.0 for one in seconds]
    median = statistics.median(taken)
    spread = max(statistics.median(abs(one - median) for one in taken), SPREAD_AT_LEAST * median)
    assert pace.opened(1000, 7.0) == pytest.approx(7.0 + median + deviations * spread, rel=1e-9)


def test_nothing_is_cut_short_while_little_is_known() -> None:
    pace = Pace(2, 1.0)
    for step in range(ANSWERS_AT_LEAST):
        assert pace.opened(step, float(step)) == math.inf
        pace.answered(step, step + 0.5)
    assert pace.opened(99, 100.0) == pytest.approx(100.5 + SPREAD_AT_LEAST * 0.5)


def test_old_answers_are_forgotten() -> None:
    pace = Pace(4, 0.0)
    for step in range(3 * 4 * ANSWERS_A_WORKER):
        pace.opened(step, 0.0)
        pace.answered(step, 1.0 if step < 2 * 4 * ANSWERS_A_WORKER else 2.0)
    assert pace.opened(10_000, 0.0) == 2.0


def test_without_a_deadline_nothing_is_remembered() -> None:
    pace = Pace(1, None)
    for step in range(100):
        assert pace.opened(step, 0.0) == math.inf
        pace.answered(step, 1.0)
    assert not pace._seconds and not pace._opened


def test_a_deadline_needs_partial() -> None:
    with pytest.raises(ConfigError, match=r'scheme\.deadline=3 with scheme\.shortfall="wait"\. Set scheme\.shortfall='):
        build(Settings("pgc-cr", 4, deadline=3.0))
    assert parse({"scheme": {"deadline": 2, "shortfall": "partial"}}).scheme.deadline == 2.0


# ---------------------------------------------------------------- the engine


class Three:
    """dgd over three workers that answer after 1 s each, of which the last can be slow."""

    def __init__(self) -> None:
        scheme = build(Settings("dgd", 3, stragglers=0, shortfall="partial", deadline=2.0))
        self.engine = Engine(scheme, Rules(steps=1000, step_timeout=50.0), lambda *_: 0.0, 0.0)
        for worker in range(3):
            self.engine.handle(Joined(worker, "a", 0.0))
            self.engine.handle(Ready(worker, "a", 0.0))
        self.at = 0.0
        for step in range(ANSWERS_AT_LEAST):
            assert self.answer(step, (0, 1, 2), self.at + 1.0)
            self.applied(step, self.at + 1.0)

    def answer(self, step: int, workers: tuple[int, ...], at: float) -> Apply | None:
        said = []
        for worker in workers:
            said += self.engine.handle(Arrived(worker, "a", step, (0,), ((worker, 2.0),), 1.0, at))
        return next((command for command in said if isinstance(command, Apply)), None)

    def applied(self, step: int, at: float) -> None:
        self.at = at
        self.engine.handle(Applied(step, at))

    def tick(self, at: float) -> Apply | None:
        return next((command for command in self.engine.handle(Tick(at)) if isinstance(command, Apply)), None)


def test_a_step_closes_at_its_deadline_with_what_there_is() -> None:
    run, step = Three(), ANSWERS_AT_LEAST
    due = run.at + 1.0 + 2 * SPREAD_AT_LEAST
    assert run.engine.deadline == pytest.approx(due)
    assert run.answer(step, (0, 1), run.at + 1.0) is None
    assert run.tick(due - 0.01) is None
    closed = run.tick(due + 0.01)
    assert closed is not None and (closed.closed.used, closed.closed.missing) == ((0, 1), (2,))
    run.applied(step, due + 0.01)
    assert run.answer(step, (2,), due + 0.5) is None and run.engine.late == 1


def test_an_answer_at_the_deadline_still_counts() -> None:
    run, step = Three(), ANSWERS_AT_LEAST
    due = run.engine.deadline
    run.answer(step, (0, 1), run.at + 1.0)
    closed = run.answer(step, (2,), due)
    assert closed is not None and closed.closed.used == (0, 1, 2)


def test_a_deadline_does_not_count_what_the_master_slept() -> None:
    run, step = Three(), ANSWERS_AT_LEAST
    due = run.engine.deadline
    run.answer(step, (0, 1), run.at + 1.0)
    assert run.engine.handle(Tick(due + 7.0, deaf=7.0)) == []
    assert run.engine.deadline == pytest.approx(due + 7.0)


def test_with_nothing_there_the_first_answer_closes_it() -> None:
    run, step = Three(), ANSWERS_AT_LEAST
    due = run.engine.deadline
    assert run.tick(due + 0.01) is None
    assert run.engine.deadline == run.at + 50.0  # step_timeout is next
    closed = run.answer(step, (1,), due + 5.0)
    assert closed is not None and closed.closed.used == (1,)


def test_late_answers_make_it_more_patient() -> None:
    run = Three()
    for step in range(ANSWERS_AT_LEAST, ANSWERS_AT_LEAST + 30):
        began = run.at
        closed = run.answer(step, (0, 1), began + 1.0) or run.tick(run.engine.deadline + 0.001)
        assert closed is not None
        if 2 in closed.closed.missing:
            run.answer(step, (2,), began + 3.0)
        run.applied(step, began + 3.0)
    assert run.engine.deadline - run.at == pytest.approx(1.0 + 2 * SPREAD_AT_LEAST)  # a third is late: not the median
    for step in range(ANSWERS_AT_LEAST + 30, ANSWERS_AT_LEAST + 80):
        began = run.at
        assert run.answer(step, (0,), began + 1.0) is None
        if run.tick(run.engine.deadline + 0.001) is None:
            run.answer(step, (1, 2), began + 3.0)
        else:
            run.answer(step, (1, 2), began + 3.0)
        run.applied(step, began + 3.0)
    assert run.engine.deadline - run.at > 3.0
