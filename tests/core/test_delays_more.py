"""Heavy tails, slow workers, chains, parts and failures: each a function of its arguments, with the law it states."""

from dataclasses import replace

import numpy as np
import pytest

from pgczmq.core import draws
from pgczmq.core.delays import (
    BimodalDelay,
    ConstantDelay,
    DelayModel,
    ExponentialDelay,
    Failure,
    ParetoDelay,
    Proportional,
    SomeWorkers,
    TwoParts,
    slow_workers,
)
from pgczmq.core.markov import MarkovDelay
from pgczmq.core.traces import Recording, TraceDelay, replay
from pgczmq.errors import ConfigError

N = 12
TRACE = replay(
    [Recording(0.0, np.random.default_rng(0).gamma(2, 1, (5, N))), Recording(0.5, np.full((3, N), 4.0))],
    workers=N,
    seed=3,
)
MODELS: dict[str, DelayModel] = {
    "exponential": ExponentialDelay(1, 0.2, 0.1),
    "pareto": ParetoDelay(1, 0.2, 2.5),
    "bimodal": BimodalDelay(1, 0.2, 10, frozenset({3})),
    "markov": MarkovDelay(1, 0.2, 10, 0.05, 0.2),
    "some": SomeWorkers(ParetoDelay(1, 0.2, 2.5), frozenset({1, 2})),
    "parts": TwoParts(Proportional(ExponentialDelay(1, 0.2, stream="a")), ExponentialDelay(1, 0.1, stream="b")),
    "trace": TRACE,
}


def drawn(model: DelayModel, steps: int, workers: int = N) -> np.ndarray:
    return np.array([[model.seconds(worker, step, 1, 1.0) for worker in range(workers)] for step in range(steps)])


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_delay_depends_on_nothing_but_its_arguments(model: DelayModel) -> None:
    keys = [(worker, step) for worker in range(4) for step in (0, 1, 63, 64, 65, 200, 1000)]
    forward = {key: model.seconds(*key, 1, 1.0) for key in keys}
    draws._block.cache_clear()
    assert {key: model.seconds(*key, 1, 1.0) for key in reversed(keys)} == forward
    assert all(seconds >= 0 for seconds in forward.values())


@pytest.mark.parametrize("name", ["exponential", "pareto", "bimodal", "markov"])
def test_nothing_scales_with_the_work_unless_it_says_so(name: str) -> None:
    model = MODELS[name]
    assert model.seconds(3, 7, 1, 1.0) == model.seconds(3, 7, 4, 0.2)


@pytest.mark.parametrize("name", ["exponential", "pareto", "markov"])
def test_another_seed_or_another_stream_gives_other_numbers(name: str) -> None:
    model = MODELS[name]
    for other in (replace(model, seed=2), replace(model, stream="other")):  # type: ignore[type-var]
        assert abs(np.corrcoef(drawn(model, 200).ravel(), drawn(other, 200).ravel())[0, 1]) < 0.1


# ---------------------------------------------------------------- laws


def test_pareto_has_the_mean_and_the_tail_asked_for() -> None:
    sample = drawn(ParetoDelay(1, mean=3.0, shape=3.0), 4000)
    least = 2.0
    assert sample.min() >= least
    assert sample.mean() == pytest.approx(3.0, rel=0.03)
    for times in (1.5, 2.0, 4.0):
        assert (sample > times * least).mean() == pytest.approx(times**-3, rel=0.12)


def test_a_pareto_without_a_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match="shapes above 1 only: got shape=1"):
        ParetoDelay(1, 1.0, 1.0)


def test_the_slow_workers_of_a_bimodal_run_stay_slow() -> None:
    slow = slow_workers(5, range(N), 0.25)
    means = drawn(BimodalDelay(5, 0.1, 8.0, slow), 2000).mean(axis=0)
    assert len(slow) == 3
    for worker in range(N):
        assert means[worker] == pytest.approx(0.8 if worker in slow else 0.1, rel=0.12)
    assert slow_workers(5, range(N), 0.25) == slow
    assert len({slow_workers(seed, range(N), 0.25) for seed in range(20)}) > 5
    assert slow_workers(1, [2, 5], 0.5) <= {2, 5}
    assert slow_workers(1, range(N), 0.0) == frozenset()


