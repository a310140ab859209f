"""A model and data of one's own: a function that returns a Task.

    cd examples && pgc local --config my_model.toml

On VMs this file must be importable on the master and on every worker, and workers must be told that they may run it:
pgc-worker --allow my_model:spirals.
"""

import math

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from pgczmq.train.task import Task


class Spirals(Dataset[tuple[Tensor, Tensor]]):
    """Points on two interleaved spirals; any map-style torch data set will do."""

    def __init__(self, samples: int, noise: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(samples) % 2
        angle = torch.rand(samples, generator=generator).sqrt() * 3 * math.pi
        turned = angle + self.labels * math.pi
        points = torch.stack([angle * turned.cos(), angle * turned.sin()], dim=1) / 10
        self.points = points + noise * torch.randn(samples, 2, generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.points[index], self.labels[index]


def spirals(hidden: int = 64, noise: float = 0.02, *, seed: int) -> Task:
    """Which of the two spirals is a point on? The arguments come from ``task.args`` in the configuration.

    The loss is cross entropy and the metric accuracy, as they are unless a Task says otherwise.
    """

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )

    return Task(model=model, train=Spirals(4000, noise, seed), test=Spirals(1000, noise, seed + 1))
