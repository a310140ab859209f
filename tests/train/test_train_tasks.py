import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from roomed import Roomed

from pgczmq.config import OptimizerConfig
from pgczmq.errors import ConfigError
from pgczmq.train.augment import random_crop, random_flip
from pgczmq.train.data import Partitions, hold
from pgczmq.train.evaluate import Evaluator
from pgczmq.train.folder import FolderSamples
from pgczmq.train.optimizer import Learner
from pgczmq.train.task import TASKS, Task, load_task

TINY = {"dataset": "generated", "samples": 16, "image_size": 16}
CASES: list[tuple[str, dict[str, Any], float, int]] = [
    ("linear-regression", {"samples": 500, "features": 5}, 0.1, 20),
    ("logistic-regression", {"samples": 500, "features": 5}, 0.5, 20),
    ("adaptive-k-regression", {"samples": 500, "features": 5}, 0.001, 20),
    ("adaptive-k-batch-regression", {"samples": 500, "features": 5}, 1e-5, 20),
    ("digits-mlp", {}, 0.5, 20),
    ("digits-cnn", {}, 0.2, 20),
    ("digits-cnn", {"dropout": 0.2, "augment": True, "batchnorm": True}, 0.2, 20),
    ("resnet18", {**TINY, "augment": False}, 0.02, 6),
    ("resnet18-cifar", {**TINY, "augment": False}, 0.02, 4),
]
METRIC_IS_LOSS = {"adaptive-k-regression", "adaptive-k-batch-regression"}
"""The papers' regressions: of them alone the metric is no accuracy."""


