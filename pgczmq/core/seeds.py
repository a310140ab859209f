"""The one place where randomness comes from: every stream is a function of (seed, purpose, indices).

There is no stream position to keep or to save: whoever asks for the same thing gets the same numbers, on
any worker, in any process, at any time.
"""

import hashlib
from functools import lru_cache

import numpy as np

ORIGINS = 256
"""Origins drawn together: to make a generator costs more than a whole step of a simulated cluster may."""


def rng(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A generator for one purpose, for example ``rng(seed, "epoch", partition, epoch)``.

    Args:
        seed: the run's seed, >= 0.
        purpose: a word naming what the numbers are for; different words give independent streams.
        indices: whole numbers >= 0 that tell the streams of one purpose apart.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, _word(purpose), *indices]))


def origin(seed: int, step: int) -> float:
    """The random origin of a step in [0, 1), for decoders that must break ties fairly."""
    block, place = divmod(step, ORIGINS)
    return _origins(seed, block)[place]


@lru_cache(maxsize=64)
def _origins(seed: int, block: int) -> tuple[float, ...]:
    return tuple(rng(seed, "origin", block).random(ORIGINS).tolist())


def integer(seed: int, purpose: str, *indices: int) -> int:
    """A seed in [0, 2**63) for a library with a generator of its own, such as torch."""
    high, low = np.random.SeedSequence([seed, _word(purpose), *indices]).generate_state(2, np.uint32)
    return (int(high) << 32 | int(low)) & (2**63 - 1)


def _word(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "big")
