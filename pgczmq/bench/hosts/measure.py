"""A run of this program between the hosts of a lab: a master and its workers, over TCP, without a model."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.hosts.link import Transfers, Watch, transfers
from pgczmq.bench.transport.work import Work
from pgczmq.errors import ClusterError

WARM_UP = 1
"""Steps that do not count: whoever writes into memory for the first time waits for it."""
PERCENT_AT_LEAST = 93.0
"""Of the limit, goodput of the master's link in each direction; what is asked for at FULL_RATE."""
FULL_RATE = 1e9
START_SECONDS = 120.0
TIMES_FULL_LINK = 10.0
"""The longest that a run may take: so many times what full links would need, after the start."""
LOOK_SECONDS = 0.1

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
    def out_percent(self) -> float:
        """Median goodput of the parameters that leave the master."""
        return median(step.out.percent for step in self.link)

    @property
    def back_percent(self) -> float:
        """Median goodput of the gradients that come."""
        return median(step.back.percent for step in self.link)

    @property
    def percent(self) -> float:
        """What the link is judged by: median goodput of the fuller direction at each moment of the transfers."""
        return median(step.percent for step in self.link)


def measure(work: Work, *, rate: float, wire_dtype: str, steps: int) -> Row:
    """Have ``steps`` steps run in a lab of their own.

    Raises:
        ConfigError: there can be no lab here, or the steps are too short to see what the link carries.
        ClusterError: the run failed.
    """
    hosts = ["master", *(f"worker{number}" for number in range(work.workers))]
    with Lab(hosts, rate) as lab, Watch(lab, "master") as watch:
        full_link = 8 * work.payload_bytes(wire_dtype) * (WARM_UP + steps) / rate
        deadline = time.monotonic() + START_SECONDS + TIMES_FULL_LINK * full_link
        times = _run(lab, work, wire_dtype, WARM_UP + steps, deadline)
    published = [begin for begin, _ in times]
    ends = [*published[1:], times[-1][1]]
    nbytes = work.payload_bytes(wire_dtype) // 2
    link = [transfers(watch.samples, begin, end, nbytes, rate) for begin, end in times[WARM_UP:]]
    seconds = [end - begin for begin, end in zip(published, ends, strict=True)][WARM_UP:]
    moved = watch.samples[-1].sent + watch.samples[-1].received
    again = moved / len(times) - 2 * nbytes
    return Row(rate, wire_dtype, work.workers, work.params, nbytes, tuple(seconds), tuple(link), again)


def _run(lab: Lab, work: Work, wire_dtype: str, steps: int, deadline: float) -> list[tuple[float, float]]:
    """When each step was published and applied, on ``time.monotonic``."""
    common = [lab.address("master"), str(work.workers), str(work.params), wire_dtype]
    argv = [*_NODE, "master", *common, str(steps)]
    master = lab.popen("master", argv, stdout=subprocess.PIPE)
    line_of(master, [], deadline)
    workers = [lab.popen(f"worker{number}", [*_NODE, "worker", *common, str(number)]) for number in range(work.workers)]
    return [(begin, end) for begin, end in json.loads(line_of(master, workers, deadline))]


def line_of(master: subprocess.Popen[bytes], workers: Sequence[subprocess.Popen[bytes]], deadline: float) -> bytes:
    """The next line that the master prints.

    Args:
        workers: that the master cannot do without; one that ends well is not needed any more.
        deadline: on ``time.monotonic``.

    Raises:
        ClusterError: there will be none, or it is too late.
    """
    assert master.stdout is not None
    while not select.select([master.stdout], [], [], LOOK_SECONDS)[0]:
        for number, worker in enumerate(workers):
            if worker.poll():
                raise ClusterError(f"worker {number} of the bench failed; what it said is above.")
        if time.monotonic() > deadline:
            raise ClusterError("the bench takes far longer than its links would: somebody in it is stuck.")
    line: bytes = master.stdout.readline()
    if not line:
        raise ClusterError("the master of the bench ended before its run did; what it said is above.")
    return line
