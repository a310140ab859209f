"""Gradients shared by all workers of a simulation: the same bits as a real worker's, each evaluated once."""

from collections import Counter
from functools import cached_property

import numpy as np
import pytest
import torch
from sim_runs import scheme_of, simulate
from torch import Tensor

from pgczmq.config import OptimizerConfig
from pgczmq.core.delays import Failure
from pgczmq.core.policies import Plan
from pgczmq.core.schemes import SCHEMES, Scheme
from pgczmq.errors import PgcError
from pgczmq.sim.training import TimingOnly
from pgczmq.sim.virtual import Durations
from pgczmq.train.blocks import ByteArray
from pgczmq.train.data import Partitions
from pgczmq.train.gradient import Gradients, PartitionGradient
from pgczmq.train.optimizer import Learner
from pgczmq.train.shared import SharedTraining
from pgczmq.train.task import Task, load_task

WORKERS, BATCH, SEED = 6, 4, 1
PLAN = Plan(5)


class Counting(PartitionGradient):
    """Counts the evaluations of each (partition, step)."""

    def __init__(self, task: Task, partitions: Partitions) -> None:
        super().__init__(task, partitions=partitions, seed=SEED)
        self.evaluated: Counter[tuple[int, int]] = Counter()

    def evaluate(
        self, step: int, partition: int, batch_fraction: float = 1.0, *, out: Tensor
    ) -> tuple[float, ByteArray]:
        self.evaluated[partition, step] += 1
        return super().evaluate(step, partition, batch_fraction, out=out)


class RealWorker(Gradients):
    """A real worker's, with room for one message."""

    @cached_property
    def room(self) -> ByteArray:
        return np.empty(4 * self.parameter_count, np.uint8)

    def evaluate_here(self, step: int, place: int, batch_fraction: float = 1.0) -> float:
        return self.evaluate(step, place, batch_fraction, self.room)

    def message(self) -> tuple[bytes, float, bytes]:
        buffers = np.empty(self.buffer_bytes, np.uint8)
        norm = self.encode(self.room, buffers)
        return self.room.tobytes(), norm, buffers.tobytes()


