"""The files of a checkpoint that hold tensors; ``pgczmq.checkpoints`` keeps them with checksums.

    model.pt        the model's named state dict
    optimizer.pt    the optimizer's name and its state over the flat parameters

Both are read by ``torch.load(..., weights_only=True)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class CheckpointState:
    """Tensors of a learner, cloned: nobody changes them while they are written."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]


def write_files(directory: Path, state: CheckpointState) -> None:
    """Write both files into a directory that exists."""
    torch.save(dict(state.model), directory / "model.pt")
    torch.save(dict(state.optimizer), directory / "optimizer.pt")


def read_files(directory: Path) -> CheckpointState:
    """What ``write_files`` wrote; the files are known to be whole."""
    files = (directory / "model.pt", directory / "optimizer.pt")
    return CheckpointState(*(torch.load(file, weights_only=True, map_location="cpu") for file in files))
