"""Tasks as people write them at first: each has one thing wrong, which ``pgc task check`` has to say."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pgczmq.train.task import Task
from pgczmq.train.tasks import squared_error

SAMPLES = 64


def points(seed: int, count: int = SAMPLES) -> TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def sound(*, seed: int) -> Task:
    return Task(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), points(seed), points(seed + 1))


class Drawn(Dataset[tuple[Tensor, Tensor]]):
    """Points, each moved a little whenever it is read."""

    def __init__(self, seed: int, noise: object) -> None:
        self.points, self.noise = points(seed), noise

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, target = self.points[index]
        return inputs + self.noise(), target  # type: ignore[operator]


class Plain(nn.Module):
    """A linear model that each broken one does something more than."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- sound, though it does not look so


def augmented(*, seed: int) -> Task:
    """Augmentation in the data set, dropout, and BatchNorm: all seeded by the worker."""
    data = Drawn(seed, lambda: torch.rand(4) * random.random() * np.random.rand())
    return replace(
        sound(seed=seed),
        model=lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)),
        train=data,
    )


class Next(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens))  # type: ignore[no-any-return]


def characters(*, seed: int) -> Task:
    """Whole numbers in, a class at each of 6 places out."""
    text = torch.randint(11, (SAMPLES, 7), generator=torch.Generator().manual_seed(seed))
    pairs = TensorDataset(text[:, :-1], text[:, 1:])
    return Task(Next, pairs, pairs_of_others(seed))


def pairs_of_others(seed: int) -> TensorDataset:
    text = torch.randint(11, (SAMPLES, 7), generator=torch.Generator().manual_seed(seed + 1))
    return TensorDataset(text[:, :-1], text[:, 1:])


def arrays(*, seed: int) -> Task:
    """NumPy's float64 in, Python's floats out."""
    numbers = np.random.default_rng(seed).normal(size=(SAMPLES, 4))
    pairs = [(row, float(row.sum())) for row in numbers]
    return Task(lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), pairs, pairs[:9], functional.mse_loss, None)


# ---------------------------------------------------------------- data


def unseeded(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=TensorDataset(torch.randn(SAMPLES, 4), torch.arange(SAMPLES) % 2))


def own_generator(*, seed: int) -> Task:
    rng = np.random.default_rng(seed)
    return replace(sound(seed=seed), train=Drawn(seed, lambda: float(rng.random())))


def drawing_transform(*, seed: int) -> Task:
    generator = torch.Generator().manual_seed(seed)
    return replace(sound(seed=seed), transform=lambda inputs: inputs + torch.rand(1, generator=generator))


def disobedient_augment(*, seed: int) -> Task:
    mine = torch.Generator().manual_seed(seed)
    return replace(sound(seed=seed), augment=lambda inputs, generator: inputs + torch.rand(1, generator=mine))


def order_of_a_set(*, seed: int) -> Task:
    names = list({f"class-{number}" for number in range(SAMPLES)})
    numbers = torch.tensor([float(name[6:]) for name in names])[:, None].expand(SAMPLES, 4) / SAMPLES
    return replace(sound(seed=seed), train=TensorDataset(numbers, torch.arange(SAMPLES) % 2))


def missing_values(*, seed: int) -> Task:
    inputs, targets = points(seed).tensors
    return replace(sound(seed=seed), train=TensorDataset(inputs.masked_fill(inputs > 1, float("nan")), targets))


def raw_bytes(*, seed: int) -> Task:
    inputs = torch.randint(256, (SAMPLES, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return replace(sound(seed=seed), train=TensorDataset(inputs, torch.arange(SAMPLES) % 2))


def whole_features(*, seed: int) -> Task:
    inputs = torch.randint(3, (SAMPLES, 4), generator=torch.Generator().manual_seed(seed))
    return replace(sound(seed=seed), train=TensorDataset(inputs, inputs[:, 0] % 2))


def pictures(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=[(Image.new("RGB", (4, 4)), 0)] * SAMPLES)


def uneven(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=[(torch.zeros(4 + place % 2), 0) for place in range(SAMPLES)])


def several_inputs(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=[({"ids": torch.zeros(4), "mask": torch.ones(4)}, 0)] * SAMPLES)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))


def in_order_only(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=Stream())


def loader(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=DataLoader(points(seed), batch_size=4))


def two_arrays(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=points(seed).tensors)


def few(*, seed: int) -> Task:
    return replace(sound(seed=seed), train=points(seed, 16))


# ---------------------------------------------------------------- model


