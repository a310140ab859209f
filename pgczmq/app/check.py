"""One line of ``pgc doctor`` or ``pgc task check``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``verdict`` is ok, warning or problem."""

    name: str
    verdict: str
    text: str
