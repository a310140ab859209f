"""Figures of a run, against records written by hand."""

import math
from dataclasses import replace

import pytest

from pgczmq import config
from pgczmq.bench.tally import POINTS, WINDOW, Goal, GoalReached, Tally
from pgczmq.config import RunConfig
from pgczmq.runlog import EvalRecord, LatencyRecord, StepRecord

STEP = StepRecord(
    step=0,
    published_at=10.0,
    closed_at=11.0,
    k=3,
    batch_fraction=1.0,
    loss=2.0,
    arrived=(0, 1, 2),
    arrived_at=(10.5, 10.6, 11.0),
    used=(0, 1, 2),
    spare=(),
    missing=(3,),
    weights=(0.25, 0.25, 0.25),
    ages=((0, 1), (0, 1), (1, 0)),
    recovered=0.75,
    max_alpha=1.5,
    fresh=4,
    applied_at=11.0,
    norm=1.0,
    bytes=0,
)


def run_of(name: str = "pgc-cr", **more: object) -> RunConfig:
    return config.parse({"workers": 4, "task": {"batch_size": 10}, "scheme": {"name": name, "stragglers": 1}} | more)


def step(number: int, loss: float, **changes: object) -> StepRecord:
    return replace(STEP, step=number, loss=loss, applied_at=11.0 + number, **changes)  # type: ignore[arg-type]


def answer(worker: int, number: int, *partitions: int) -> LatencyRecord:
    return LatencyRecord(
        worker=worker,
        step=number,
        published_at=10.0,
        wait=0.0,
        compute=1.0,
        delay=0.0,
        send=0.0,
        arrived_at=11.0,
        evaluated=len(partitions),
        outcome="open",
        newest_age=0,
        incarnation="a",
        partitions=partitions,
    )


def look(number: int, at: float, metric: float) -> EvalRecord:
    return EvalRecord(number, at, loss=0.5, metric=metric, seconds=0.0)


def test_what_three_steps_come_to() -> None:
    tally = Tally(run_of(), Goal(1.2))
    for number, loss in enumerate((2.0, 1.0, 0.6)):
        for worker in range(3):
            tally.see(answer(worker, number, worker))
        tally.see(step(number, loss, batch_fraction=0.5 if number == 2 else 1.0))
    row = tally.row("a case", diverged=False)
    assert (row.label, row.seed, row.steps, row.seconds, row.seconds_per_step) == ("a case", 1, 3, 3.0, 1.0)
    assert row.loss == pytest.approx(1.2)  # the mean of 2, 1 and 0.6
    assert row.worst_loss == 1.0
    assert (row.recovered, row.mean_age, row.max_alpha, row.last_k) == (0.75, 0.5, 1.5, 3)
    assert (row.spent.computation, row.spent.samples, row.spent.communication) == (10 + 10 + 5, 40 + 40 + 20, 3 * 7)
    assert row.reached == row.spent and row.reached.step == 2
    assert row.curve.steps == (0, 1, 2) and row.curve.loss == (2.0, 1.5, 1.2)


def test_a_loss_is_the_mean_of_the_last_steps_alone() -> None:
    tally = Tally(run_of(), Goal(0.5))
    for number in range(WINDOW):
        tally.see(step(number, 1.0))
    for number in range(WINDOW, 2 * WINDOW):
        tally.see(step(number, 0.0))
    row = tally.row("", diverged=False)
    assert row.loss == 0.0
    half = math.ceil(WINDOW / 2)
    assert row.reached is not None and row.reached.step == WINDOW - 1 + half


@pytest.mark.parametrize(
    ("name", "partitions"), [("dgd", 1), ("is-sgd", 1), ("gc-cr", 2), ("is-gc-cr", 2), ("pgc-cr", 1), ("pgc-fr", 1)]
)
def test_coded_schemes_compute_more_unless_they_are_pipelined(name: str, partitions: int) -> None:
    tally = Tally(run_of(name), Goal())
    tally.see(step(0, 1.0))
    assert tally.row("", diverged=False).spent.computation == 10 * partitions


