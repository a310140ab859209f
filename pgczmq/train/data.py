"""Training data: where samples come from, and how they are cut into partitions and minibatches."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from pgczmq.core import seeds
from pgczmq.core.policies import samples_of
from pgczmq.errors import ConfigError, PgcError

IntArray: TypeAlias = NDArray[np.int64]


@runtime_checkable
class Samples(Protocol):
    """A data set read by sample numbers, 0..len-1."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Raw inputs and targets, stacked along their first axis, of an int64 [m] of sample numbers."""
        ...


class MapStyle(Protocol):
    """A data set read sample by sample, as a map-style torch Dataset or a list: items are (input, target)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Data: TypeAlias = Samples | MapStyle
"""What a user may hand in."""


@runtime_checkable
class Holding(Protocol):
    """Samples of which a process keeps those in memory that it needs."""

    def hold(self, indices: Tensor) -> None:
        """Load these samples; called once by a worker, with everything its partitions hold."""
        ...


class ArraySamples:
    """Samples that are two tensors in memory."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise ConfigError(
                f"a data set needs one target for each input: got {len(inputs)} inputs and {len(targets)} targets."
            )
        self._inputs = inputs
        self._targets = targets

    def __len__(self) -> int:
        return len(self._inputs)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self._inputs[indices], self._targets[indices]


class HeldSamples(ArraySamples):
    """Samples in memory of which a worker keeps only those of its own partitions."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        super().__init__(inputs, targets)
        self._rows = torch.arange(len(inputs))

    def __len__(self) -> int:
        return len(self._rows)

    def hold(self, indices: Tensor) -> None:
        """Keep these samples and give the memory of all others back."""
        rows = self._rows[indices]
        self._inputs, self._targets = self._inputs[rows].clone(), self._targets[rows].clone()
        self._rows = torch.full((len(self._rows),), -1)
        self._rows[indices] = torch.arange(len(indices))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._rows[indices]
        if bool((rows < 0).any()):
            raise PgcError(f"this worker does not hold sample {int(indices[rows < 0][0])}.")
        return super().batch(rows)


class DatasetSamples:
    """Any map-style torch Dataset whose items are an input and a target.

    Random transforms inside the data set are fine if they draw from torch's, Python's or NumPy's global
    stream: a worker seeds these before it reads a minibatch. It reads on two threads, on one at a time.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        items = [self._dataset[index] for index in indices.tolist()]
        if not (isinstance(items[0], tuple | list) and len(items[0]) == 2):
            raise ConfigError(_not_a_pair(items))
        try:
            collated = default_collate(items)
        except (TypeError, RuntimeError) as error:  # no tensors, or tensors of several shapes
            raise ConfigError(_not_a_pair(items)) from error
        if not all(isinstance(part, Tensor) for part in collated):
            raise ConfigError(_not_a_pair(items))
        inputs, targets = collated
        return inputs, _narrow(targets)


def _not_a_pair(items: Sequence[Any]) -> str:
    """The sentence for items that do not stack."""
    kinds = list(dict.fromkeys(map(_described, items)))
    hint = " Several inputs are one tensor that the model takes apart."
    if any("Image" in kind for kind in kinds):
        hint = " Pictures become tensors in the data set, for example by torchvision.transforms.PILToTensor()."
    elif len(kinds) > 1:
        hint = " Pad, crop or resize them in the data set."
    return (
        "each item of a data set is (input, target): two tensors, arrays or numbers, of the same shape in every item. "
        f"Got {' and '.join(kinds[:2])}.{hint}"
    )


def _described(item: object) -> str:
    """What somebody sees that looks at the item: (Tensor[3, 8, 8], int)."""
    if isinstance(item, tuple | list):
        return f"({', '.join(map(_described, item))})"
    shape = getattr(item, "shape", ())
    return type(item).__name__ + (str(list(shape)) if len(shape) else "")


def _narrow(targets: Tensor) -> Tensor:
    """Targets as a loss takes them beside a float32 output: NumPy and Python have float64, unless told otherwise."""
    return targets.float() if targets.dtype == torch.float64 else targets


def hold(samples: Samples, partitions: "Partitions", held: Sequence[int]) -> None:
    """Tell samples which partitions this process needs, once its fingerprint is taken: they may drop the others."""
    if isinstance(samples, Holding):
        everything = np.unique(np.concatenate([partitions.indices(partition) for partition in held]))
        samples.hold(torch.from_numpy(everything))


