"""Gradients of a run's partitions without anything else of the run."""

from typing import TYPE_CHECKING

from pgczmq.app import build
from pgczmq.config import RunConfig

if TYPE_CHECKING:
    from pgczmq.train.gradient import PartitionGradient


def gradient_of(config: RunConfig) -> "PartitionGradient":
    """What evaluates them, at the run's first parameters; imports torch, and has it use one thread of this process.

    Raises:
        ConfigError: the task does not exist, its data cannot be cut that way, or there is no such device.
    """
    import torch

    from pgczmq.train.gradient import PartitionGradient, resolve_device
    from pgczmq.train.task import load_task

    torch.set_num_threads(1)
    task = load_task(config.task.name, config.task.args, config.seed)
    partitions = build.partitions_of(config, task)
    return PartitionGradient(task, partitions=partitions, seed=config.seed, device=resolve_device(config.device))