def test_an_asynchronous_update_is_one_gradient() -> None:
    tally = Tally(run_of("async"), Goal())
    tally.see(step(0, 1.0))
    spent = tally.row("", diverged=False).spent
    assert (spent.computation, spent.communication) == (2.5, 2)


def test_a_goal_may_be_of_the_metric_and_end_the_run() -> None:
    tally = Tally(run_of(), Goal(0.3, of="metric", until="goal"))
    tally.see(step(0, 0.0))
    tally.see(look(1, 11.0, 0.4))
    tally.see(step(1, 0.0))
    with pytest.raises(GoalReached):
        tally.see(look(2, 12.0, 0.3))
    row = tally.row("", diverged=False)
    assert row.reached is not None and row.reached.step == 1 and row.metric == 0.3


def test_horizons_read_the_last_evaluation_before_them() -> None:
    tally = Tally(run_of(), Goal(of="metric", horizons=(0.5, 2.0, 2.5, 9.0)))
    for number, metric in enumerate((0.9, 0.8, 0.7)):
        tally.see(step(number, 1.0))
        tally.see(look(number + 1, 11.0 + number, metric))
    assert tally.row("", diverged=False).at == (None, 0.8, 0.8, None)  # at 1, 2 and 3 s; nobody knows what is at 9 s


def test_without_gradients_there_are_no_losses() -> None:
    tally = Tally(run_of(), Goal())
    tally.see(step(0, math.nan))
    row = tally.row("", diverged=False)
    assert row.loss is None and row.worst_loss is None and row.curve.steps == () and row.seconds_per_step == 1.0


def test_a_loss_that_is_no_number_is_left_out() -> None:
    tally = Tally(run_of(), Goal(0.5))
    for number, loss in enumerate((1.0, math.nan, math.inf, 0.0)):
        tally.see(step(number, loss))
    row = tally.row("", diverged=False)
    assert row.loss == 0.5 and row.worst_loss == 1.0 and row.steps == 4
    assert row.reached is not None and row.reached.step == 3


def test_curves_are_thinned() -> None:
    tally = Tally(run_of(), Goal())
    for number in range(500):
        tally.see(step(number, 1.0))
    curve = tally.row("", diverged=False).curve
    assert len(curve.steps) == POINTS and curve.steps[0] == 0 and curve.steps[-1] == 499


def test_samples_are_those_that_gradients_were_made_of_replicas_once_and_late_ones_too() -> None:
    tally = Tally(run_of(), Goal())
    tally.see(answer(0, 0, 0, 1))
    tally.see(answer(1, 0, 1, 2))
    tally.see(step(0, 1.0, batch_fraction=0.5, fresh=3))
    assert tally.row("", diverged=False).spent.samples == 3 * 5
    tally.see(answer(2, 0, 2, 3))  # late: partition 2 was there before
    assert tally.row("", diverged=False).spent.samples == 4 * 5
    tally.see(step(1, 1.0, fresh=2))
    assert tally.row("", diverged=False).spent.samples == 4 * 5 + 2 * 10
    for partition in range(3):  # in virtual time the answer that closes a step is told of after it
        tally.see(answer(0, 1, partition))
    assert tally.row("", diverged=False).spent.samples == 4 * 5 + 3 * 10


@pytest.mark.parametrize(("fraction", "samples"), [(0.28, 7), (0.3, 8), (1.0, 25), (0.001, 1)])
def test_a_fraction_counts_as_it_is_evaluated(fraction: float, samples: int) -> None:
    tally = Tally(run_of(task={"batch_size": 25}), Goal())
    tally.see(step(0, 1.0, batch_fraction=fraction))
    assert tally.row("", diverged=False).spent.computation == samples


def test_levels_on_the_way_are_noted() -> None:
    tally = Tally(run_of(), Goal(0.2, also=(0.8, 0.1)))
    for number, loss in enumerate((1.0, 0.5, 0.3)):
        tally.see(step(number, loss))
    row = tally.row("", diverged=False)
    assert row.reached is None and row.also[0] is not None and row.also[0].step == 1 and row.also[1] is None
