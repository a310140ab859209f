"""Whole runs of every scheme over real sockets, recomputed independently from their records."""

import dataclasses

import numpy as np
import pytest
from cluster import Cluster, both_payloads, rules, run, scheme
from numpy_task import target

from pgczmq.core.delays import ExponentialDelay
from pgczmq.core.schemes import SCHEMES
from pgczmq.net import combiner

WORKERS = 8
STEPS = 30


def build(name):
    settings = {"stragglers": 1}
    if name.startswith("is-gc") or "gc" in name:
        settings["load"] = 2
    if name == "is-gc-hr":
        settings |= {"groups": 4, "local_load": 1}
    return scheme(name, WORKERS, **settings)


def recomputed(cluster):
    """The parameters from weights and ages in the records alone, with gradients recomputed in NumPy."""
    placement, coefficients = cluster.scheme.placement, cluster.scheme.coefficients_NC.astype(np.float32)
    params = np.zeros(cluster.size, dtype=np.float32)
    history = []
    for record in cluster.steps:
        history.append(params.copy())
        estimate = np.zeros_like(params)
        for worker, weight, ages in zip(record.used, record.weights, record.ages, strict=True):
            message = np.zeros_like(params)
            for place, partition in enumerate(placement.held[worker]):
                gradient = history[record.step - ages[place]] - target(partition, cluster.size)
                message += coefficients[worker, place] * gradient
            estimate += np.float32(weight) * message
        params = params - np.float32(cluster.compute.lr) * estimate
    return params


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCHEMES)
@both_payloads
async def test_every_scheme_finishes_and_applies_each_step_exactly_once(name, payload):
    cluster = Cluster(build(name), rules(STEPS, eval_every=10, checkpoint_every=10), payload=payload)
    ending = await run(cluster)
    assert (ending.exit_code, ending.reason, ending.steps) == (0, "done", STEPS)
    assert [step for step, _ in cluster.compute.applied] == list(range(STEPS))
    assert [record.step for record in cluster.steps] == list(range(STEPS))
    assert cluster.evaluated == [10, 20, 30]
    assert cluster.saved == [10, 20, 30]
    for record, (_, used) in zip(cluster.steps, cluster.compute.applied, strict=True):
        assert record.used == used
        assert set(record.used) <= set(record.arrived)
        assert sorted([*record.arrived, *record.missing]) == list(range(WORKERS))
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["dgd", "gc-fr", "gc-cr"])
async def test_exact_schemes_do_what_one_process_does(name):
    cluster = Cluster(build(name), rules(STEPS))
    await run(cluster)
    params = np.zeros(cluster.size)
    mean = np.mean([target(partition, cluster.size) for partition in range(WORKERS)], axis=0, dtype=np.float64)
    for _ in range(STEPS):
        params -= cluster.compute.lr * (params - mean)
    assert np.allclose(cluster.compute.params, params, atol=1e-4)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "deterministic"), [("dgd", False), ("dgd", True), ("gc-fr", False), ("gc-cr", False)])
async def test_the_master_adds_up_early_what_its_scheme_allows(name, deterministic, monkeypatch):
    monkeypatch.setattr(combiner, "FOLD_TOGETHER", 2)
    monkeypatch.setattr(combiner, "QUIET_SECONDS", 0.0)
    cluster = Cluster(build(name), rules(STEPS, deterministic=deterministic))
    await run(cluster, seconds=lambda worker: 0.05 if worker >= WORKERS - 2 else 0.0)
    folded = cluster.compute.folded
    assert len(set(folded)) == len(folded)
    if name == "gc-cr" or deterministic:
        assert folded == []
    if name == "dgd" and not deterministic:
        for step in range(STEPS):
            assert len([worker for at, worker in folded if at == step]) >= 2, "two others wait for the slow ones"
    if name == "gc-fr":
        groups = [(step, worker // 2) for step, worker in folded]
        assert len(set(groups)) == len(groups) > 0, "one of each group, however many came"


@pytest.mark.timeout(60)
async def test_every_answer_is_counted_once_in_the_latencies():
    cluster = Cluster(build("pgc-cr"), rules(STEPS))
    ending = await run(cluster)
    pairs = [(record.worker, record.step) for record in cluster.latencies]
    assert len(pairs) == len(set(pairs)) == cluster.engine.messages
    late = [record for record in cluster.latencies if record.outcome == "late"]
    # Also those that came while their step was being applied, although it was still the newest.
    assert len(late) == cluster.engine.late == len(cluster.events("late"))
    assert ending.late_fraction == len(late) / len(pairs)


# ---------------------------------------------------------------- deterministic mode


def planned(steps=20):
    return Cluster(build("pgc-cr"), rules(steps, deterministic=True, seed=3), delay=ExponentialDelay(3, 0.5))


@pytest.mark.timeout(60)
async def test_deterministic_runs_agree_to_the_bit_whatever_order_workers_come_in():
    first, second, third = planned(), planned(), planned()
    await run(first)
    await run(second, order=reversed(range(WORKERS)))
    # The fast ones in reality are not the fast ones of the plan.
    await run(third, seconds=lambda worker: 0.002 * (worker % 3))
    assert first.compute.sha256() == second.compute.sha256() == third.compute.sha256()

    def timeless(cluster):
        keep = ("step", "loss", "arrived", "used", "spare", "missing", "weights", "ages", "norm")
        return [{name: value for name, value in dataclasses.asdict(s).items() if name in keep} for s in cluster.steps]

    assert timeless(first) == timeless(second) == timeless(third)


@pytest.mark.timeout(60)
async def test_the_planned_times_decide_who_is_used():
    cluster = planned(steps=5)
    await run(cluster)
    for record in cluster.steps:
        delays = {worker: cluster.delay.seconds(worker, record.step, 1, 1.0) for worker in range(WORKERS)}
        slowest = max(delays, key=delays.__getitem__)
        assert record.missing == (slowest,)
        assert record.arrived == tuple(sorted(set(range(WORKERS)) - {slowest}, key=delays.__getitem__))
        assert record.closed_at - record.published_at == pytest.approx(max(delays[w] for w in record.arrived))
    late = {(event.worker, event.step) for event in cluster.events("late")}
    assert late == {(record.missing[0], record.step) for record in cluster.steps}