@pytest.mark.parametrize(("p", "q"), [(0.05, 0.2), (0.5, 0.5), (0.01, 0.02)])
def test_the_chain_stays_and_leaves_as_often_as_asked(p: float, q: float) -> None:
    model = MarkovDelay(1, 1.0, 10, p, q)
    steps, workers = 2000, 40
    slow = np.array([[model.is_slow(worker, step) for worker in range(workers)] for step in range(steps)])
    share = p / (p + q)
    spread = 4 * (share * (1 - share) * (2 - p - q) / (p + q) / slow.size) ** 0.5  # of the mean of a correlated chain
    assert abs(slow.mean() - share) < spread
    before, after = slow[:-1], slow[1:]
    assert after[~before].mean() == pytest.approx(p, rel=0.15)
    assert (~after[before]).mean() == pytest.approx(q, rel=0.15)


def test_the_chain_is_the_one_that_is_run_forward_step_by_step() -> None:
    model = MarkovDelay(9, 1.0, 10, 0.003, 0.01)  # undecided for hundreds of steps: over many blocks
    for worker in range(3):
        state = draws.uniform(9, "delay.state", worker, 0) <= 0.003 / 0.013
        for step in range(1000):
            if step:
                number = draws.uniform(9, "delay.state", worker, step)
                state = number <= (1 - 0.01 if state else 0.003)
            assert model.is_slow(worker, step) == state


def test_the_chain_begins_in_its_stationary_state() -> None:
    model = MarkovDelay(2, 1.0, 10, 0.1, 0.3)
    assert np.mean([model.is_slow(worker, 0) for worker in range(4000)]) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("p", "q"), [(0.0, 0.5), (0.5, 0.0), (0.7, 0.4)])
def test_a_chain_that_never_changes_or_alternates_is_refused(p: float, q: float) -> None:
    with pytest.raises(ConfigError, match=f"turns_slow={p:g}, recovers={q:g}"):
        MarkovDelay(1, 1.0, 10, p, q)


# ---------------------------------------------------------------- parts, work, failures


def test_computation_is_proportional_to_partitions_and_batch_and_communication_is_not() -> None:
    model = TwoParts(Proportional(ExponentialDelay(1, 2.0, stream="a")), ConstantDelay(0.5))
    whole = model.parts(3, 8, 1, 1.0)
    assert whole == (ExponentialDelay(1, 2.0, stream="a").seconds(3, 8, 1, 1.0), 0.5)
    assert model.parts(3, 8, 4, 0.25) == (pytest.approx(whole[0]), 0.5)
    assert model.parts(3, 8, 3, 1.0) == (pytest.approx(3 * whole[0]), 0.5)
    assert model.seconds(3, 8, 3, 0.5) == pytest.approx(1.5 * whole[0] + 0.5)


def test_a_worker_is_gone_from_its_failure_to_its_return() -> None:
    failure = Failure(2, 10.0, 20.0)
    assert [failure.covers(2, at) for at in (9.9, 10.0, 19.9, 20.0)] == [False, True, True, False]
    assert not failure.covers(3, 15.0)
    assert Failure(2, 10.0).covers(2, 1e9)
    with pytest.raises(ConfigError, match="down_at=5, back_at=5"):
        Failure(1, 5.0, 5.0)


# ---------------------------------------------------------------- traces


def recordings() -> list[Recording]:
    rng = np.random.default_rng(1)
    return [Recording(load, base + rng.gamma(2, 0.1, (30, 20))) for load, base in ((0.0, 1.0), (0.5, 2.0), (1.0, 4.0))]


