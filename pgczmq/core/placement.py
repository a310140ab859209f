"""Who holds which partitions. There are as many partitions as workers, both numbered from 0."""

from dataclasses import dataclass

from pgczmq.errors import ConfigError


@dataclass(frozen=True)
class Placement:
    """``held[j]`` are the partitions of worker j, in the order of their places 0..load-1."""

    name: str
    held: tuple[tuple[int, ...], ...]

    @property
    def workers(self) -> int:
        """Number of workers, which is also the number of partitions."""
        return len(self.held)

    @property
    def load(self) -> int:
        """Partitions held by one worker."""
        return len(self.held[0])


def identity(workers: int) -> Placement:
    """Worker j holds partition j."""
    return Placement("identity", tuple((worker,) for worker in range(workers)))


def fractional(workers: int, load: int) -> Placement:
    """Groups of ``load`` workers that all hold the same ``load`` partitions.

    Raises:
        ConfigError: ``load`` does not divide ``workers``.
    Source: Pipelined Gradient Coding, Sec. III (fractional repetition).
    """
    if workers % load:
        raise ConfigError(
            f"fractional repetition needs load to divide workers: got workers={workers}, load={load}. "
            f"Nearest valid worker counts: {nearest_worker_counts(workers, load)}."
        )
    rows = (tuple(range(worker // load * load, worker // load * load + load)) for worker in range(workers))
    return Placement("fractional", tuple(rows))


def nearest_worker_counts(workers: int, load: int) -> str:
    """The worker counts around ``workers`` that groups of ``load`` divide, for a sentence."""
    below, above = workers // load * load, (workers // load + 1) * load
    return f"{below} and {above}" if below else str(above)


def cyclic(workers: int, load: int) -> Placement:
    """Worker j holds partitions j, j+1, ..., j+load-1, modulo the number of workers.

    Raises:
        ConfigError: ``load`` is larger than ``workers``.
    Source: Pipelined Gradient Coding, Sec. III (cyclic repetition).
    """
    if load > workers:
        raise ConfigError(
            f"a worker cannot hold more partitions than there are: got load={load}, workers={workers}. "
            f"Load {workers} is the largest, or add workers."
        )
    rows = (tuple((worker + place) % workers for place in range(load)) for worker in range(workers))
    return Placement("cyclic", tuple(rows))


def hybrid(workers: int, load: int, *, local_load: int, groups: int) -> Placement:
    """``local_load`` partitions from the worker's own group, the rest cyclically.

    ``local_load = 0`` is cyclic repetition; ``local_load = load`` with groups of ``load`` is fractional.

    Raises:
        ConfigError: groups do not divide workers, or a worker would hold a partition twice.
    Source: schemes.md section 1 (HR), from the code of the authors of ignore-straggler gradient coding.
    """
    _check_hybrid(workers, load, local_load, groups)
    size = workers // groups
    rows = []
    for worker in range(workers):
        place, first = worker % size, worker // size * size
        local = [first + (place - local_load + offset) % size for offset in range(local_load)]
        rows.append((*local, *((worker + offset) % workers for offset in range(load - local_load))))
    return Placement("hybrid", tuple(rows))


def _check_hybrid(workers: int, load: int, local_load: int, groups: int) -> None:
    given = f"got workers={workers}, load={load}, local_load={local_load}, groups={groups}"
    if load > workers or local_load > load:
        most = f"load={workers}" if load > workers else f"local_load={load}"
        raise ConfigError(f"hybrid repetition needs local_load <= load <= workers: {given}. The most is {most}.")
    if workers % groups:
        valid = [count for count in range(1, workers + 1) if workers % count == 0]
        nearest = sorted(sorted(valid, key=lambda count: abs(count - groups))[:2])
        raise ConfigError(
            f"hybrid repetition needs groups to divide workers: {given}. "
            f"Nearest valid groups: {' and '.join(map(str, nearest))}."
        )
    size = workers // groups
    if local_load and load > size:
        raise ConfigError(
            f"hybrid repetition needs load <= workers / groups unless local_load is 0 (a worker would hold a "
            f"partition twice): {given}. Nearest valid: load={size} with local_load={min(local_load, size)}, or "
            f"groups={largest_groups(workers, load)}."
        )


def largest_groups(workers: int, load: int) -> int:
    """The most groups that divide ``workers`` and have at least ``load`` of them each."""
    return next(groups for groups in range(max(1, workers // load), 0, -1) if workers % groups == 0)
