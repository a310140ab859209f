"""Pictures against what is known of the run, and against sums over its recorded list."""

import math
import random
import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from made_up_run import PERIOD, late, latency_record, picture_of, records, result, run_record, step_record

from pgczmq import config as configs
from pgczmq.app import simulate
from pgczmq.gather.gathering import Gathering
from pgczmq.gather.history import History
from pgczmq.picture import EVENTS, HISTORY, RECENT, Numbers, Picture
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, Record, StepRecord, WorkerRecord


def test_a_picture_of_nothing_knows_nothing() -> None:
    assert Gathering().picture == Picture()
    assert (Picture().steps, Picture().seconds_left, Picture().steps_per_second) == (0, None, None)


def test_time_left_is_the_median_period_times_the_steps_left() -> None:
    picture = picture_of(run_record(steps=100), *(step_record(step) for step in range(60)))
    assert picture.steps_done == picture.steps_seen == 60
    assert picture.period.typical == pytest.approx(PERIOD)
    assert picture.steps_per_second == pytest.approx(4.0)
    assert picture.seconds_left == pytest.approx(10.0)
    assert picture.applied_at == pytest.approx(1.0 + 59 * PERIOD + 0.24)


def test_a_resumed_run_has_done_more_steps_than_are_seen() -> None:
    picture = picture_of(run_record(), step_record(40), step_record(41))
    assert (picture.steps_done, picture.steps_seen) == (42, 2)


def test_the_first_period_ends_with_its_update_and_a_gap_in_the_steps_is_no_period() -> None:
    assert picture_of(step_record(0)).period.last == pytest.approx(0.24)
    assert picture_of(step_record(0), step_record(40)).period.last == pytest.approx(0.24)


def test_loss_is_the_mean_of_the_last_25_finite_ones() -> None:
    before = [step_record(step, loss=100.0) for step in range(10)] + [step_record(step) for step in range(10, 33)]
    assert picture_of(*before).loss.typical == pytest.approx((23 * 1.0 + 2 * 100.0) / 25)
    assert picture_of(*before, step_record(33, loss=math.nan)).loss.typical == pytest.approx((23 + 100.0) / 24)
    assert math.isnan(picture_of(step_record(0, loss=math.nan)).loss.typical or 0.0)


def test_late_counts_a_workers_answers_and_missing_counts_steps() -> None:
    picture = picture_of(run_record(), step_record(0), step_record(1, missing=[3]), late(3, 1), step_record(2))
    worker = picture.workers[3]
    assert (worker.used, worker.spare, worker.late, worker.missing, worker.answers) == (2, 0, 1, 1, 3)
    assert worker.late_fraction == pytest.approx(1 / 3)
    assert picture.late_fraction == pytest.approx(1 / 12)


def test_a_workers_last_latency_is_that_of_its_newest_answer() -> None:
    before: list[Record] = [run_record(), latency_record(2, 5, 0.125)]
    assert picture_of(*before).workers[2].latency == pytest.approx(0.125)
    before.append(latency_record(2, 4, 3.0, "late"))  # an old one that came in after it
    assert picture_of(*before).workers[2].latency == pytest.approx(0.125)
    before.append(step_record(6))  # no latency record is needed
    assert picture_of(*before).workers[2].latency == pytest.approx(0.03)


@pytest.mark.parametrize("late_at", [0, 1])
def test_an_answer_that_comes_late_takes_its_place_among_the_recent_ones(late_at: int) -> None:
    """Before its step is recorded, while the update is computed, or after it."""
    happened = [step_record(7, missing=[3]), step_record(8, missing=[3])]
    happened.insert(late_at, latency_record(3, 7, 0.22, "late"))  # type: ignore[arg-type]
    worker = picture_of(run_record(), step_record(6), *happened, latency_record(3, 2, 0.1, "late")).workers[3]
    assert worker.outcomes == "ulm"
    assert worker.recent == pytest.approx((0.04, 0.22, math.nan), nan_ok=True)
    assert worker.typical == pytest.approx(0.13)


