"""Loaded in the helper that processes are forked from, and there alone: it clears away what it needed on disk.

Whoever started it does that, too, unless it is killed.
"""

import atexit
import os
import shutil
from multiprocessing import forkserver
from pathlib import Path

_HELPER = os.getpid()


def _clear_away() -> None:
    """Remove the directory of the socket over which processes are asked for; nobody is left who could ask."""
    address = getattr(forkserver._forkserver, "_forkserver_address", None)
    if os.getpid() != _HELPER or not isinstance(address, str):
        return
    directory = Path(address).parent
    if directory.name.startswith("pymp-"):  # multiprocessing's own, with nothing else in it
        shutil.rmtree(directory, ignore_errors=True)


atexit.register(_clear_away)
