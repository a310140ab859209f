"""What a worker and the master must have in common before their numbers may be added up."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from pgczmq.core import seeds
from pgczmq.errors import ConfigError
from pgczmq.extensions import reason
from pgczmq.train.data import Samples
from pgczmq.train.flat import FlatModel
from pgczmq.train.randomness import seed_global_streams
from pgczmq.train.task import Task

SAMPLES_HASHED = 64


def fingerprints(task: Task, flat: FlatModel, *, seed: int) -> dict[str, str]:
    """Hashes and versions, as strings.

    Returns:
        model: sha256 of names, shapes and dtypes, and of frozen parameters' values.
        data: number of training samples, and sha256 of 64 of them, before any transform.
        torch: its version, without the local part that names a build.
        device: "cpu" or "cuda".
    """
    return {
        "model": flat.fingerprint(),
        "data": _of_data(task.train, seed=seed),
        "torch": torch.__version__.split("+")[0],
        "device": flat.device.type,
    }


def _of_data(samples: Samples, *, seed: int) -> str:
    if not len(samples):
        raise ConfigError("the training set is empty: a task needs at least one sample for each worker.")
    seed_global_streams(seed, "fingerprint")
    chosen = seeds.rng(seed, "fingerprint").choice(len(samples), min(SAMPLES_HASHED, len(samples)), replace=False)
    digest = hashlib.sha256()
    try:
        parts = samples.batch(torch.from_numpy(np.sort(chosen)))
    except ConfigError:
        raise
    except Exception as error:  # the user's code
        raise ConfigError(f"the training set cannot be read: {reason(error)}.") from error
    for part in parts:
        digest.update(f"{tuple(part.shape)} {part.dtype}\n".encode())
        digest.update(_raw(part))
    return f"{len(samples)} samples, {digest.hexdigest()}"


def _raw(part: Tensor) -> bytes:
    return part.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