def test_states_follow_the_events_and_what_workers_say() -> None:
    happened: list[Record] = [run_record()]

    def told(record: Record) -> tuple[str, int | None, float | None]:
        happened.append(record)
        worker = picture_of(*happened).workers[1]
        return worker.state, worker.step, worker.heard_at

    assert picture_of(*happened).workers[1].state == "absent"
    assert told(EventRecord(0.05, "joined", "worker 1 joined from vm-3 (process 7)", 1)) == ("absent", None, 0.05)
    assert told(EventRecord(0.1, "ready", "worker 1 is ready", 1)) == ("here", None, 0.1)
    assert told(WorkerRecord(1, 0.2, "computing", 0)) == ("computing", 0, 0.2)
    assert told(EventRecord(0.3, "left", "worker 1 has been silent for 6.0 s", 1)) == ("gone", 0, 0.2)
    state, _, heard_at = told(step_record(0))  # it answered, so it is not gone
    assert (state, heard_at) == ("here", pytest.approx(1.02))
    assert picture_of(*happened).workers[1].host == "vm-3 (process 7)"


@pytest.mark.parametrize("number", [4, 123456789])
def test_who_was_not_let_in_is_none_of_the_workers(number: int) -> None:
    refused = EventRecord(0.2, "refused", "a worker was not let in", number)
    picture = picture_of(run_record(workers=4), refused)
    assert [worker.worker for worker in picture.workers] == [0, 1, 2, 3]
    assert picture.events == (refused,)


def test_ages_are_the_newest_and_the_oldest_of_the_last_used_message() -> None:
    picture = picture_of(step_record(0), step_record(1, missing=[0]))
    assert picture.workers[0].ages == picture.workers[1].ages == (0, 1)
    assert (picture.age.last, picture.oldest.last) == (0.5, 1)


@pytest.mark.parametrize("end", [EventRecord(3.0, "enough", "enough workers again"), step_record(9), result()])
def test_waiting_lasts_until_there_are_enough_workers_again(end: Record) -> None:
    waiting = EventRecord(2.0, "waiting", "step 9 cannot close")
    assert picture_of(waiting).waiting == "step 9 cannot close"
    assert picture_of(waiting, end).waiting == ""


def test_late_answers_are_counted_but_are_no_news() -> None:
    picture = picture_of(late(1, 0), EventRecord(2.0, "checkpoint", "saved after 200 steps", step=200))
    assert [event.kind for event in picture.events] == ["checkpoint"]


def test_evaluations_with_and_without_a_metric() -> None:
    picture = picture_of(EvalRecord(20, 2.0, 0.5, None, 0.1), EvalRecord(40, 4.0, 0.4, 0.9, 0.1))
    assert picture.metric.history == (0.9,)
    assert picture.held_out.history == (0.5, 0.4)
    assert picture.evaluation is not None
    assert picture.evaluation.step == 40


def test_the_latest_time_ignores_what_is_no_time() -> None:
    assert picture_of(EventRecord(3.0, "ready", "", 0), EventRecord(math.nan, "ready", "", 0)).at == 3.0


def test_a_record_that_contradicts_itself_changes_nothing() -> None:
    gathering = Gathering()
    gathering.add(step_record(0))
    before, broken = gathering.picture, step_record(1)
    for fields in ({"arrived_at": (1.0,)}, {"ages": ()}):
        with pytest.raises(ValueError, match="step 1"):
            gathering.add(StepRecord(**vars(broken) | fields))
    assert gathering.picture == before


def test_memory_is_bounded() -> None:
    happened = [*records(4, done=3000, steps=5000)]
    happened += [EvalRecord(step, 1.0, 0.5, 0.5, 0.1) for step in range(600)]
    happened += [EventRecord(1.0, "checkpoint", "saved")] * 100
    picture = picture_of(*happened)
    curves = [numbers for numbers in vars(picture).values() if isinstance(numbers, Numbers)]
    assert max(len(numbers.history) for numbers in curves) <= HISTORY
    assert max(len(worker.recent) for worker in picture.workers) == RECENT
    assert len(picture.events) == EVENTS


