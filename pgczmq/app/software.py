"""With what a run is made: on record where it begins, and again wherever it is gone on with."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pgczmq.runlog import EventRecord

KIND = "software"
_PACKAGES = ("pgczmq", "torch", "torchvision", "numpy", "scikit-learn", "pyzmq")


def made_with(at: float) -> EventRecord:
    """The record, at ``at`` seconds on the run's clock: versions that results depend on, and the kind of machine."""
    return EventRecord(at, KIND, _made_with())


@cache  # a comparison makes hundreds of runs
def _made_with() -> str:
    found = {name: installed(name) for name in _PACKAGES} | {"Python": platform.python_version()}
    named = [f"{name} {number}" for name, number in found.items() if number is not None]
    return f"{', '.join(named)} on {platform.system()} {platform.machine()}"


def installed(name: str) -> str | None:
    """The version of a package, None where it is not installed; nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
