"""Planned faults over real sockets: each really happens, the run ends, and its weights are right.

Kills and stops befall whole processes: see tests/e2e.
"""

import logging

import numpy as np
import pytest
from cluster import BEAT, Cluster, both_payloads, is_step, rules, run, running, scheme
from test_net_losses import exactly_once

from pgczmq.core.faults import FaultPlan, FaultRule
from pgczmq.net.answers import SENDINGS_AT_MOST
from pgczmq.net.conditions import Conditions
from pgczmq.net.faulty import MANNERS, Faulty, conditions_of
from pgczmq.runlog import LatencyRecord, WorkerRecord

STEPS = 8
QUICK = 0.05


def planned(*rules):
    return FaultPlan(5, rules)


def rule(kind, workers=(1,), steps=(2, 5), seconds=None):
    return FaultRule(kind, frozenset(workers), frozenset(steps), seconds=seconds)


async def undisturbed(name, workers):
    """The parameters that such a run ends with."""
    cluster = Cluster(scheme(name, workers), rules(STEPS))
    await run(cluster)
    return cluster.compute.params


def struck(cluster, worker):
    conditions = cluster.conditions[worker]
    assert isinstance(conditions, Faulty)
    return conditions.struck


@pytest.mark.timeout(60)
@both_payloads
@pytest.mark.parametrize(
    "fault",
    [
        rule("drop"),
        rule("delay", seconds=0.1),
        rule("delay", seconds=1.0, steps=(2,)),  # it is asked for and sent again before
        rule("duplicate"),
        rule("reorder"),
        rule("slow", seconds=0.3),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.seconds}",
)
async def test_what_loses_no_answer_for_good_leaves_an_exact_scheme_as_it_is(fault, payload):
    """Every step needs this worker: without asking and sending again the run would wait for ever."""
    cluster = Cluster(scheme("dgd", 3), rules(STEPS, heartbeat=QUICK), payload=payload, faults=planned(fault))
    ending = await run(cluster)
    assert (ending.exit_code, ending.steps) == (0, STEPS)
    assert struck(cluster, 1) == [(fault.kind, step) for step in sorted(fault.steps)]
    assert type(cluster.conditions[0]) is Conditions
    exactly_once(cluster, STEPS)
    assert np.array_equal(cluster.compute.params, await undisturbed("dgd", 3))
    counted = [(record.worker, record.step) for record in cluster.latencies]
    assert sorted(counted) == [(worker, step) for worker in range(3) for step in range(STEPS)]


@pytest.mark.timeout(60)
@both_payloads
async def test_a_deterministic_run_keeps_its_bits_through_all_of_them_at_once(payload):
    kinds = [rule("drop", (0,)), rule("duplicate", (1,)), rule("reorder", (2,)), rule("delay", (3,), seconds=0.1)]
    faults = planned(*kinds, rule("slow", (0, 1), (3,), seconds=0.1))
    alone, disturbed = (
        Cluster(scheme("pgc-cr", 4), rules(STEPS, deterministic=True, heartbeat=QUICK), payload=payload, faults=plan)
        for plan in (planned(), faults)
    )
    for cluster in (alone, disturbed):
        assert (await run(cluster)).exit_code == 0
    assert sum(len(struck(disturbed, worker)) for worker in range(4)) == 10
    assert np.array_equal(disturbed.compute.params, alone.compute.params)
    assert [record.used for record in disturbed.steps] == [record.used for record in alone.steps]


@pytest.mark.timeout(60)
@both_payloads
async def test_whatever_is_wrong_with_a_spoiled_answer_it_is_refused_and_its_sender_goes_on(payload, caplog):
    caplog.set_level(logging.WARNING)
    spoiled = FaultRule("corrupt", frozenset({1}), first=1)
    cluster = Cluster(scheme("gc-fr", 4), rules(40, heartbeat=QUICK), payload=payload, faults=planned(spoiled))
    ending = await run(cluster, seconds=lambda worker: 0.0 if worker == 1 else 0.01)
    assert (ending.exit_code, ending.steps, ending.diverged) == (0, 40, False)
    exactly_once(cluster, 40)
    assert not np.isnan(cluster.compute.params).any()
    told = [record.getMessage() for record in caplog.records if record.name == "pgczmq.worker"]
    happened = {manner: sum(f"fault: corrupt ({manner})" in line for line in told) for manner in MANNERS}
    assert all(count > 2 for count in happened.values()), happened
    assert sum(happened.values()) == len(struck(cluster, 1))
    unread = sum(happened[manner] for manner in ("header", "payload"))
    refusals = [line for line in told if "the master refused the answer" in line]
    assert cluster.hub.blamed.refused == unread
    assert sum("was never published" in line for line in refusals) == happened["step"]
    not_finite = [event for event in cluster.events("refused") if "is not finite" in event.text]
    assert len(not_finite) == sum("is not finite" in line for line in refusals) > 0
    honest = {step.step for step in cluster.steps if 1 in step.used}
    assert 0 in honest, "what nothing is wrong with counts"