def test_a_view_needs_neither_torch_nor_zmq() -> None:
    import subprocess

    names = "pgczmq.view.live.screen, pgczmq.view.tables, pgczmq.view.explain_view"
    code = f"import sys, {names}; print({{'torch', 'zmq', 'numpy'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- against sums over the list


def a_messy_run(workers: int, steps: int, seed: int) -> list[Record]:
    """Arrivals at random, some late (before or after their step is recorded), some never."""
    draw = random.Random(seed)
    happened: list[Record] = [run_record(workers, steps)]
    now = 2.0
    for step in range(steps):
        order = draw.sample(range(workers), workers)
        count = draw.randint(1, workers)
        arrived, missing = order[:count], sorted(order[count:])
        at = sorted(now + draw.uniform(0.01, 0.5) for _ in arrived)
        used = sorted(draw.sample(arrived, draw.randint(1, count)))
        closed_at = at[-1] + draw.uniform(0, 0.1)
        own = [draw.uniform(0, 0.01) for _ in range(4)]
        for worker, arrival in zip(arrived, at, strict=True):
            happened.append(answer(draw, worker, step, now, arrival, "open"))
        ages = tuple(tuple(draw.randint(0, 3) for _ in range(2)) for _ in used)
        record = StepRecord(
            step=step,
            published_at=now,
            closed_at=closed_at,
            k=count,
            batch_fraction=draw.uniform(0.1, 1),
            loss=draw.uniform(0, 3),
            arrived=tuple(arrived),
            arrived_at=tuple(at),
            used=tuple(used),
            spare=tuple(worker for worker in arrived if worker not in used),
            missing=tuple(missing),
            weights=tuple(draw.uniform(0.1, 1) for _ in used),
            ages=ages,
            recovered=draw.uniform(0.5, 1),
            max_alpha=1.0,
            fresh=1,
            applied_at=closed_at + sum(own),
            norm=1.0,
            bytes=0,
            combining=own[0],
            updating=own[1],
            writing=own[2],
        )
        happened.append(record)
        for worker in missing:
            if draw.random() < 0.5:
                happened.insert(-draw.randint(0, 1) or len(happened), answer(draw, worker, step, now, closed_at + 0.1))
                happened.append(EventRecord(closed_at + 0.1, "late", "late", worker, step))
        now = record.applied_at + draw.uniform(0, 0.002)
    return happened


def answer(
    draw: random.Random, worker: int, step: int, published: float, at: float, outcome: str = "late"
) -> LatencyRecord:
    parts = [draw.random() for _ in range(4)]
    wait, compute, delay, send = ((at - published) * part / sum(parts) for part in parts)
    return LatencyRecord(worker, step, published, wait, compute, delay, send, at, 1, outcome, 0, "a", received_at=at)


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def means(values: Sequence[float], stretch: int) -> list[float]:
    return [float(np.mean(values[begin : begin + stretch])) for begin in range(0, len(values), stretch)]


def simulated() -> list[Record]:
    table = {"workers": 6, "steps": 90, "scheme": {"name": "is-sgd", "stragglers": 2}}
    table["delay"] = {"model": "exponential", "mean": 1.0}
    happened: list[Record] = [run_record(6, 90)]
    simulate.observe(configs.parse(table), model=None, sink=happened.append)
    return happened


@pytest.mark.parametrize("happened", [a_messy_run(5, 40, 1), a_messy_run(8, 700, 2), simulated()])
def test_every_number_is_what_the_list_of_records_says(happened: list[Record]) -> None:
    picture = picture_of(*happened)
    steps = [record for record in happened if isinstance(record, StepRecord)]
    recent = steps[-50:]
    stretch = 1 if len(steps) <= HISTORY else 4
    periods = [steps[0].applied_at - steps[0].published_at]
    periods += [after.published_at - step.published_at for step, after in pairwise(steps)]
    waited = [share_waited(step) for step in steps]
    ages = [float(np.mean([age for part in step.ages for age in part])) for step in steps]
    for numbers, values in (
        (picture.period, periods),
        (picture.waited, waited),
        (picture.age, ages),
        (picture.recovered, [step.recovered for step in steps]),
        (picture.k, [step.k for step in steps]),
        (picture.batch_fraction, [step.batch_fraction for step in steps]),
        (picture.oldest, [max(max(part) for part in step.ages) for step in steps]),
    ):
        assert numbers.last == pytest.approx(values[-1])
        assert numbers.typical == pytest.approx(median(values[-50:]))
        assert numbers.history == pytest.approx(means(values, stretch))
    assert picture.weights == (min(steps[-1].weights), max(steps[-1].weights))
    assert (picture.last_used, picture.last_missing) == (len(steps[-1].used), steps[-1].missing)
    check_workers(picture, happened, steps)
    check_time(picture, happened, recent)


