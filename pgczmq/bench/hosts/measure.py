"""A run of this program between the hosts of a lab: a master and its workers, over TCP, without a model."""

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.hosts.link import Transfers, Watch, transfers
from pgczmq.bench.transport.work import Work
from pgczmq.errors import ClusterError

WARM_UP = 1
"""Steps that do not count: whoever writes into memory for the first time waits for it."""
PERCENT_AT_LEAST = 93.0
"""Of the limit, goodput of the master's link while a step's transfers last; what is asked for at FULL_RATE."""
FULL_RATE = 1e9

_NODE = (sys.executable, "-m", "pgczmq.bench.hosts.node")


@dataclass(frozen=True)
class Row:
    """One run, in seconds and percent of the link's limit.

    Args:
        rate: of every link, bits a second.
        nbytes: payload of a step in each direction.
        seconds: of each step, from its publication to that of the next, the last one until it is applied.
        link: what the master's link carried in each.
        again_bytes: payload that moved beside that of the steps, on average of all, in both directions: what was sent
            twice, by TCP or by this program; headers of messages, and heartbeats.
    """

    rate: float
    wire_dtype: str
    workers: int
    params: int
    nbytes: int
    seconds: tuple[float, ...]
    link: tuple[Transfers, ...]
    again_bytes: float

    @property
    def percent(self) -> float:
        """Median of the steps' goodput."""
        return median(step.percent for step in self.link)


def measure(work: Work, *, rate: float, wire_dtype: str, steps: int) -> Row:
    """Have ``steps`` steps run in a lab of their own.

    Raises:
        ConfigError: there can be no lab here.
        ClusterError: the run failed, or its steps are too short to see what the link carries.
    """
    hosts = ["master", *(f"worker{number}" for number in range(work.workers))]
    with Lab(hosts, rate) as lab, Watch(lab, "master") as watch:
        times = _run(lab, work, wire_dtype, WARM_UP + steps)
    published = [begin for begin, _ in times]
    ends = [*published[1:], times[-1][1]]
    nbytes = work.payload_bytes(wire_dtype) // 2
    link = [transfers(watch.samples, begin, end, nbytes, rate) for begin, end in times[WARM_UP:]]
    seconds = [end - begin for begin, end in zip(published, ends, strict=True)][WARM_UP:]
    moved = watch.samples[-1].sent + watch.samples[-1].received
    again = moved / len(times) - 2 * nbytes
    return Row(rate, wire_dtype, work.workers, work.params, nbytes, tuple(seconds), tuple(link), again)


def _run(lab: Lab, work: Work, wire_dtype: str, steps: int) -> list[tuple[float, float]]:
    """When each step was published and applied, on ``time.monotonic``."""
    common = [lab.address("master"), str(work.workers), str(work.params), wire_dtype]
    argv = [*_NODE, "master", *common, str(steps)]
    master = lab.popen("master", argv, stdout=subprocess.PIPE)
    _line(master)
    for number in range(work.workers):
        lab.popen(f"worker{number}", [*_NODE, "worker", *common, str(number)])
    return [(begin, end) for begin, end in json.loads(_line(master))]


def _line(master: subprocess.Popen[bytes]) -> bytes:
    assert master.stdout is not None
    line: bytes = master.stdout.readline()
    if not line:
        raise ClusterError("the master of the bench ended before its run did; what it said is above.")
    return line
