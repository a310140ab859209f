"""Injected delays and the streams they come from are functions of their arguments alone."""

import numpy as np
import pytest

from pgczmq.core import seeds
from pgczmq.core.delays import ConstantDelay, ExponentialDelay, NoDelay, SomeWorkers


def test_no_delay_is_zero_and_a_constant_one_is_constant() -> None:
    assert {NoDelay().seconds(worker, 3, 1, 1.0) for worker in range(4)} == {0.0}
    assert {ConstantDelay(0.25).seconds(worker, step, 1, 0.5) for worker in range(3) for step in range(3)} == {0.25}


def test_an_exponential_delay_is_the_same_whoever_asks_and_whenever() -> None:
    one, other = ExponentialDelay(7, 0.2), ExponentialDelay(7, 0.2)
    forward = [one.seconds(worker, step, 1, 1.0) for worker in range(3) for step in range(5)]
    backward = [other.seconds(worker, step, 4, 0.2) for worker in (2, 1, 0) for step in (4, 3, 2, 1, 0)]
    assert forward == backward[::-1]
    assert len(set(forward)) == 15
    assert ExponentialDelay(8, 0.2).seconds(0, 0, 1, 1.0) != forward[0]


def test_exponential_delays_have_the_mean_the_spread_and_the_shift_asked_for() -> None:
    model = ExponentialDelay(1, mean=2.0, shift=0.5)
    drawn = np.array([model.seconds(worker, step, 1, 1.0) for worker in range(8) for step in range(500)])
    assert drawn.min() >= 0.5
    assert drawn.mean() == pytest.approx(2.5, rel=0.05)
    assert np.median(drawn) == pytest.approx(0.5 + 2 * np.log(2), rel=0.07)


def test_delays_of_two_workers_and_of_two_steps_are_unrelated() -> None:
    model = ExponentialDelay(1, mean=1.0)
    drawn = np.array([[model.seconds(worker, step, 1, 1.0) for step in range(600)] for worker in range(2)])
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.1
    assert abs(np.corrcoef(drawn[0, 1:], drawn[0, :-1])[0, 1]) < 0.1


def test_only_some_workers_are_slowed_and_those_as_the_inner_model_says() -> None:
    inner = ExponentialDelay(3, mean=1.0)
    model = SomeWorkers(inner, frozenset({1, 4}))
    for worker in range(6):
        expected = inner.seconds(worker, 9, 1, 1.0) if worker in {1, 4} else 0.0
        assert model.seconds(worker, 9, 1, 1.0) == expected


def test_streams_differ_by_seed_purpose_and_index_and_repeat_otherwise() -> None:
    asked = [(1, "epoch", 0), (2, "epoch", 0), (1, "delay", 0), (1, "epoch", 1), (1, "epoch", 0, 0)]
    drawn = [float(seeds.rng(*key).random()) for key in asked]
    assert len(set(drawn[:4])) == 4
    assert drawn == [float(seeds.rng(*key).random()) for key in asked]
    whole = [seeds.integer(*key) for key in asked]
    assert len(set(whole[:4])) == 4
    assert all(0 <= value < 2**63 for value in whole)
    assert whole == [seeds.integer(*key) for key in asked]


def test_an_index_more_is_another_stream_even_when_it_is_zero() -> None:
    assert seeds.rng(1, "code", 5).random() != seeds.rng(1, "code", 5, 0).random()
    assert seeds.integer(1, "code", 5) != seeds.integer(1, "code", 5, 0)