def test_at_a_recorded_load_whole_rounds_are_replayed() -> None:
    made = recordings()
    model = replay(made, workers=20, seed=1)
    rounds = {tuple(row) for row in made[1].seconds_RW.tolist()}
    seen = [tuple(model.seconds(worker, step, 10, 1.0) for worker in range(20)) for step in range(200)]
    assert all(min(max(abs(a - b) for a, b in zip(row, one, strict=True)) for row in rounds) < 1e-12 for one in seen)
    assert len({one[0] for one in seen}) == pytest.approx(30, abs=1)  # drawn with replacement: nearly all of them


def test_means_are_interpolated_between_loads_worker_by_worker() -> None:
    made = recordings()
    model = replay(made, workers=20, seed=1)
    for evaluated, fraction, low, share in ((5, 1.0, 0, 0.5), (15, 1.0, 1, 0.5), (10, 0.4, 0, 0.4), (1, 1.0, 0, 0.1)):
        for worker in (0, 7):
            below, above = (one.seconds_RW[:, worker].mean() for one in made[low : low + 2])
            expected = below + share * (above - below)
            sampled = [model.seconds(worker, step, evaluated, fraction) for step in range(3000)]
            assert np.mean(sampled) == pytest.approx(expected, abs=0.02)


def test_the_load_of_a_partition_is_one_over_the_partitions_of_the_run() -> None:
    made = [Recording(0.0, np.zeros((1, 20))), Recording(1.0, np.full((1, 20), 8.0))]
    assert replay(made, workers=4, seed=1).seconds(0, 0, 1, 1.0) == pytest.approx(2.0)
    assert replay(made, workers=16, seed=1).seconds(0, 0, 1, 1.0) == pytest.approx(0.5)
    assert replay([*made[:1], Recording(0.25, np.full((1, 20), 2.0))], workers=4, seed=1).seconds(
        0, 0, 3, 1.0
    ) == pytest.approx(6.0)  # beyond the largest load


def test_a_single_recording_does_not_scale_and_nothing_is_negative() -> None:
    model = replay([Recording(0.02, np.array([[0.5, 3.0], [1.5, 1.0]]))], workers=2, seed=1)
    assert model.seconds(0, 5, 1, 1.0) == model.seconds(0, 5, 2, 0.1)
    steep = replay([Recording(0.0, np.full((2, 1), 0.1)), Recording(1.0, np.array([[0.1], [9.9]]))], workers=1, seed=1)
    assert min(steep.seconds(0, step, 1, 0.6) for step in range(50)) == 0.0


def test_fewer_workers_are_a_subset_that_the_seed_chooses() -> None:
    made = [Recording(0.0, np.arange(256.0)[None, :])]

    def chosen(seed: int) -> list[float]:
        model = replay(made, workers=12, seed=seed)
        return [model.seconds(worker, 0, 1, 1.0) for worker in range(12)]

    assert chosen(1) == chosen(1) == sorted(set(chosen(1)))
    assert chosen(1) != chosen(2)
    everybody = replay(made, workers=256, seed=1)
    assert [everybody.seconds(worker, 0, 1, 1.0) for worker in range(256)] == list(range(256))


def test_what_cannot_be_replayed_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"recorded on 20 workers: got workers=21\. The most is 20\."):
        replay(recordings(), workers=21, seed=1)
    with pytest.raises(ConfigError, match=r"load 0\.5 of 20 workers, load 0\.5 of 3 workers"):
        replay([recordings()[1], Recording(0.5, np.ones((1, 3)))], workers=2, seed=1)
    for bad in (np.ones((0, 3)), np.array([[1.0, np.nan]]), np.array([[-1.0]]), np.ones(3)):
        with pytest.raises(ConfigError, match="at least one round"):
            Recording(0.0, bad)


def test_a_trace_delay_is_a_delay_model() -> None:
    model: DelayModel = TRACE
    assert isinstance(model, TraceDelay)
