"""The trained weights of exact schemes, through real processes, against single-process training."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pgczmq.core import seeds
from pgczmq.train.data import Partitions
from pgczmq.train.flat import build_model
from pgczmq.train.task import load_task

STEPS, WORKERS, BATCH, LR, SEED = 50, 8, 21, 0.05, 1
EXACT = (
    "deterministic=true",
    f"steps={STEPS}",
    "task.args.dropout=0.2",
    "task.args.augment=true",
    "eval.every=0",
)


def weights(result: dict[str, Any]) -> np.ndarray:
    """All parameters of the final checkpoint, flat."""
    path = Path(result["run"]) / "checkpoints" / f"step_{STEPS:06d}" / "model.pt"
    state = torch.load(path, weights_only=True)
    return np.concatenate([tensor.numpy().ravel() for tensor in state.values()])


def single_process() -> tuple[np.ndarray, np.ndarray]:
    """Initial and final parameters of a plain loop over the same minibatches, one partition after the other."""
    task = load_task("digits-cnn", {"dropout": 0.2, "augment": True}, SEED)
    module = build_model(task, SEED).module
    initial = flatten(module)
    cut = Partitions(len(task.train), WORKERS, batch_size=BATCH, seed=SEED)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    generator = torch.Generator()
    for step in range(STEPS):
        optimizer.zero_grad()
        for partition in range(WORKERS):
            raw, target = task.train.batch(torch.from_numpy(cut.minibatch(partition, step)))
            generator.manual_seed(seeds.integer(SEED, "augment", partition, step))
            inputs = task.augment(task.transform(raw), generator)
            torch.manual_seed(seeds.integer(SEED, "dropout", partition, step))
            (task.loss(module(inputs), target) / WORKERS).backward()
        optimizer.step()
    return initial, flatten(module)


def flatten(module: torch.nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy().copy()


@pytest.fixture(scope="module")
def reference() -> tuple[np.ndarray, np.ndarray]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return single_process()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("scheme", ["dgd", "gc-fr", "gc-cr"])
def test_an_exact_scheme_trains_the_weights_of_a_single_process(
    scheme: str, pgc_local: Callable[..., dict[str, Any]], reference: tuple[np.ndarray, np.ndarray]
) -> None:
    initial, final = reference
    trained = weights(pgc_local(*EXACT, f"scheme.name={scheme}"))
    moved = np.linalg.norm(final - initial)
    assert moved > 0.1
    assert np.linalg.norm(trained - final) <= 1e-5 * moved


def test_two_runs_of_dgd_give_the_same_bits(pgc_local: Callable[..., dict[str, Any]]) -> None:
    first, second = (pgc_local(*EXACT, "scheme.name=dgd") for _ in range(2))
    assert first["weights_sha256"] == second["weights_sha256"]
    assert first["weights_sha256"] == hashlib.sha256(weights(first).tobytes()).hexdigest()


def test_planned_stragglers_decide_and_two_runs_agree(pgc_local: Callable[..., dict[str, Any]]) -> None:
    slow = (*EXACT, "scheme.name=pgc-cr", "delay.model=exponential", "delay.mean=5")
    first, second = (pgc_local(*slow) for _ in range(2))
    assert first["weights_sha256"] == second["weights_sha256"]
    assert first["late_fraction"] == pytest.approx(1 / WORKERS)  # one straggler a step; nothing is slept