@pytest.mark.timeout(60)
@both_payloads
async def test_an_answer_that_was_spoiled_on_its_way_is_sent_again_where_every_step_needs_it(payload):
    """But not one with something in it that is no number: it was so before it was sent."""
    everywhere = planned(FaultRule("corrupt", frozenset({1})))
    manners = [MANNERS[int(everywhere.of(1, step)[0].manner * len(MANNERS))] for step in range(STEPS)]
    steps = [step for step, manner in enumerate(manners) if manner != "number"]
    assert {manners[step] for step in steps} == set(MANNERS) - {"number"}
    faults = planned(FaultRule("corrupt", frozenset({1}), frozenset(steps)))
    cluster = Cluster(scheme("dgd", 3), rules(STEPS, heartbeat=QUICK), payload=payload, faults=faults)
    ending = await run(cluster)
    assert (ending.exit_code, ending.steps) == (0, STEPS)
    assert struck(cluster, 1) == [("corrupt", step) for step in steps]
    exactly_once(cluster, STEPS)
    assert np.array_equal(cluster.compute.params, await undisturbed("dgd", 3))


class Cutting(Conditions):
    """Under which every answer is cut short whenever it is sent."""

    sent = 0

    def send(self, socket, frames):
        header, *payload = frames
        self.sent += len(payload)
        return super().send(socket, [header, *(frame[:-4] for frame in payload)])


@pytest.mark.timeout(60)
async def test_an_answer_that_is_refused_each_time_is_not_sent_for_ever():
    cluster = Cluster(scheme("dgd", 2), rules(STEPS, heartbeat=QUICK))
    cutting = cluster.conditions[1] = Cutting()
    async with running(cluster) as scene:
        for _ in range(40):  # some beats for each time that it is sent, and as many again
            await cluster.sees(lambda record: isinstance(record, WorkerRecord) and record.worker == 1)
        assert cluster.hub.blamed.refused == cutting.sent == SENDINGS_AT_MOST
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
@both_payloads
async def test_a_worker_that_is_cut_off_is_done_without_and_comes_back(payload):
    """Long enough to be missed on both sides: the master lets it go, and it looks for its master again."""
    cut = rule("partition", steps=(3,), seconds=2.0)
    cluster = Cluster(scheme("pgc-cr", 3), rules(100_000, heartbeat=QUICK), payload=payload, faults=planned(cut))
    async with running(cluster, seconds=0.01) as scene:
        await cluster.saw(is_step(3))
        first = cluster.hub.incarnation(1)
        await cluster.saw(lambda record: getattr(record, "kind", "") == "left" and record.worker == 1)
        gone_at = len(cluster.steps)
        await cluster.sees(is_step(gone_at + 2))  # the others go on
        back = await cluster.sees(lambda record: isinstance(record, LatencyRecord) and record.worker == 1)
        assert back.step > gone_at
        assert back.incarnation != first
        cluster.master.stop("enough")
        await scene.ended()
    assert struck(cluster, 1) == [("partition", 3)]
    exactly_once(cluster, len(cluster.steps))


@pytest.mark.timeout(60)
@both_payloads
async def test_a_step_that_waits_for_a_worker_that_is_cut_off_gets_its_answer_from_the_life_after(payload):
    """It strikes once: the life after it begins with the very step at which the one before was cut off."""
    cut = rule("partition", steps=(3,), seconds=2.0)
    cluster = Cluster(scheme("dgd", 3), rules(STEPS, heartbeat=QUICK), payload=payload, faults=planned(cut))
    ending = await run(cluster)
    assert (ending.exit_code, ending.steps) == (0, STEPS)
    assert struck(cluster, 1) == [("partition", 3)]
    assert [event.worker for event in cluster.events("joined")].count(1) == 2
    exactly_once(cluster, STEPS)
    assert np.array_equal(cluster.compute.params, await undisturbed("dgd", 3))


@pytest.mark.timeout(60)
async def test_a_slow_evaluation_is_not_made_on_the_event_loop_where_nobody_could_hear_the_worker():
    """Evaluations of this size are, as long as they are short."""
    slow = rule("slow", steps=(30,), seconds=6 * BEAT)
    cluster = Cluster(scheme("dgd", 2), rules(32), size=10, faults=planned(slow))
    ending = await run(cluster)
    assert ending.exit_code == 0
    assert struck(cluster, 1) == [("slow", 30)]
    assert not cluster.events("left")
    said = [record for record in cluster.records if isinstance(record, WorkerRecord) and record.worker == 1]
    assert sum(record.state == "computing" and record.step == 30 for record in said) > 2


def test_a_worker_for_whom_nothing_is_planned_works_under_nothing_at_all():
    assert type(conditions_of(planned(rule("drop")), 0)) is Conditions
    assert type(conditions_of(planned(), 1)) is Conditions
