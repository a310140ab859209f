"""Seeding of the global random streams that a user's model and data may draw from."""

import random

import numpy as np
import torch

from pgczmq.core import seeds


def seed_global_streams(seed: int, purpose: str, *indices: int) -> None:
    """Seed torch's, Python's and NumPy's global streams for one purpose: see ``core.seeds``."""
    value = seeds.integer(seed, purpose, *indices)
    seed_torch(value)
    random.seed(value)
    np.random.seed(value % 2**32)


def seed_torch(seed: int) -> None:
    """Seed torch's global streams, on the CPU and on CUDA if it is in use, to the same bits as torch.manual_seed.

    That one, on a machine where CUDA is not initialised, formats the call stack three times and keeps it for ever:
    measured, a third of a small model's gradient.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
