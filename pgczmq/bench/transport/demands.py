"""What this program is to take of the others' time, and whether it does."""

from collections.abc import Sequence
from dataclasses import dataclass

from pgczmq.bench.transport.race import OWN, Row

LARGE_FROM, SMALL_UP_TO = 1_000_000, 10_000
"""Parameters; between them nothing is asked for."""

_LARGE = {
    ("shm", "ray"): 0.5,
    ("shm", "gloo-allreduce"): 0.35,
    ("shm", "memory"): 1.5,
    ("tcp", "pyzmq"): 0.5,
    ("tcp", "gloo-ps"): 0.75,
    ("tcp", "gloo-allreduce"): 1.1,
    ("tcp-bfloat16", "tcp"): 0.6,
}
_SMALL = {
    (own, other): at_most
    for own in ("shm", "tcp")
    for other, at_most in (("pyzmq", 1.3), ("ray", 0.12), ("gloo-allreduce", 0.1), ("gloo-ps", 0.1))
}


@dataclass(frozen=True)
class Ratio:
    """Median over median.

    Args:
        at_most: what is asked for; None when nothing is.
    """

    name: str
    over: str
    ratio: float
    at_most: float | None

    @property
    def missed(self) -> bool:
        """Something is asked for and not there."""
        return self.at_most is not None and self.ratio > self.at_most


def ratios(rows: Sequence[Row], params: int) -> list[Ratio]:
    """This program, each way, over everybody else; bfloat16 over float32, and encrypted over not."""
    asked = _LARGE if params >= LARGE_FROM else _SMALL if params <= SMALL_UP_TO else {}
    medians = {row.name: row.median_ms for row in rows}
    pairs = [(own, other) for own in OWN for other in medians if other not in OWN]
    pairs += [("tcp-bfloat16", "tcp"), ("tcp-curve", "tcp")]
    return [
        Ratio(own, other, medians[own] / medians[other], asked.get((own, other)))
        for own, other in pairs
        if own in medians
    ]