def share_waited(step: StepRecord) -> float:
    """Closing less the arrival after which half of all workers had answered, by trying every arrival."""
    everybody = len(step.arrived) + len(step.missing)
    for at in sorted(step.arrived_at):
        if 2 * sum(other <= at for other in step.arrived_at) >= everybody:
            return (step.closed_at - at) / (step.applied_at - step.published_at)
    return 0.0


def check_workers(picture: Picture, happened: list[Record], steps: list[StepRecord]) -> None:
    lates = [
        (event.worker, event.step) for event in happened if isinstance(event, EventRecord) and event.kind == "late"
    ]
    took = {(one.worker, one.step): one.arrived_at - one.published_at for one in happened if type(one) is LatencyRecord}
    for worker in picture.workers:
        number = worker.worker
        assert worker.used == sum(number in step.used for step in steps)
        assert worker.spare == sum(number in step.spare for step in steps)
        assert worker.missing == sum(number in step.missing for step in steps)
        assert worker.late == sum(number == one for one, _ in lates)
        latencies = [took.get((number, step.step), math.nan) for step in steps[-RECENT:]]
        assert worker.recent == pytest.approx(latencies, nan_ok=True)
        assert worker.typical == pytest.approx(float(np.nanmedian(latencies)))
        assert [letter == "m" for letter in worker.outcomes] == [math.isnan(seconds) for seconds in latencies]
        spent = [one for one in happened if type(one) is LatencyRecord and one.worker == number][-RECENT:]
        assert worker.compute == pytest.approx(median([one.compute for one in spent]))
        assert worker.send == pytest.approx(median([one.send for one in spent]))
    answers = len(lates) + sum(len(step.arrived) for step in steps)
    assert picture.late_fraction == pytest.approx(len(lates) / answers)


def check_time(picture: Picture, happened: list[Record], recent: list[StepRecord]) -> None:
    """The parts of the answer that closed the step, and of the master."""
    answers = {(one.worker, one.step): one for one in happened if isinstance(one, LatencyRecord)}
    closing = [answers[step.arrived[-1], step.step] for step in recent]
    assert picture.time is not None
    assert picture.time.compute == pytest.approx(median([one.compute for one in closing]))
    assert picture.time.delay == pytest.approx(median([one.delay for one in closing]))
    assert picture.time.combine == pytest.approx(median([step.combining for step in recent]))
    left = [
        step.closed_at - step.published_at - one.compute - one.delay - one.send
        for step, one in zip(recent, closing, strict=True)
    ]
    assert picture.time.wait == pytest.approx(median(left), abs=1e-12)


def test_the_parts_of_a_step_add_up_also_where_it_closed_as_planned() -> None:
    """In deterministic mode: published at 1, applied at 1.24, closed by plan at 6."""
    planned = StepRecord(**vars(step_record(0)) | {"closed_at": 6.0, "combining": 0.03, "updating": 0.01})
    time = picture_of(run_record(), latency_record(3, 0, 0.05), planned).time
    assert time is not None
    assert sum(vars(time).values()) == pytest.approx(0.24)
    assert (time.compute, time.combine, time.update) == (pytest.approx(0.05), 0.03, 0.01)
    assert picture_of(planned).waited.last == pytest.approx((5 - 0.02) / 5)


def test_what_is_simulated_is_known_by_its_records() -> None:
    assert picture_of(*simulated()).virtual
    assert not picture_of(*a_messy_run(3, 2, 1)).virtual


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
