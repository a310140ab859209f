"""The ``[scheme]`` section, and the numbers of a scheme that follow from it.

Each method is one rule: what a setting means where the user set nothing, and what is refused. They are for the
schemes of this package and for anybody's own.
"""

from dataclasses import dataclass

from pgczmq.core.placement import nearest_worker_counts
from pgczmq.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """The ``[scheme]`` section with the number of workers and the run's seed; None where the user set nothing."""

    name: str
    workers: int
    stragglers: int = 1
    load: int | None = None
    k: int | None = None
    groups: int | None = None
    local_load: int | None = None
    code: str = "auto"
    wait: str = "k"
    shortfall: str = "wait"
    deadline: float | None = None
    max_age: int | None = None
    on_new_step: str = "skip"
    seed: int = 1

    def patience(self) -> float | None:
        """When not to wait for those who could still answer, see ``pace.Pace``; None never.

        Raises:
            ConfigError: what there is then could not be used.
        """
        if self.deadline is not None and self.shortfall != "partial":
            raise ConfigError(
                "a deadline closes a step with fewer answers than the scheme waits for: got "
                f'scheme.deadline={self.deadline:g} with scheme.shortfall="{self.shortfall}". '
                'Set scheme.shortfall="partial", or leave scheme.deadline out.'
            )
        return self.deadline

    def punctual(self) -> int:
        """Arrivals that can be counted on: workers - stragglers.

        Raises:
            ConfigError: that is nobody.
        """
        if self.stragglers >= self.workers:
            raise ConfigError(
                f"at least one worker must be waited for: got stragglers={self.stragglers}, "
                f"workers={self.workers}. The most is stragglers={self.workers - 1}."
            )
        return self.workers - self.stragglers

    def any_k(self) -> int:
        """Arrivals to wait for, for schemes that take any number of them.

        Raises:
            ConfigError: there are not so many workers.
        """
        k = self.punctual() if self.k is None else self.k
        if k > self.workers:
            raise ConfigError(
                f"k cannot exceed workers: got k={k}, workers={self.workers}. The most is k={self.workers}."
            )
        return k

    def fixed_k(self) -> int:
        """Arrivals to wait for, for schemes whose code fixes it.

        Raises:
            ConfigError: the user set another one.
        """
        k = self.punctual()
        if self.k is not None and self.k != k:
            raise ConfigError(
                f"{self.name} closes a step at workers - stragglers arrivals: got k={self.k}, "
                f"workers={self.workers}, stragglers={self.stragglers}. Set k={k} or leave it out."
            )
        return k

    def coded_load(self) -> int:
        """Partitions a worker must hold so that ``stragglers`` can be missing.

        Raises:
            ConfigError: the user set fewer.
        """
        least = self.workers - self.punctual() + 1
        load = least if self.load is None else self.load
        if load < least:
            raise ConfigError(
                f"{self.name} needs load of at least stragglers + 1: got load={load}, "
                f"stragglers={self.stragglers}. Set load={least} or stragglers={load - 1}."
            )
        return load

    def fractional_load(self) -> int:
        """The same for groups of ``load`` workers, where what follows from stragglers must divide workers.

        Raises:
            ConfigError: it does not, or the user set fewer. A load of the user's own is left to the placement.
        """
        workers, least = self.workers, self.workers - self.punctual() + 1
        if self.load is None and workers % least:
            raise ConfigError(
                f"fractional repetition needs (stragglers + 1) to divide workers: got workers={workers}, "
                f"stragglers={self.stragglers} (load {least}). "
                f"Nearest valid worker counts: {nearest_worker_counts(workers, least)}."
            )
        load = least if self.load is None else self.load
        if load < least:
            enough = next(more for more in range(least, workers + 1) if workers % more == 0)
            fewer = f" or stragglers={load - 1}" if workers % load == 0 else ""
            raise ConfigError(
                f"{self.name} needs load of at least stragglers + 1 that divides workers: got load={load}, "
                f"stragglers={self.stragglers}, workers={workers}. Set load={enough}{fewer}."
            )
        return load

    def oldest(self, load: int) -> int:
        """The age that rotation over ``load`` partitions prefers not to exceed.

        Raises:
            ConfigError: rotation reaches more with everybody on time.
        """
        max_age = 2 * load - 1 if self.max_age is None else self.max_age
        if max_age < load - 1:
            source = "" if self.load else f" (stragglers={self.stragglers})"
            raise ConfigError(
                f"max_age must be at least load - 1, the age that rotation reaches with everybody on time: "
                f"got max_age={max_age}, load={load}{source}. The least is {load - 1}."
            )
        return max_age
