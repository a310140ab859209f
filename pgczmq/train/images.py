"""ResNet-18 on CIFAR-10, a folder of images, or generated ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pgczmq.core import seeds
from pgczmq.errors import ConfigError
from pgczmq.train.augment import random_crop, random_flip
from pgczmq.train.data import HeldSamples, Samples
from pgczmq.train.folder import FolderSamples
from pgczmq.train.task import Task

# CIFAR-10's own; near enough to those of other photographs.
CHANNEL_MEANS = (0.4914, 0.4822, 0.4465)
CHANNEL_DEVIATIONS = (0.2470, 0.2435, 0.2616)


def resnet18(
    root: str = "data",
    dataset: str = "cifar10",
    *,
    image_size: int | None = None,
    samples: int = 2048,
    augment: bool = True,
    seed: int,
) -> Task:
    """ResNet-18 as in torchvision, with its stem for large images.

    Args:
        root: the directory of the data.
        dataset: "cifar10" (downloaded into root), "imagefolder" (root has train/ and test/ or val/, with a
            directory of images for each class) or "generated" (random images and labels, for benchmarks).
        image_size: height and width in pixels; the data's own unless set.
        samples: size of the generated training set.
        augment: random crops with a padding of 4, and random mirroring.
        seed: the run's.
    """
    data = _load(dataset, root=Path(root), size=image_size, samples=samples, seed=seed)
    return _task(lambda: _torchvision_resnet18(data.classes), data, augment=augment)


def resnet18_cifar(
    root: str = "data",
    dataset: str = "cifar10",
    *,
    image_size: int | None = None,
    samples: int = 2048,
    augment: bool = True,
    seed: int,
) -> Task:
    """ResNet-18 for small images: a 3x3 stem of stride 1 and no max-pooling. Arguments as for ``resnet18``."""
    data = _load(dataset, root=Path(root), size=image_size, samples=samples, seed=seed)

    def model() -> nn.Module:
        module = _torchvision_resnet18(data.classes)
        stem = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
        module.conv1, module.maxpool = stem, nn.Identity()
        return module

    return _task(model, data, augment=augment)


def normalise(images: Tensor) -> Tensor:
    """uint8 [m, 3, H, W] as float32 of mean about 0 and deviation about 1 in each channel."""
    mean = torch.tensor(CHANNEL_MEANS, device=images.device).view(3, 1, 1)
    deviation = torch.tensor(CHANNEL_DEVIATIONS, device=images.device).view(3, 1, 1)
    return images.float().div_(255).sub_(mean).div_(deviation)


def crop_and_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """The customary augmentation for CIFAR-10."""
    return random_flip(random_crop(images, generator, padding=4), generator)


@dataclass(frozen=True)
class _Images:
    train: Samples
    test: Samples
    classes: int


def _task(model: Callable[[], nn.Module], data: _Images, *, augment: bool) -> Task:
    chosen = crop_and_flip if augment else None
    return Task(model, data.train, data.test, transform=normalise, augment=chosen)


def _torchvision_resnet18(classes: int) -> nn.Module:
    from torchvision.models import resnet18 as build

    module: nn.Module = build(weights=None, num_classes=classes)
    return module


def _load(dataset: str, *, root: Path, size: int | None, samples: int, seed: int) -> _Images:
    loaders: Mapping[str, Callable[[], _Images]] = {
        "cifar10": lambda: _cifar10(root, size=size),
        "imagefolder": lambda: _folder(root, size=size),
        "generated": lambda: _generated(samples, size=size or 32, seed=seed),
    }
    if dataset not in loaders:
        raise ConfigError(f"task.args: dataset is one of {', '.join(loaders)}: got {dataset!r}.")
    return loaders[dataset]()


def _generated(samples: int, *, size: int, seed: int, classes: int = 10) -> _Images:
    def draw(purpose: str, count: int) -> HeldSamples:
        rng = seeds.rng(seed, purpose)
        images = rng.integers(0, 256, (count, 3, size, size), dtype=np.uint8)
        return HeldSamples(torch.from_numpy(images), torch.from_numpy(rng.integers(0, classes, count)))

    return _Images(draw("generated-train", samples), draw("generated-test", max(1, samples // 5)), classes)


def _folder(root: Path, *, size: int | None) -> _Images:
    test_root = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or test_root is None:
        raise ConfigError(
            f"an image folder has train/ and test/ (or val/), each with a directory of images for each class: "
            f"task.args.root is {str(root)!r}, which has not both. Relative paths start at {Path.cwd()}."
        )
    train = FolderSamples(root / "train", size=(size, size) if size else None)
    test = FolderSamples(test_root, size=train.size)
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise ConfigError(f"{root / 'train'} and {test_root} must have the same classes: they differ in {odd}.")
    return _Images(train, test, len(train.classes))


def _cifar10(root: Path, *, size: int | None) -> _Images:
    if size not in (None, 32):
        raise ConfigError(f'task.args: the images of dataset = "cifar10" have 32 pixels: got image_size = {size}.')
    from torchvision.datasets import CIFAR10

    def read(*, train: bool) -> HeldSamples:
        found: Any = CIFAR10(str(root), train=train)
        images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()
        return HeldSamples(images, torch.tensor(found.targets))

    try:
        return _Images(read(train=True), read(train=False), 10)
    except RuntimeError:  # not there, or not whole
        _download_cifar10(root)
    return _Images(read(train=True), read(train=False), 10)


def _download_cifar10(root: Path) -> None:
    """Fetch CIFAR-10 once, also when several workers on this machine want it at the same time."""
    import fcntl

    from torchvision.datasets import CIFAR10

    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / ".pgczmq-download").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            CIFAR10(str(root), download=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"CIFAR-10 is not in {root} and cannot be downloaded ({error}). On a machine with a network run "
            f"python -c \"import torchvision; torchvision.datasets.CIFAR10('{root}', download=True)\" and copy "
            'that directory here, or use dataset = "imagefolder" or "generated".'
        ) from error
