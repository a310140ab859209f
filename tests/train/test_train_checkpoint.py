"""The files of a checkpoint that hold tensors; where they are kept is tested in tests/app/test_checkpoints.py."""

from pathlib import Path

import pytest
import torch

from pgczmq.config import OptimizerConfig
from pgczmq.train.optimizer import Learner
from pgczmq.train.task import load_task


@pytest.fixture
def learner() -> Learner:
    task = load_task("logistic-regression", {"samples": 100, "features": 3}, 1)
    made = Learner(task, config=OptimizerConfig(name="adam"), steps=10, seed=1)
    made.apply(0, [(0, 1.0, torch.ones(made.parameter_count).numpy(), b"")])
    return made


def test_they_are_ordinary_state_dicts(tmp_path: Path, learner: Learner) -> None:
    learner.write_files(tmp_path, learner.checkpoint_state())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.pt", "optimizer.pt"]
    model = torch.load(tmp_path / "model.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in model.items()} == {"weight": (2, 3), "bias": (2,)}
    optimizer = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    assert optimizer["name"] == "adam" and optimizer["state"]["exp_avg"].shape == (8,)


def test_what_is_written_is_the_state_at_the_time_it_was_taken(tmp_path: Path, learner: Learner) -> None:
    digest, state = learner.sha256(), learner.checkpoint_state()
    learner.apply(1, [(0, 1.0, torch.ones(8).numpy(), b"")])
    learner.write_files(tmp_path, state)
    assert torch.load(tmp_path / "optimizer.pt", weights_only=True)["state"]["step"] == 1
    assert torch.allclose(state.optimizer["state"]["exp_avg"], torch.tensor(0.1))
    learner.restore(tmp_path)
    assert learner.sha256() == digest
