import numpy as np
import pytest
import torch

from pgczmq.errors import ConfigError
from pgczmq.train.data import Partitions
from pgczmq.train.evaluate import Evaluator
from pgczmq.train.flat import build_model
from pgczmq.train.gradient import PartitionGradient
from pgczmq.train.task import Task, load_task

NONE = np.empty(0, np.uint8)
BOTH = [("adaptive-k-regression", 0.5), ("adaptive-k-batch-regression", 1.0)]


def arrays(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [m, d] and targets [m] of the training set, float64."""
    inputs, targets = task.train.batch(torch.arange(len(task.train)))
    return inputs.double().numpy(), targets.double().numpy()


def excess(task: Task, scale: float, weights: np.ndarray) -> float:
    """F(w) - F*, from the losses themselves."""
    inputs, targets = arrays(task)
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    residuals = (inputs @ weights - targets, inputs @ best - targets)
    now, least = (scale * np.mean(residual**2) for residual in residuals)
    return float(now - least)


@pytest.mark.parametrize(("name", "scale"), BOTH)
@pytest.mark.parametrize("distance", [1.0, 1e-1, 1e-2])
def test_held_out_loss_and_metric_are_the_excess_loss(name: str, scale: float, distance: float) -> None:
    task = load_task(name, {}, 3)
    inputs, targets = arrays(task)
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    away = np.random.default_rng(1).standard_normal(best.size)
    weights = (best + away * distance / np.sqrt(np.mean((inputs @ away) ** 2))).astype(np.float32)
    expected = excess(task, scale, weights.astype(np.float64))
    assert expected == pytest.approx(scale * distance**2, rel=0.1)  # the parameters are rounded
    loss, metric = Evaluator(task, 3).evaluate(weights, NONE)
    assert loss == metric == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "scale"), BOTH)
def test_training_begins_at_zero_on_the_papers_numbers(name: str, scale: float) -> None:
    task = load_task(name, {}, 1)
    inputs, targets = arrays(task)
    most, rows = (10, 2000) if scale == 0.5 else (100, 400)
    assert inputs.shape == (rows, 100) and inputs.min() == 1 and inputs.max() == most
    assert np.array_equal(inputs, np.round(inputs))
    weights, _ = build_model(task, 1).snapshot()
    assert weights.shape == (100,) and not weights.any()
    loss, _ = Evaluator(task, 1).evaluate(weights, NONE)
    assert loss == pytest.approx(excess(task, scale, np.zeros(100)), rel=1e-5)
    if scale == 1.0:
        assert set(targets) == set(range(1, 11))


def test_the_planted_model_is_what_the_best_parameters_come_near() -> None:
    inputs, targets = arrays(load_task("adaptive-k-regression", {}, 2))
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    residuals = inputs @ best - targets
    assert np.abs(best - np.round(best)).max() < 0.1 and np.round(best).min() >= 1 and np.round(best).max() <= 100
    assert np.mean(residuals**2) == pytest.approx(0.95, abs=0.1)  # 1 - d/m


def test_gradients_are_those_of_the_loss_of_the_paper() -> None:
    for name, scale in BOTH:
        task = load_task(name, {"samples": 60, "features": 4}, 1)
        cut = Partitions(60, 3, batch_size=20, sampler="fixed-batch", seed=1)
        gradient = PartitionGradient(task, partitions=cut, seed=1)
        weights, out = np.array([0.1, -0.2, 0.3, 0.0], np.float32), gradient.empty()
        gradient.load(weights, NONE)
        gradient.evaluate(0, 1, out=out)
        inputs, targets = (part[cut.minibatch(1, 0)] for part in arrays(task))
        expected = 2 * scale * inputs.T @ (inputs @ weights - targets) / 20
        assert out.numpy() == pytest.approx(expected, rel=1e-5)


def test_single_precision_follows_double_precision_down_to_the_noise() -> None:
    task = load_task("adaptive-k-regression", {"features": 10}, 1)
    inputs, targets = arrays(task)
    cut = Partitions(2000, 10, batch_size=200, sampler="fixed-batch", seed=1)
    gradient, evaluator = PartitionGradient(task, partitions=cut, seed=1), Evaluator(task, 1)
    single, double, rng = np.zeros(10, np.float32), np.zeros(10), np.random.default_rng(1)
    for step in range(500):
        chosen = rng.choice(10, 4, replace=False).tolist()
        gradient.load(single, NONE)
        parts = [gradient.empty() for _ in chosen]
        for worker, out in zip(chosen, parts, strict=True):
            gradient.evaluate(step, worker, out=out)
        single = single - np.float32(4e-3) * torch.stack(parts).mean(0).numpy()
        rows = np.concatenate([cut.indices(worker) for worker in chosen])
        double -= 4e-3 * inputs[rows].T @ (inputs[rows] @ double - targets[rows]) / len(rows)
    expected = excess(task, 0.5, double)
    assert 1e-6 < expected < 1e-2 < 1e6 < excess(task, 0.5, np.zeros(10))
    assert evaluator.evaluate(single, NONE)[0] == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("args", [{"samples": 10, "features": 11}, {"features": 0}])
@pytest.mark.parametrize(("name", "scale"), BOTH)
def test_problems_without_one_solution_are_refused(name: str, scale: float, args: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="features >= 1 and at least as many samples"):
        load_task(name, args, 1)
