"""Seeding of the global random streams that a user's model and data may draw from."""

import random

import numpy as np
import torch

from pgczmq.core import seeds


def seed_global_streams(seed: int, purpose: str, *indices: int) -> None:
    """Seed torch's, Python's and NumPy's global streams for one purpose: see ``core.seeds``."""
    value = seeds.integer(seed, purpose, *indices)
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value % 2**32)
