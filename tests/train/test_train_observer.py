"""The learner computes what a policy reads, right, and nothing else."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pgczmq.config import OptimizerConfig
from pgczmq.core.policies import Needs, Plan
from pgczmq.train import blocks
from pgczmq.train.data import ArraySamples
from pgczmq.train.optimizer import Learner, Message
from pgczmq.train.task import Task

P = 3


def learner(needs: Needs | None, name: str = "sgd") -> Learner:
    task = Task(lambda: nn.Linear(P - 1, 1), ArraySamples(torch.zeros(4, P - 1), torch.zeros(4)))
    config = OptimizerConfig.model_validate({"name": name, "lr": 0.1})
    return Learner(task, config=config, steps=100, seed=3, needs=needs)


def messages(vector: np.ndarray) -> list[Message]:
    return [(0, 0.5, vector, b""), (1, 0.5, vector, b"")]


def gradients(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).standard_normal((count, P)).astype(np.float32))


@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_inner_product_is_with_the_estimate_lag_updates_ago(lag: int, name: str) -> None:
    one = learner(Needs(lag=lag), name)
    given = gradients(10)
    for step, vector in enumerate(given):
        seen = one.apply(step, messages(vector)).statistics
        assert seen is not None
        if step < lag:
            assert seen.inner is None
        else:
            assert seen.inner == pytest.approx(float(vector.astype(np.float64) @ given[step - lag].astype(np.float64)))
        assert seen.norm == pytest.approx(float(np.linalg.norm(vector)), rel=1e-6)
        assert seen.distance is None


def test_folding_for_the_next_step_leaves_the_estimates_that_are_kept_alone() -> None:
    folding, plain = learner(Needs(lag=2)), learner(Needs(lag=2))
    for step, vector in enumerate(gradients(8)):
        for worker in range(2):
            folding.fold(step, [(worker, vector)])
        assert folding.apply(step, messages(vector)).statistics == plain.apply(step, messages(vector)).statistics


def test_an_estimate_that_was_not_applied_is_not_one_of_them() -> None:
    one = learner(Needs(lag=1))
    given = gradients(3)
    one.apply(0, messages(given[0]))
    spoiled = one.apply(1, messages(np.array([1, math.nan, 1], np.float32)))
    assert not spoiled.finite and spoiled.statistics is None
    seen = one.apply(1, messages(given[1])).statistics
    assert seen is not None and seen.inner == pytest.approx(float(given[1] @ given[0]), rel=1e-5)


def test_the_distance_is_from_where_the_plan_began_and_only_where_it_is_read() -> None:
    one = learner(Needs(distance=True))
    plans = [Plan(1)] * 4 + [Plan(2)] * 4
    reference = one.snapshot()[0]
    read = []
    for step, (vector, plan) in enumerate(zip(gradients(8), plans, strict=True)):
        if step == 4:
            reference = one.snapshot()[0]
        seen = one.apply(step, messages(vector), plan).statistics
        assert seen is not None and seen.inner is None
        if seen.distance is not None:
            moved = one.snapshot()[0].astype(np.float64) - reference
            assert seen.distance == pytest.approx(float(moved @ moved), rel=1e-12)
            read.append(step)
    assert read == [0, 1, 2, 3, 4, 5, 6, 7]  # after 1, 2, 3 and 4 steps of each plan
    more = [one.apply(8 + extra, messages(vector), Plan(2)).statistics for extra, vector in enumerate(gradients(4))]
    assert [seen is not None and seen.distance is not None for seen in more] == [False, True, False, True]  # 6 and 8


def test_observing_changes_no_bit_and_a_fixed_policy_is_not_observed() -> None:
    plain, observed = learner(None), learner(Needs(lag=4, distance=True))
    for step, vector in enumerate(gradients(9)):
        assert plain.apply(step, messages(vector)).statistics is None
        observed.apply(step, messages(vector), Plan(1))
    assert plain.sha256() == observed.sha256()
    assert plain.checkpoint_state().optimizer["observed"] == {}


@pytest.mark.parametrize("needs", [Needs(lag=2), Needs(distance=True)])
def test_a_resumed_run_is_observed_as_if_it_had_never_stopped(needs: Needs, tmp_path: Path) -> None:
    plans = [Plan(1)] * 3 + [Plan(2)] * 20
    given = gradients(16)

    def steps(one: Learner, numbers: range) -> list[object]:
        return [one.apply(step, messages(given[step]), plans[step]).statistics for step in numbers]

    whole = learner(needs)
    steps(whole, range(6))
    whole.write_files(tmp_path, whole.checkpoint_state())
    expected = steps(whole, range(6, 16))
    resumed = learner(needs)
    resumed.restore(tmp_path)
    assert steps(resumed, range(6, 16)) == expected


def test_products_and_distances_do_not_depend_on_where_the_memory_is() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 150_001)).astype(np.float32)
    shifted = np.empty(one.size + 1, np.float32)[1:]
    shifted[:] = one
    assert (
        blocks.inner(shifted, other)
        == blocks.inner(one, other)
        == pytest.approx(float(one.astype(np.float64) @ other.astype(np.float64)))
    )
    difference = one.astype(np.float64) - other
    assert blocks.squared_distance(one, other) == pytest.approx(float(difference @ difference))
    assert blocks.squared_distance(shifted, one) == 0.0
