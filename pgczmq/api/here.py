"""What a simulation changes in the process that it runs in, and how that is put back."""

import contextlib
import random
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """Leave torch's threads, the global random streams and the module path as they were before; imports torch."""
    import numpy as np
    import torch

    threads, path = torch.get_num_threads(), list(sys.path)
    streams = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(streams[0])
            np.random.set_state(streams[1])
            torch.set_num_threads(threads)
            sys.path[:] = path