class Listing(TimingOnly):
    """Lists what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def evaluate(self, worker: int, step: int, place: int, batch_fraction: float) -> float:
        self.calls.append(f"evaluate {worker}")
        return super().evaluate(worker, step, place, batch_fraction)

    def encode(self, worker: int) -> tuple[None, float]:
        self.calls.append(f"encode {worker}")
        return super().encode(worker)


class Parts:
    """A task and everything that computes it."""

    def __init__(self, scheme: Scheme, task: str = "linear-regression", **args: object) -> None:
        torch.set_num_threads(1)
        self.scheme = scheme
        self.task = load_task(task, args, SEED)
        self.cut = Partitions(len(self.task.train), scheme.workers, batch_size=BATCH, seed=SEED)
        self.learner = Learner(self.task, config=OptimizerConfig(lr=0.01), steps=100, seed=SEED)
        self.gradient = Counting(self.task, self.cut)
        rows = scheme.coefficients_NC.tolist()
        self.shared = SharedTraining(self.learner, self.gradient, held=scheme.placement.held, coefficients=rows)

    def real_worker(self, worker: int) -> RealWorker:
        held, row = self.scheme.placement.held[worker], self.scheme.coefficients_NC[worker].tolist()
        return RealWorker(self.task, held=held, coefficients=row, partitions=self.cut, seed=SEED)


def test_messages_have_the_bits_of_a_real_worker() -> None:
    parts = Parts(scheme_of("gc-cr", WORKERS, stragglers=2), "digits-cnn", dropout=0.3, batchnorm=True)
    real = parts.real_worker(3)
    for step, places in ((0, (0, 1, 2)), (1, (1,)), (2, (2, 0))):
        parts.shared.publish(step, step)
        real.load(*parts.learner.snapshot())
        for place in places:
            assert parts.shared.evaluate(3, step, place, 0.75) == real.evaluate_here(step, place, 0.75)
        (coded, buffers), norm = parts.shared.encode(3)
        assert (coded.tobytes(), norm, buffers.tobytes()) == real.message()
        assert parts.shared.apply(step, [(3, 1.0, (coded, buffers))], PLAN).finite


def test_a_message_of_one_gradient_has_the_bits_of_a_real_workers() -> None:
    parts = Parts(scheme_of("dgd", WORKERS), "digits-cnn")
    real = parts.real_worker(3)
    parts.shared.publish(0, 0)
    real.load(*parts.learner.snapshot())
    assert parts.shared.evaluate(3, 0, 0, 1.0) == real.evaluate_here(0, 0)
    (coded, buffers), norm = parts.shared.encode(3)
    assert parts.shared.apply(0, [(3, 0.5, (coded, buffers))], PLAN).finite
    assert (coded.tobytes(), norm, buffers.tobytes()) == real.message()


def test_everybody_evaluates_before_anybody_sends() -> None:
    training = Listing()
    simulate(scheme_of("dgd", 3), steps=2, training=training, durations=Durations())
    step = ["evaluate 0", "evaluate 1", "evaluate 2", "encode 0", "encode 1", "encode 2"]
    assert training.calls == step + step


def test_parameters_are_kept_as_long_as_somebody_works_on_them() -> None:
    parts = Parts(scheme_of("is-gc-cr", WORKERS))
    parts.shared.publish(0, 0)
    parts.shared.evaluate(0, 0, 0, 1.0)
    before = parts.real_worker(1)
    before.load(*parts.learner.snapshot())
    loss = before.evaluate_here(0, 0)
    parts.shared.evaluate(0, 0, 1, 1.0)
    parts.shared.apply(0, [(0, 1.0, parts.shared.encode(0)[0])], PLAN)
    parts.shared.publish(1, 0)
    assert parts.shared.evaluate(1, 0, 0, 1.0) == loss  # a slow worker, at parameters that are no more
    parts.shared.publish(2, 2)
    with pytest.raises(KeyError):
        parts.shared.evaluate(1, 1, 0, 1.0)


def test_a_worker_that_failed_has_nothing_to_send() -> None:
    parts = Parts(scheme_of("dgd", WORKERS))
    parts.shared.publish(0, 0)
    parts.shared.evaluate(2, 0, 0, 1.0)
    parts.shared.encode(2)
    parts.shared.forget(2)
    with pytest.raises(PgcError, match="worker 2 lacks some"):
        parts.shared.encode(2)


@pytest.mark.parametrize("on_new_step", ["skip", "abandon", "queue"])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_gradient_is_evaluated_once_whoever_holds_it(name: str, on_new_step: str) -> None:
    parts = Parts(scheme_of(name, WORKERS, stragglers=1, on_new_step=on_new_step))
    failures = [Failure(4, 3.0, 6.0)]
    run = simulate(parts.scheme, steps=25, training=parts.shared, failures=failures)
    assert run.ending.steps == 25 or run.ending.diverged
    assert set(parts.gradient.evaluated.values()) == {1}
    assert all(np.isfinite(step.loss) for step in run.steps)
    assert run.steps[0].bytes == len(run.steps[0].arrived) * parts.shared.message_bytes


def test_the_estimate_of_an_exact_scheme_is_the_mean_gradient() -> None:
    estimates = {}
    for name in ("dgd", "gc-fr", "gc-cr"):
        parts = Parts(scheme_of(name, WORKERS, stragglers=1))
        run = simulate(parts.scheme, steps=10, training=parts.shared)
        estimates[name] = [step.norm for step in run.steps]
    assert estimates["gc-fr"] == pytest.approx(estimates["dgd"], rel=1e-5)
    assert estimates["gc-cr"] == pytest.approx(estimates["dgd"], rel=1e-4)