def adapt(data: Any) -> Samples:
    """What a user hands in as data, as Samples: Samples themselves or a map-style torch Dataset.

    Raises:
        ConfigError: it has no length or cannot be indexed, or something else is to be handed in.
    """
    if isinstance(data, Samples):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return ArraySamples(data.tensors[0], _narrow(data.tensors[1]))
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not _hint(data):
        return DatasetSamples(data)
    raise ConfigError(
        "a task's data is a map-style torch Dataset (with __len__ and __getitem__) or has __len__ and "
        f"batch(indices): got {type(data).__name__}.{_hint(data)}"
    )


def _hint(data: Any) -> str:
    """What would work instead of something that is often handed in; empty for all else."""
    if isinstance(data, IterableDataset):
        return " What can only be read in order cannot be cut into partitions: read it into a list, or index it."
    if isinstance(data, DataLoader):
        return " Hand in its data set: minibatches are made by the workers, see task.batch_size."
    if isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(part, "shape") for part in data):
        return " Make one of the two arrays: torch.utils.data.TensorDataset(inputs, targets)."
    return ""


@dataclass(frozen=True)
class Partitions:
    """The training set cut into as many partitions as there are workers, and these into minibatches.

    The cut is a seeded permutation of all samples; sizes differ by at most one. Every worker, and the
    master, gets the same cut and the same minibatches from the same five numbers.

    Args:
        samples: size of the training set.
        count: number of partitions, one for each worker.
        batch_size: samples in a minibatch of one partition.
        sampler: "reshuffle" takes a fresh permutation of the partition each epoch; "fixed-batch" the same
            minibatch at every step.
        seed: the run's.

    Raises:
        ConfigError: a minibatch does not fit the smallest partition.
    """

    samples: int
    count: int
    _: KW_ONLY
    batch_size: int
    sampler: Literal["reshuffle", "fixed-batch"] = "reshuffle"
    seed: int
    _parts: Sequence[IntArray] = field(init=False, repr=False, compare=False)
    # The permutation of the epoch a partition is in, by partition: (epoch, sample numbers). Several threads may ask: an
    # entry is replaced as a whole, and at worst computed twice.
    _shuffled: dict[int, tuple[int, IntArray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        smallest = self.samples // self.count
        if self.batch_size > smallest:
            raise ConfigError(
                f"task.batch_size is per partition and must fit the smallest one: got {self.batch_size} with "
                f"{self.samples} training samples in {self.count} partitions of at least {smallest}. "
                + (f"Use at most {smallest}." if smallest else f"Use at most workers = {self.samples}.")
            )
        order = seeds.rng(self.seed, "partition").permutation(self.samples)
        parts = np.array_split(order, self.count)
        for part in parts:
            part.setflags(write=False)
        object.__setattr__(self, "_parts", tuple(parts))
        object.__setattr__(self, "_shuffled", {})

    @property
    def steps_per_epoch(self) -> int:
        """Minibatches in an epoch of every partition; what is left over is left out until the next epoch."""
        return self.samples // self.count // self.batch_size

    def indices(self, partition: int) -> IntArray:
        """All sample numbers of a partition: int64 [size], read-only."""
        return self._parts[partition]

    def minibatch(self, partition: int, step: int, batch_fraction: float = 1.0) -> IntArray:
        """The sample numbers of a partition's minibatch: a fresh int64 [m].

        Args:
            partition: 0..count-1.
            step: >= 0.
            batch_fraction: in (0, 1]; m is that part of batch_size, rounded up.
        """
        epoch, place = divmod(step, self.steps_per_epoch) if self.sampler == "reshuffle" else (0, 0)
        start = place * self.batch_size
        size = samples_of(self.batch_size, batch_fraction)
        return self._epoch(partition, epoch)[start : start + size].copy()

    def _epoch(self, partition: int, epoch: int) -> IntArray:
        kept = self._shuffled.get(partition)
        if kept is None or kept[0] != epoch:
            shuffled = seeds.rng(self.seed, "epoch", partition, epoch).permutation(self._parts[partition])
            kept = self._shuffled[partition] = (epoch, shuffled)
        return kept[1]