def remembering(*, seed: int) -> Task:
    class Counting(Plain):
        calls = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(inputs) / self.calls

    return replace(sound(seed=seed), model=Counting)


def own_dropout(*, seed: int) -> Task:
    class Dropping(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(seed)

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) * torch.rand(len(inputs), 1, generator=self.generator)

    return replace(sound(seed=seed), model=Dropping)


def unused(*, seed: int) -> Task:
    class Spare(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(4, 4)

    return replace(sound(seed=seed), model=Spare)


def clipping(*, seed: int, first: int = 1) -> Task:
    class Clipping(Plain):
        calls = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += self.training
            if self.calls >= first:
                self.linear.weight.data.clamp_(-1e-3, 1e-3)
            return super().forward(inputs)

    return replace(sound(seed=seed), model=Clipping)


clipping_later = partial(clipping, first=2)


def in_float64(*, seed: int) -> Task:
    return replace(sound(seed=seed), model=lambda: Plain().double())


def sparse(*, seed: int) -> Task:
    return replace(characters(seed=seed), model=lambda: nn.Embedding(11, 11, sparse=True))


def without_momentum(*, seed: int) -> Task:
    return replace(sound(seed=seed), model=lambda: nn.Sequential(Plain(), nn.BatchNorm1d(2, momentum=None)))


def detached(*, seed: int) -> Task:
    class Detached(Plain):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs).detach()

    return replace(sound(seed=seed), model=Detached)


def misfit(*, seed: int) -> Task:
    class Misfit(Plain):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.linear(inputs[:, :3])  # type: ignore[no-any-return]

    return replace(sound(seed=seed), model=Misfit)


def tuple_out(*, seed: int) -> Task:
    return replace(sound(seed=seed), model=lambda: nn.LSTM(4, 2))


# ---------------------------------------------------------------- loss and metric


def summed(*, seed: int) -> Task:
    return replace(sound(seed=seed), loss=partial(functional.cross_entropy, reduction="sum"))


def large_targets(*, seed: int) -> Task:
    scores = torch.full((SAMPLES,), 700.0)
    data = [TensorDataset(points(seed + more).tensors[0], scores) for more in range(2)]
    return Task(lambda: Plain(1), *data, loss=squared_error, metric=None)


def one_class_more(*, seed: int) -> Task:
    inputs, _ = points(seed).tensors
    return replace(sound(seed=seed), train=TensorDataset(inputs, torch.arange(SAMPLES) % 2 + 1))


def built_already(*, seed: int) -> Task:
    return replace(sound(seed=seed), model=nn.Linear(4, 2))


def weighted(*, seed: int) -> Task:
    weight = torch.tensor([1.0, 9.0])
    return replace(sound(seed=seed), loss=partial(functional.cross_entropy, weight=weight))


def one_each(*, seed: int) -> Task:
    return replace(sound(seed=seed), loss=partial(functional.cross_entropy, reduction="none"))


def a_number(*, seed: int) -> Task:
    return replace(sound(seed=seed), loss=lambda output, target: functional.cross_entropy(output, target).item())


def infinite(*, seed: int) -> Task:
    return replace(sound(seed=seed), loss=lambda output, target: (output.mean() - output.mean()).log())


def numbers_as_classes(*, seed: int) -> Task:
    inputs, _ = points(seed).tensors
    return replace(sound(seed=seed), model=lambda: nn.Linear(4, 1), train=TensorDataset(inputs, inputs.sum(1)))


def broadcast(*, seed: int) -> Task:
    return replace(numbers_as_classes(seed=seed), loss=functional.mse_loss, metric=None, test=None)


def percent(*, seed: int) -> Task:
    def percent_accuracy(output: Tensor, target: Tensor) -> Tensor:
        return 100 * (output.argmax(1) == target).float().mean()

    return replace(sound(seed=seed), metric=percent_accuracy)


def counted(*, seed: int) -> Task:
    return replace(sound(seed=seed), metric=lambda output, target: (output.argmax(1) == target).sum())


def none_held_out(*, seed: int) -> Task:
    return replace(sound(seed=seed), test=None)


def held_out_is_trained_on(*, seed: int) -> Task:
    return replace(sound(seed=seed), test=points(seed))


def nothing_held_out(*, seed: int) -> Task:
    return replace(sound(seed=seed), test=points(seed, 0))


# ---------------------------------------------------------------- the function


def returns_a_model(*, seed: int) -> nn.Module:
    return Plain()


def needs_more(root: str, *, seed: int) -> Task:
    return sound(seed=seed)


def fails(*, seed: int) -> Task:
    raise FileNotFoundError("data.csv")
