"""The built-in tasks that need no files: regressions on generated data, and scikit-learn's digits.

Each function's arguments are what ``task.args`` may hold; ``seed`` is the run's.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pgczmq.core import seeds
from pgczmq.errors import ConfigError
from pgczmq.train.augment import random_crop
from pgczmq.train.data import ArraySamples
from pgczmq.train.task import Task

TEST_PART = 0.2


def linear_regression(samples: int = 4096, features: int = 20, noise: float = 0.1, *, seed: int) -> Task:
    """Least squares: x ~ N(0, 1), y = <x, w> + noise * N(0, 1). The loss is the mean squared error."""
    inputs, scores = _plane(samples, features, noise, seed=seed)
    train, test = _split(inputs, scores, seed=seed)
    return Task(model=lambda: nn.Linear(features, 1), train=train, test=test, loss=squared_error, metric=None)


def logistic_regression(samples: int = 4096, features: int = 20, noise: float = 0.5, *, seed: int) -> Task:
    """Two classes on the sides of a random plane; noise blurs the border, as a share of the scores' spread."""
    inputs, scores = _plane(samples, features, noise, seed=seed)
    train, test = _split(inputs, (scores > 0).long(), seed=seed)
    return Task(model=lambda: nn.Linear(features, 2), train=train, test=test)


def digits_mlp(hidden: int = 64, dropout: float = 0.0, *, augment: bool = False, seed: int) -> Task:
    """Handwritten digits, 8x8, with one hidden layer."""

    def model() -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(64, hidden), nn.ReLU()]
        return nn.Sequential(*layers, *_dropout(dropout), nn.Linear(hidden, 10))

    train, test = _digits(seed)
    return Task(model, train, test, transform=scale_digits, augment=_shift if augment else None)


def digits_cnn(
    channels: int = 16, dropout: float = 0.0, *, batchnorm: bool = False, augment: bool = False, seed: int
) -> Task:
    """Handwritten digits, 8x8, with two convolutions.

    Args:
        channels: of the first convolution; the second has twice as many.
        dropout: probability, before the last layer.
        batchnorm: BatchNorm after each convolution.
        augment: shift each training image by up to one pixel.
        seed: the run's.
    """

    def model() -> nn.Module:
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, channels), (channels, 2 * channels)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1)]
            layers += [nn.BatchNorm2d(outputs)] if batchnorm else []
            layers += [nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Flatten(), *_dropout(dropout), nn.Linear(2 * channels * 16, 10)]
        return nn.Sequential(*layers)

    train, test = _digits(seed)
    return Task(model, train, test, transform=scale_digits, augment=_shift if augment else None)


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean of (output - target)^2 for output [m, 1] and target [m]."""
    return functional.mse_loss(output.squeeze(1), target)


def scale_digits(inputs: Tensor) -> Tensor:
    """The digits' grey levels, 0..16, as float32 with a root mean square of about 1; background stays 0.

    Scaled to [0, 1] the convolutional network takes twice as many steps to the same loss.
    """
    return inputs.float() / 8


def _shift(images: Tensor, generator: torch.Generator) -> Tensor:
    return random_crop(images, generator, padding=1)


def _dropout(probability: float) -> list[nn.Module]:
    if not 0 <= probability < 1:
        raise ConfigError(f"task.args: dropout is a probability, at least 0 and below 1: got {probability}.")
    return [nn.Dropout(probability)] if probability else []


def _plane(samples: int, features: int, noise: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs [samples, features] and scores [samples], float32; noise is relative to scores of variance 1."""
    if samples < 2 or features < 1:
        raise ConfigError(f"task.args: samples >= 2 and features >= 1: got {samples} and {features}.")
    rng = seeds.rng(seed, "data")
    weights = rng.standard_normal(features)
    inputs = rng.standard_normal((samples, features)).astype(np.float32)
    scores = inputs @ (weights / np.linalg.norm(weights)) + noise * rng.standard_normal(samples)
    return torch.from_numpy(inputs), torch.from_numpy(scores.astype(np.float32))


def _digits(seed: int) -> tuple[ArraySamples, ArraySamples]:
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    inputs = torch.from_numpy(images.astype(np.uint8)).view(-1, 1, 8, 8)
    return _split(inputs, torch.from_numpy(targets.astype(np.int64)), seed=seed)


def _split(inputs: Tensor, targets: Tensor, *, seed: int) -> tuple[ArraySamples, ArraySamples]:
    """Training and held-out samples: a seeded 80/20 split."""
    order = torch.from_numpy(seeds.rng(seed, "split").permutation(len(inputs)))
    cut = len(inputs) - round(len(inputs) * TEST_PART)
    train, test = order[:cut], order[cut:]
    return ArraySamples(inputs[train], targets[train]), ArraySamples(inputs[test], targets[test])
