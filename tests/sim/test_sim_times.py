"""How long steps take in virtual time, against what can be computed."""

from collections.abc import Callable

import pytest
from sim_runs import scheme_of, simulate

from pgczmq.core.pipeline import DelaySeconds
from pgczmq.sim.virtual import Durations


def order_statistic(k: int, n: int, rate: float) -> float:
    """Mean of the k-th smallest of n independent exponential times: (H_n - H_{n-k}) / rate."""
    return sum(1 / i for i in range(n - k + 1, n + 1)) / rate


@pytest.mark.parametrize(
    ("workers", "k", "steps"),
    [
        (12, 1, 20_000),
        (12, 6, 8_000),
        (12, 9, 8_000),
        (12, 12, 8_000),
        (50, 10, 4_000),
        (50, 40, 2_500),
        (50, 50, 4_000),
    ],
)
def test_a_step_takes_the_order_statistic_of_its_delays(workers: int, k: int, steps: int) -> None:
    scheme = scheme_of("is-sgd", workers, k=k, on_new_step="abandon")
    run = simulate(scheme, steps=steps, with_records=False)
    assert run.ending.seconds / steps == pytest.approx(order_statistic(k, workers, 1.0), rel=0.01)


def test_an_answer_comes_after_evaluations_delay_and_communication() -> None:
    durations = Durations(evaluation=lambda *_: 0.25, delay=lambda *_: 0.5, communication=lambda *_: 0.125)
    run = simulate(scheme_of("pgc-cr", 4), steps=5, durations=durations)
    # two partitions to warm up, then one a step
    assert [step.closed_at - step.published_at for step in run.steps] == [1.125, 0.875, 0.875, 0.875, 0.875]
    first = run.latencies[0]
    assert (first.wait, first.compute, first.delay, first.send) == (0.0, 0.5, 0.5, 0.125)
    assert run.ending.seconds == 1.125 + 4 * 0.875


def slow(worker: int, seconds: float) -> DelaySeconds:
    return lambda asked, step, evaluated, batch_fraction: seconds if asked == worker else 1.0


@pytest.mark.parametrize(("on_new_step", "answered"), [("skip", [0, 2, 4]), ("abandon", []), ("queue", [0, 1, 2])])
def test_a_worker_that_is_behind(on_new_step: str, answered: list[int]) -> None:
    """Worker 2 takes 2.5 steps: it skips to the newest, drops what it does, or falls back for ever."""
    scheme = scheme_of("is-sgd", 3, on_new_step=on_new_step)
    run = simulate(scheme, steps=9, durations=Durations(delay=slow(2, 2.5)))
    assert [record.step for record in run.latencies if record.worker == 2] == answered
    assert run.ending.seconds == 9.0
    assert len(run.events("late")) == len(answered)


def test_a_queue_grows_without_bound() -> None:
    scheme = scheme_of("is-sgd", 3, on_new_step="queue")
    run = simulate(scheme, steps=100, durations=Durations(delay=slow(2, 2.5)))
    waits = [record.wait for record in run.latencies if record.worker == 2]
    assert waits == [1.5 * number for number in range(len(waits))]
    assert len(waits) == 40


@pytest.mark.parametrize("scheme", ["pgc-cr", "gc-cr", "pgc-fr", "is-gc-cr"])
def test_deterministic_mode_takes_the_planned_times(scheme: str) -> None:
    planned: Callable[..., float] = lambda worker, step, evaluated, batch_fraction: 1.0 + worker  # noqa: E731
    deterministic = simulate(
        scheme_of(scheme, 12, stragglers=2),
        steps=20,
        durations=Durations(),
        delay=type("Planned", (), {"seconds": staticmethod(planned)})(),
        rules={"deterministic": True},
    )
    assert [step.closed_at - step.published_at for step in deterministic.steps] == [10.0] * 20
    assert {step.missing for step in deterministic.steps} == {(10, 11)}
    assert deterministic.ending.seconds == 200.0
