import json
from pathlib import Path

import pytest
import torch

from pgczmq.config import OptimizerConfig
from pgczmq.errors import PgcError
from pgczmq.train import checkpoint
from pgczmq.train.optimizer import Learner
from pgczmq.train.task import load_task


@pytest.fixture
def learner() -> Learner:
    task = load_task("logistic-regression", {"samples": 100, "features": 3}, 1)
    made = Learner(task, config=OptimizerConfig(name="adam"), steps=10, seed=1)
    made.apply(0, [(0, 1.0, torch.ones(made.parameter_count).numpy(), b"")])
    return made


def write(directory: Path, learner: Learner, *steps: int, keep: int | None = None) -> None:
    for step in steps:
        checkpoint.write(directory, step, learner=learner.checkpoint_state(), state={"step": step}, keep=keep)


def test_a_checkpoint_is_four_ordinary_files(tmp_path: Path, learner: Learner) -> None:
    path = checkpoint.write(tmp_path / "all", 200, learner=learner.checkpoint_state(), state={"step": 200, "run": "x"})
    assert path.name == "step_000200"
    assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "model.pt", "optimizer.pt", "state.json"]
    model = torch.load(path / "model.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in model.items()} == {"weight": (2, 3), "bias": (2,)}
    optimizer = torch.load(path / "optimizer.pt", weights_only=True)
    assert optimizer["name"] == "adam" and optimizer["state"]["exp_avg"].shape == (8,)
    assert checkpoint.read_state(path) == {"step": 200, "run": "x"}
    assert [file.name for file in path.parent.iterdir()] == ["step_000200"]


def test_what_is_written_is_the_state_at_the_time_it_was_taken(tmp_path: Path, learner: Learner) -> None:
    digest, state = learner.sha256(), learner.checkpoint_state()
    learner.apply(1, [(0, 1.0, torch.ones(8).numpy(), b"")])
    path = checkpoint.write(tmp_path, 1, learner=state, state={})
    assert torch.load(path / "optimizer.pt", weights_only=True)["state"]["step"] == 1
    assert torch.allclose(state.optimizer["state"]["exp_avg"], torch.tensor(0.1))
    learner.restore(path)
    assert learner.sha256() == digest


def test_only_the_newest_are_kept(tmp_path: Path, learner: Learner) -> None:
    write(tmp_path, learner, 100, 200, 1_000_000, 300, keep=2)
    # Those of more steps are of before a resume, and not this run's to remove.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000200", "step_000300", "step_1000000"]
    write(tmp_path, learner, 1_000_001, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step_1000001"]


@pytest.mark.parametrize("name", ["model.pt", "optimizer.pt", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_found_and_the_one_before_is_taken(tmp_path: Path, learner: Learner, name: str, damage: str) -> None:
    write(tmp_path, learner, 1, 2)
    file = tmp_path / "step_000002" / name
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:middle])
    else:
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(PgcError):
        checkpoint.verify(tmp_path / "step_000002")
    found = checkpoint.newest(tmp_path)
    assert found.path == tmp_path / "step_000001"
    assert len(found.damaged) == 1 and "step_000002 is damaged" in found.damaged[0]
    if name != "manifest.json":
        assert name in found.damaged[0]
    with pytest.raises(PgcError, match="damaged"):
        learner.restore(tmp_path / "step_000002")


def test_a_write_that_was_killed_is_not_found_and_is_cleared_away(tmp_path: Path, learner: Learner) -> None:
    write(tmp_path, learner, 1)
    (tmp_path / "step_000001").rename(tmp_path / ".partial-step_000001")
    assert checkpoint.newest(tmp_path) == checkpoint.Newest(None, ())
    write(tmp_path, learner, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000002"]


def test_a_step_may_be_written_again(tmp_path: Path, learner: Learner) -> None:
    write(tmp_path, learner, 1)
    (tmp_path / "step_000001" / "model.pt").write_bytes(b"")
    write(tmp_path, learner, 1)
    assert checkpoint.newest(tmp_path) == checkpoint.Newest(tmp_path / "step_000001", ())
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "never") == checkpoint.Newest(None, ())


def test_the_manifest_is_json(tmp_path: Path, learner: Learner) -> None:
    write(tmp_path, learner, 1)
    manifest = json.loads((tmp_path / "step_000001" / "manifest.json").read_text())
    assert set(manifest) == set(checkpoint.FILES)
    assert all(len(entry["sha256"]) == 64 and entry["size"] > 0 for entry in manifest.values())
