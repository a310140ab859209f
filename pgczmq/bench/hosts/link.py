"""What a host's link carries during a step, by the kernel's counters.

Payload is what is left of the counted bytes without Ethernet, IP and TCP headers. A step has two phases, one for each
direction of the link, which may overlap:

    published
    |-- parameters out --|
                      |------ gradients in --------|
                      begins with the first worker that has everything

A phase lasts from its first byte until 99 % of all payload that the step moved in its direction has passed: the last
segments of one late stream are not the link's doing. Its goodput is 99 % of what the step needs in that direction over
this time: what is sent twice takes time and counts once. All is measured from samples of the counters, so a phase seems
up to two periods longer than it is, and its goodput that much less.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType

from pgczmq.bench.hosts.lab import Lab
from pgczmq.errors import ClusterError, ConfigError

SEGMENT_BYTES = 1448
HEADER_BYTES = 14 + 20 + 20 + 12
"""Of a TCP packet with timestamps; a bucket counts them for every segment, an interface for every packet."""
CEILING = SEGMENT_BYTES / (SEGMENT_BYTES + HEADER_BYTES)
"""The part of the limit that is payload when every packet is full."""
PERIOD = 0.005
SAMPLES_AT_LEAST = 10
BEGUN = 0.001
"""A phase has begun when this part of its bytes has passed: heartbeats and acknowledgements are no beginning."""
DONE = 0.99
"""A phase has ended when this part of its bytes has passed."""
MOVING = 0.01
"""A link is idle while it carries less than this part of its limit."""


@dataclass(frozen=True)
class Sample:
    """Payload bytes that a host had sent and received at a time on ``time.monotonic``."""

    at: float
    sent: int
    received: int


@dataclass(frozen=True)
class Phase:
    """One direction during one step.

    Args:
        begin, end: of the phase, seconds since the step was published.
        percent: goodput, of the link's limit.
    """

    begin: float
    end: float
    percent: float


@dataclass(frozen=True)
class Transfers:
    """The transfers of one step.

    The two overlap: the first workers answer while parameters still go to the last ones, whose acknowledgements then
    wait behind gradients. So ``percent`` looks at the direction that carries more, moment by moment.

    Args:
        out: parameters that leave the master.
        back: gradients that come.
        percent: goodput of the fuller direction at each moment, from the begin of the first phase to the end of the
            last, of the link's limit. It cannot exceed what one direction can carry.
        idle_seconds: from the begin of the first phase to the end of the last, in which nothing moved.
    """

    out: Phase
    back: Phase
    percent: float
    idle_seconds: float


class Watch:
    """Samples a host's counters from ``with`` until its end.

    Raises:
        ClusterError: at the end, when they could not be read all the time.
    """

    def __init__(self, lab: Lab, host: str) -> None:
        self._lab = lab
        self._host = host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None
        self.samples: list[Sample] = []

    def __enter__(self) -> "Watch":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what happened inside ``with`` goes before what happened to the counters."""
        self._over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise ClusterError(f"the counters of {self._host} cannot be read any more.") from self._failure

    def _run(self) -> None:
        try:
            while not self._over.wait(PERIOD):
                self._look()
            self._look()
        except Exception as failure:  # a thread has nobody to raise it to
            self._failure = failure

    def _look(self) -> None:
        counted = self._lab.counters(self._host)
        sent = counted.sent_bytes - HEADER_BYTES * counted.sent_packets
        received = counted.received_bytes - HEADER_BYTES * counted.received_packets
        self.samples.append(Sample(time.monotonic(), sent, received))


def transfers(samples: Sequence[Sample], begin: float, end: float, nbytes: int, rate: float) -> Transfers:
    """What happened between two times.

    Args:
        samples: of the master's link, the first before ``begin``, the last after ``end``.
        begin, end: when the step was published and when its update was applied.
        nbytes: payload of the step in each direction.
        rate: the link's limit, bits a second.

    Raises:
        ConfigError: there are too few samples to tell.
    """
    times = [sample.at for sample in samples]
    window = samples[max(0, bisect_right(times, begin) - 1) : bisect_right(times, end) + 1]
    if len(window) < SAMPLES_AT_LEAST:
        raise ConfigError(
            f"a step of {end - begin:.3f} s was too short to see what the link carried: {len(window)} samples, "
            f"at least {SAMPLES_AT_LEAST} needed. More parameters make longer steps."
        )
    # The sample after ``end`` may have the first parameters of the next step.
    out = _span([sample.sent - window[0].sent for sample in window[:-1]], nbytes)
    # The last gradients of the step before are in by ``begin``, but not yet in the sample before it.
    back = _span([sample.received - window[1].received for sample in window], nbytes)
    moves = window[min(out[0], back[0]) : max(out[1], back[1]) + 1]
    idle = sum(after.at - before.at for before, after in pairwise(moves) if _is_idle(before, after, rate))
    carried = sum(_fuller(before, after) for before, after in pairwise(moves))
    percent = 100 * 8 * carried / (moves[-1].at - moves[0].at) / rate
    phases = [_phase(window, span, begin, nbytes, rate) for span in (out, back)]
    return Transfers(phases[0], phases[1], percent, idle)


def _fuller(before: Sample, after: Sample) -> int:
    """Bytes that went the way on which more went."""
    return max(after.sent - before.sent, after.received - before.received)


def _is_idle(before: Sample, after: Sample, rate: float) -> bool:
    return 8 * _fuller(before, after) < MOVING * rate * (after.at - before.at)


def _span(passed: Sequence[int], nbytes: int) -> tuple[int, int]:
    """Places of the last sample before the phase begins and of the first after its end."""
    begun = next(place for place, moved in enumerate(passed) if moved > BEGUN * nbytes)
    done = next(place for place, moved in enumerate(passed) if moved >= DONE * passed[-1])
    return max(0, begun - 1), done


def _phase(window: Sequence[Sample], span: tuple[int, int], begin: float, nbytes: int, rate: float) -> Phase:
    first, last = window[span[0]].at, window[span[1]].at
    return Phase(first - begin, last - begin, 100 * 8 * DONE * nbytes / (last - first) / rate)