@pytest.mark.parametrize(("name", "args", "rate", "steps"), CASES)
def test_built_in_tasks_train(name: str, args: dict[str, Any], rate: float, steps: int) -> None:
    task = load_task(name, args, 1)
    batch = min(32, len(task.train) // 2)
    cut = Partitions(len(task.train), 2, batch_size=batch, sampler="fixed-batch", seed=1)
    gradients = Roomed(task, held=[0], coefficients=[1.0], partitions=cut, seed=1)
    learner = Learner(task, config=OptimizerConfig(lr=rate), steps=steps, seed=1)
    assert gradients.fingerprint == learner.fingerprint
    losses = []
    for step in range(steps):
        gradients.load(*learner.snapshot())
        losses.append(gradients.evaluate(step, 0, 1.0))
        coded, _, buffers = gradients.coded()
        assert learner.apply(step, [(0, 1.0, coded, buffers)]).finite
    assert losses[-1] < 0.9 * losses[0]
    loss, metric = Evaluator(task, 1).evaluate(*learner.snapshot())
    if name in METRIC_IS_LOSS:
        assert np.isfinite(loss) and metric == loss
    else:
        assert np.isfinite(loss) and (metric is None or 0 <= metric <= 1)


def test_every_built_in_task_is_among_the_cases() -> None:
    assert {name for name, *_ in CASES} == set(TASKS)


def test_tasks_are_functions_of_the_seed() -> None:
    for name, args in (("digits-mlp", {}), ("linear-regression", {}), ("resnet18", TINY)):
        one, same, other = (load_task(name, args, seed).train.batch(torch.arange(9)) for seed in (1, 1, 2))
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not torch.equal(one[0], other[0])


def test_training_and_test_samples_are_apart() -> None:
    task = load_task("digits-cnn", {}, 1)
    assert task.test is not None and (len(task.train), len(task.test)) == (1438, 359)
    assert task.train.batch(torch.arange(2))[0].dtype == torch.uint8


def test_crops_move_each_image_by_itself() -> None:
    images = torch.arange(1.0, 2 * 50 * 9 + 1).view(50, 2, 3, 3)
    moved = random_crop(images, torch.Generator().manual_seed(1), padding=1)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    places = set()
    for image, around in zip(moved, padded, strict=True):
        matches = [
            (down, right)
            for down in range(3)
            for right in range(3)
            if torch.equal(image, around[:, down : down + 3, right : right + 3])
        ]
        assert len(matches) == 1
        places.add(matches[0])
    assert len(places) == 9
    assert torch.equal(moved, random_crop(images, torch.Generator().manual_seed(1), padding=1))


def test_flips_mirror_about_half_of_the_images() -> None:
    images = torch.arange(40 * 6.0).view(40, 1, 2, 3)
    flipped = random_flip(images, torch.Generator().manual_seed(1))
    mirrored = [torch.equal(one, image.flip(2)) for one, image in zip(flipped, images, strict=True)]
    kept = [torch.equal(one, image) for one, image in zip(flipped, images, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True)) and 8 < sum(mirrored) < 32


def test_a_task_of_ones_own_is_found_in_the_current_directory(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "own_task_module.py").write_text(
        "import torch\n"
        "from pgczmq.train.task import Task\n"
        "from torch.utils.data import TensorDataset\n"
        "def make(size, *, seed, width=3):\n"
        "    data = TensorDataset(torch.full((size, width), float(seed)), torch.zeros(size))\n"
        "    return Task(lambda: torch.nn.Linear(width, 2), data)\n"
        "def unseeded(): return make(4, seed=0)\n"
        "def wrong(): return 3\n"
        "def forgets(): make(4, seed=0)\n"
        "def fails(): raise OSError('disk on fire')\n"
    )
    (tmp_path / "own_broken_module.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    task = load_task("own_task_module:make", {"size": 5}, 7)
    assert task.train.batch(torch.tensor([0]))[0].tolist() == [[7.0, 7.0, 7.0]]
    assert len(load_task("own_task_module:unseeded", {}, 7).train) == 4
    for name, args, words in (
        ("own_task_module:make", {"sise": 5}, r"does not take sise. It takes: size, width."),
        ("own_task_module:make", {}, r"also needs size"),
        ("own_task_module:unseeded", {"a": 1}, r"It takes: none"),
        ("own_task_module:wrong", {}, r"gave int"),
        ("own_task_module:fails", {}, r"OSError: disk on fire \(.*own_task_module.py:10\)"),
        ("own_task_module:absent", {}, r"has no function absent"),
        ("own_broken_module:make", {}, r"No module named 'nowhere_to_be_found'"),
        ("not_there_at_all:make", {}, r"where not_there_at_all\.py is, .* pgc init not_there_at_all:make begins one"),
        ("not-there:make", {}, r"cannot import not-there, .* not_there:make, perhaps"),
        ("own_task_module:forgets", {}, r"gave None: is the return missing\?"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_task(name, args, 7)


def test_a_name_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"nearest is digits-cnn.*linear-regression.*module:function"):
        load_task("digit-cnn", {}, 1)
    with pytest.raises(ConfigError, match="It is one of linear-regression"):
        load_task("xyzzy", {}, 1)


def pictures(root: Path, counts: dict[str, int], *, size: tuple[int, int] = (8, 8)) -> None:
    rng = np.random.default_rng(3)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")


def test_a_folder_of_images_is_a_task(tmp_path: Path) -> None:
    pictures(tmp_path / "train", {"cat": 7, "dog": 5, "emu": 4}, size=(16, 16))
    pictures(tmp_path / "val", {"cat": 2, "dog": 2, "emu": 2}, size=(20, 30))
    task = load_task("resnet18", {"root": str(tmp_path), "dataset": "imagefolder"}, 1)
    cut = Partitions(len(task.train), 4, batch_size=4, seed=1)
    gradients = Roomed(task, held=[1, 2], coefficients=[1.0, 1.0], partitions=cut, seed=1)
    hold(task.train, cut, [1, 2])
    assert isinstance(task.train, FolderSamples) and len(task.train._held) == 8  # what is held, and no more
    learner = Learner(task, config=OptimizerConfig(lr=0.01), steps=1, seed=1)
    gradients.load(*learner.snapshot())
    losses = [gradients.evaluate(0, place, 1.0) for place in (0, 1)]
    assert all(np.isfinite(losses))
    assert task.model().fc.out_features == 3  # type: ignore[union-attr]
    assert task.test is not None and task.test.batch(torch.arange(6))[0].shape == (6, 3, 16, 16)


def test_images_are_the_same_held_or_not(tmp_path: Path) -> None:
    pictures(tmp_path, {"a": 5, "b": 6})
    samples, fresh = FolderSamples(tmp_path), FolderSamples(tmp_path)
    chosen = torch.tensor([9, 0, 3, 7, 0])
    expected = [np.asarray(Image.open(path)).transpose(2, 0, 1) for path in sorted(tmp_path.glob("*/*.png"))]
    for held in ([], [3, 9], [9, 0, 7, 3], [1]):
        samples.hold(torch.tensor(held, dtype=torch.int64))
        images, targets = samples.batch(chosen)
        assert np.array_equal(images.numpy(), np.stack([expected[i] for i in chosen]))
        assert targets.tolist() == [1, 0, 0, 1, 0]
        assert torch.equal(images, fresh.batch(chosen)[0])
    assert len(samples._held) == 5 and images.dtype == torch.uint8


def test_images_are_scaled_when_a_size_is_set(tmp_path: Path) -> None:
    pictures(tmp_path / "train", {"a": 2}, size=(8, 12))
    pictures(tmp_path / "test", {"a": 1})
    assert FolderSamples(tmp_path / "train").batch(torch.tensor([1]))[0].shape == (1, 3, 8, 12)
    task = load_task("resnet18", {"root": str(tmp_path), "dataset": "imagefolder", "image_size": 10}, 1)
    assert task.train.batch(torch.tensor([1]))[0].shape == (1, 3, 10, 10)


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    def load(root: Path) -> Task:
        return load_task("resnet18", {"root": str(root), "dataset": "imagefolder"}, 1)

    with pytest.raises(ConfigError, match="which has not both"):
        load(tmp_path / "absent")
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigError, match="which has not both"):
        load(tmp_path)
    pictures(tmp_path / "test", {"a": 1, "b": 1})
    with pytest.raises(ConfigError, match="no image folder"):
        load(tmp_path)
    pictures(tmp_path / "train", {"a": 1})
    with pytest.raises(ConfigError, match=r"must have the same classes: they differ in \['b'\]"):
        load(tmp_path)
    (tmp_path / "train" / "a" / "0.png").write_bytes(b"not a picture")
    with pytest.raises(ConfigError, match=r"cannot read the image .*0.png"):
        FolderSamples(tmp_path / "train", size=(8, 8)).batch(torch.tensor([0]))
    with pytest.raises(ConfigError, match="there is no directory"):
        FolderSamples(tmp_path / "absent")


def test_cifar10_that_cannot_be_had_is_one_sentence(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens on the discard port
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"cannot be downloaded .* download=True.* copy"):
        load_task("resnet18-cifar", {"root": str(tmp_path)}, 1)


def test_values_that_do_not_fit_are_refused() -> None:
    for name, args, words in (
        ("resnet18", {"dataset": "mnist"}, "one of cifar10, imagefolder, generated: got 'mnist'"),
        ("resnet18", {"image_size": 64}, "got image_size = 64"),
        ("digits-mlp", {"dropout": 1.0}, "dropout is a probability"),
        ("linear-regression", {"samples": 1}, "samples >= 2"),
    ):
        with pytest.raises(ConfigError, match=words):
            Learner(load_task(name, args, 1), config=OptimizerConfig(), steps=1, seed=1)


def test_importing_the_package_imports_neither_torchvision_nor_sklearn() -> None:
    modules = "task tasks images folder gradient optimizer evaluate checkpoint"
    code = (
        f"import importlib, sys; [importlib.import_module('pgczmq.train.' + name) for name in {modules.split()}]; "
        "print([name for name in ('torchvision', 'sklearn', 'PIL') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
