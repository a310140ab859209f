import math
import sys

import pytest
from made_up_run import (
    PERIOD,
    late,
    latency_record,
    records,
    result,
    run_record,
    step_record,
    view_of,
)

from pgczmq.runlog import EvalRecord, EventRecord, WorkerRecord
from pgczmq.view.history import History
from pgczmq.view.state import RunView


def test_a_view_of_nothing_knows_nothing() -> None:
    view = RunView()
    assert (view.steps, view.steps_done, view.late_fraction) == (0, 0, 0.0)
    assert view.loss is view.period is view.seconds_left is view.open_seconds is view.steps_per_second is None


def test_time_left_is_the_median_period_times_the_steps_left() -> None:
    view = view_of(run_record(steps=100), *(step_record(step) for step in range(60)))
    assert view.steps_done == 60
    assert view.period == pytest.approx(PERIOD)
    assert view.steps_per_second == pytest.approx(4.0)
    assert view.open_seconds == pytest.approx(0.2)
    assert view.seconds_left == pytest.approx(10.0)


def test_the_first_period_ends_with_its_update_and_a_gap_in_the_steps_is_no_period() -> None:
    assert view_of(step_record(0)).period == pytest.approx(0.24)
    assert view_of(step_record(0), step_record(40)).period == pytest.approx(0.24)


def test_loss_is_the_mean_of_the_last_25_finite_ones() -> None:
    view = view_of(*(step_record(step, loss=100.0) for step in range(10)))
    for step in range(10, 33):
        view.add(step_record(step, loss=1.0))
    assert view.loss == pytest.approx((23 * 1.0 + 2 * 100.0) / 25)
    view.add(step_record(33, loss=math.nan))
    assert view.loss == pytest.approx((23 * 1.0 + 100.0) / 24)
    assert math.isnan(view_of(step_record(0, loss=math.nan)).loss or 0.0)


def test_late_counts_a_workers_answers_and_missing_counts_steps() -> None:
    view = view_of(run_record(), step_record(0), step_record(1, missing=[3]), late(3, 1), step_record(2))
    worker = view.workers[3]
    assert (worker.answers, worker.late, worker.missing) == (3, 1, 1)
    assert worker.late_fraction == pytest.approx(1 / 3)
    assert view.missing_fraction(worker) == pytest.approx(1 / 3)
    assert view.late_fraction == pytest.approx(1 / 12)


def test_a_workers_last_latency_is_that_of_its_newest_answer() -> None:
    view = view_of(run_record(), latency_record(2, 5, 0.125))
    assert view.workers[2].latency == pytest.approx(0.125)
    view.add(latency_record(2, 4, 3.0, "late"))  # an old one that came in after it
    assert view.workers[2].latency == pytest.approx(0.125)
    view.add(step_record(6))  # no latency record is needed
    assert view.workers[2].latency == pytest.approx(0.03)


def test_states_follow_the_events_and_what_workers_say() -> None:
    view = view_of(run_record())
    assert view.workers[1].state == "absent"
    view.add(EventRecord(0.1, "ready", "worker 1 is ready", 1))
    assert view.workers[1].state == "ready"
    view.add(WorkerRecord(1, 0.2, "computing", 0))
    assert view.workers[1].state == "computing"
    view.add(EventRecord(0.3, "left", "worker 1 has been silent for 6.0 s", 1))
    assert view.workers[1].state == "gone"
    view.add(step_record(0))  # it answered, so it is not gone
    assert view.workers[1].state == "ready"


def test_ages_are_the_newest_and_the_oldest_of_the_last_used_message() -> None:
    view = view_of(step_record(0), step_record(1, missing=[0]))
    assert view.workers[0].ages == view.workers[1].ages == (0, 1)


@pytest.mark.parametrize("end", [EventRecord(3.0, "enough", "enough workers again"), step_record(9), result()])
def test_waiting_lasts_until_there_are_enough_workers_again(end: object) -> None:
    view = view_of(EventRecord(2.0, "waiting", "step 9 cannot close"))
    assert view.waiting == "step 9 cannot close"
    view.add(end)  # type: ignore[arg-type]
    assert view.waiting == ""


def test_late_answers_are_counted_but_are_no_news() -> None:
    view = view_of(late(1, 0), EventRecord(2.0, "checkpoint", "saved after 200 steps", step=200))
    assert [event.kind for event in view.events] == ["checkpoint"]


def test_evaluations_with_and_without_a_metric() -> None:
    view = view_of(EvalRecord(20, 2.0, 0.5, None, 0.1), EvalRecord(40, 4.0, 0.4, 0.9, 0.1))
    assert view.metrics.points == [0.9]
    assert [record.step for record in view.evals] == [20, 40]
    assert view.last_eval is not None
    assert view.last_eval.step == 40


def test_the_latest_time_ignores_what_is_no_time() -> None:
    assert view_of(EventRecord(3.0, "ready", "", 0), EventRecord(math.nan, "ready", "", 0)).latest_at == 3.0


def test_memory_is_bounded() -> None:
    view = view_of(*records(4, done=5000, steps=5000))
    for step in range(600):
        view.add(EvalRecord(step, 1.0, 0.5, 0.5, 0.1))
        view.add(EventRecord(1.0, "checkpoint", "saved"))
    assert len(view.losses.points) <= 256
    assert len(view.metrics.points) <= 256
    held = [value for value in vars(view).values() if hasattr(value, "__len__")]
    assert max(map(len, held)) <= 256


def test_a_view_needs_neither_torch_nor_zmq() -> None:
    import subprocess

    names = "pgczmq.view.screen, pgczmq.view.tables, pgczmq.view.explain_view"
    code = f"import sys, {names}; print({{'torch', 'zmq', 'numpy'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- history


def test_a_short_history_is_kept_as_it_is() -> None:
    history = History(limit=4)
    for value in [1.0, 2.0, 3.0, 4.0]:
        history.add(value)
    assert history.points == [1.0, 2.0, 3.0, 4.0]


def test_a_long_history_is_kept_as_means_over_equal_stretches() -> None:
    history = History(limit=4)
    for value in range(14):
        history.add(float(value))
    assert history.points == [1.5, 5.5, 9.5, 12.5]  # 0-3, 4-7, 8-11, and 12-13 so far


def test_what_is_not_finite_counts_for_nothing_but_takes_its_place() -> None:
    history = History(limit=2)
    for value in [math.nan, math.inf, 3.0, math.nan]:
        history.add(value)
    assert math.isnan(history.points[0])
    assert history.points[1] == 3.0
