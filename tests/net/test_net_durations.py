"""What latencies say of where a worker's time went, so that a replay can tell the same story."""

import asyncio

import pytest
from cluster import Cluster, rules, run, scheme

from pgczmq.core.delays import ExponentialDelay
from pgczmq.runlog import LatencyRecord

STEPS, SLOW = 30, 3


def recorded(on_new_step: str) -> list[LatencyRecord]:
    """The answers of a run in which worker 3 takes longer than a step."""
    cluster = Cluster(
        scheme("is-gc-cr", 4, stragglers=1, load=2, on_new_step=on_new_step),
        rules(STEPS),
        size=100,
        delay=ExponentialDelay(1, 0.005),
    )
    asyncio.run(run(cluster, lambda worker: 0.02 if worker == SLOW else 0.002))
    return cluster.latencies


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
def test_every_step_of_a_worker_is_answered_or_given_up(on_new_step: str) -> None:
    answers = recorded(on_new_step)
    for worker in range(4):
        mine = [answer for answer in answers if answer.worker == worker]
        assert all(step < answer.step for answer in mine for step, *_ in answer.dropped)
        told = [step for answer in mine for step, *_ in answer.dropped] + [answer.step for answer in mine]
        last = max((answer.step for answer in mine), default=-1)
        assert sorted(step for step in told if step <= last) == list(range(last + 1))
    given_up = [dropped for answer in answers for dropped in answer.dropped]
    assert on_new_step == "abandon" or all(len(dropped) == 3 for dropped in given_up)  # skipped ones never began


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
def test_durations_add_up(on_new_step: str) -> None:
    """On one host all clocks are one: parameters come after they were published, and all parts fit in between."""
    drawn = ExponentialDelay(1, 0.005)
    for answer in recorded(on_new_step):
        assert len(answer.evaluations) == answer.evaluated
        assert sum(answer.evaluations) <= answer.compute  # which has the encoding, too
        assert answer.delay >= drawn.seconds(answer.worker, answer.step, answer.evaluated, 1.0)
        parts = answer.wait + answer.compute + answer.delay
        assert answer.published_at + parts + answer.send == pytest.approx(answer.arrived_at)
        assert answer.received_at is not None
