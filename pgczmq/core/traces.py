"""Recorded response times, replayed: rounds drawn with replacement, means interpolated between loads."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgczmq.core import seeds
from pgczmq.core.codes import Floats
from pgczmq.core.draws import uniform
from pgczmq.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Recording:
    """What was recorded at one load.

    Args:
        load: share of all the data that each worker evaluated, 0 to 1; 0 = nothing beyond the message itself.
        seconds_RW: response times, a row a round, a column a worker; finite, at least 0.
    """

    load: float
    seconds_RW: Floats

    def __post_init__(self) -> None:
        """Check that it can be replayed."""
        seconds = self.seconds_RW
        if seconds.ndim != 2 or not seconds.size or not np.isfinite(seconds).all() or (seconds < 0).any():
            raise ConfigError("a trace needs at least one round of response times, none missing or below 0 s.")


@dataclass(frozen=True, eq=False)
class TraceDelay:
    """Workers as slow as those of a recording. Make one with ``replay``.

    A step replays a whole round, the same for all its workers, so that what slowed many at once still does. The
    response scales with the partitions evaluated and the batch fraction through the load, evaluated * b / n: a
    worker's mean is interpolated between the recorded loads (beyond the largest it goes on as between the last two),
    and its deviation is that of the nearest recorded load. A single recording does not scale.

    Args:
        seed: of the run.
        partitions: of the run, n.
        loads: recorded ones, ascending.
        rounds: for every load its rounds, each with a time for every worker.
        means: for every load the mean of every worker.
    """

    seed: int
    partitions: int
    loads: Sequence[float]
    rounds: Sequence[Sequence[Sequence[float]]]
    means: Sequence[Sequence[float]]
    stream: str = "trace round"

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The worker's time in the round drawn for the step, moved to its load; never below 0."""
        load = evaluated * batch_fraction / self.partitions
        nearest = min(range(len(self.loads)), key=lambda place: abs(self.loads[place] - load))
        rounds = self.rounds[nearest]
        drawn = rounds[int(uniform(self.seed, self.stream, 0, step) * len(rounds)) % len(rounds)]
        return max(0.0, drawn[worker] + self._mean(worker, load) - self.means[nearest][worker])

    def _mean(self, worker: int, load: float) -> float:
        loads = self.loads
        if len(loads) == 1 or load <= loads[0]:
            return self.means[0][worker]
        above = min(bisect_right(loads, load), len(loads) - 1)
        low, high = self.means[above - 1][worker], self.means[above][worker]
        return low + (high - low) * (load - loads[above - 1]) / (loads[above] - loads[above - 1])


def replay(recordings: Sequence[Recording], *, workers: int, seed: int) -> TraceDelay:
    """A delay model for so many workers: those recorded, or a subset of them that the seed chooses.

    Raises:
        ConfigError: more workers than were recorded, or two recordings that do not go together.

    Source: schemes.md and issue 3, traces; the recordings of arXiv 2211.13802.
    """
    ordered = sorted(recordings, key=lambda recording: recording.load)
    loads = [recording.load for recording in ordered]
    recorded = {recording.seconds_RW.shape[1] for recording in ordered}
    if len(set(loads)) < len(loads) or len(recorded) != 1:
        raise ConfigError(
            "recordings of one trace are of the same workers at different loads: got "
            + ", ".join(f"load {one.load:g} of {one.seconds_RW.shape[1]} workers" for one in ordered)
            + "."
        )
    (width,) = recorded
    if workers > width:
        raise ConfigError(f"the trace was recorded on {width} workers: got workers={workers}. The most is {width}.")
    columns = np.arange(width)
    if workers < width:
        columns = np.sort(seeds.rng(seed, "trace workers").permutation(width)[:workers])
    chosen = [recording.seconds_RW[:, columns] for recording in ordered]
    rounds = [seconds.tolist() for seconds in chosen]
    return TraceDelay(seed, workers, loads, rounds, [seconds.mean(axis=0).tolist() for seconds in chosen])
