"""Everybody who plays in a soak: a master and its workers, started again when they end, and timed."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgczmq.bench.torture.soak.fates import Process, Sample
from pgczmq.bench.torture.soak.troop import Program
from pgczmq.bench.torture.soak.watch import Watch
from pgczmq.errors import ConfigError

LOOK_SECONDS = 0.02
SAMPLE_SECONDS = 1.0
END_SECONDS = 20.0
"""A program that was asked to end has ended by then; longer is a hang."""
AGAIN_SECONDS = 0.5
"""Until one is started again that ended of itself."""
CODES: Mapping[str, frozenset[int]] = {
    "killed": frozenset({-signal.SIGKILL}),
    "terminated": frozenset({128 + signal.SIGTERM, -signal.SIGTERM}),  # the latter before it could take any signal
    "ended": frozenset({75}),
}
"""The exit codes that each way to be ended asks for."""
WRONG_SETTINGS = 2
"""The exit code that says so."""
CODES_OF_THE_END = frozenset({0, 75})
"""Of whoever ends since the run is over."""


@dataclass
class Told:
    """What a soak was like.

    Args:
        samples: of what processes held.
        first, last: those with everybody there, before the first deed and after the last.
        deeds: how often each was done.
        joins: seconds from the start of a worker's process to being ready.
        returns: seconds from a fault of a worker to being ready again; from going on, if it was stopped.
        recoveries: seconds from the end of a master to the first update of the next.
        findings: what a supervisor sees to be wrong.
    """

    samples: list[Sample] = field(default_factory=list)
    first: list[Sample] = field(default_factory=list)
    last: list[Sample] = field(default_factory=list)
    deeds: dict[str, int] = field(default_factory=dict)
    joins: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class Cast:
    """A master and its workers.

    Args:
        directory: where they run; the configuration, ``soak.toml``, is there.
        run: the run's name.
        workers: how many.
        port: the master's.

    Attributes:
        watch: of the run.
        told: what was seen.
        closing: the run is over, or about to be: nobody is started again.
    """

    def __init__(self, directory: Path, run: str, *, workers: int, port: int) -> None:
        address = f"tcp://127.0.0.1:{port}"
        command = ["pgc-master", "--config", "soak.toml", "--resume", "auto"]
        self.master = Program("master", command, directory)
        self.workers = [
            Program(
                f"worker {number}",
                ["pgc-worker", "--id", str(number), "--master", address, "--allow", str(directory / "log")],
                directory,
            )
            for number in range(workers)
        ]
        self.watch = Watch(directory / "runs" / run)
        self.told = Told()
        self.closing = False
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._lost_at: dict[int, float] = {}  # of workers: since when nobody can count on them
        self._left: list[tuple[Program, Process]] = []  # workers that say that the run is over
        self._joined: set[int] = set()  # processes that have been ready
        self._master_lost: tuple[float, float] | None = None  # when, and the run's own time then
        self._sampled_at = 0.0

    @property
    def programs(self) -> list[Program]:
        """Everybody."""
        return [self.master, *self.workers]

    @property
    def lives(self) -> list[Process]:
        """All processes that are over."""
        return [life for program in self.programs for life in program.lives]

    @property
    def complete(self) -> bool:
        """The master lives and can count on all its workers."""
        return self.master.runs and len(self.watch.ready) == len(self.workers)

    @property
    def gone(self) -> bool:
        """Nobody lives."""
        return all(program.pid is None for program in self.programs)

    # ------------------------------------------------------------ deeds

    def stop(self, number: int, seconds: float) -> None:
        """Hold a worker up for so long."""
        self._count("stop")
        self.workers[number].stop()
        self.later(seconds, lambda: self._go_on(number))

    def end(self, number: int, how: str, seconds: float) -> None:
        """Have a worker "killed" or "terminated", and start it again so many seconds later."""
        self._count("kill" if how == "killed" else "terminate")
        self._lost_at[number] = time.monotonic()
        self.workers[number].end(signal.SIGKILL if how == "killed" else signal.SIGTERM, how)
        self.later(seconds, lambda: self._start_again(self.workers[number]))

    def kill_master(self, seconds: float) -> None:
        """Kill it, and start it again so many seconds later."""
        self._count("kill master")
        lost_at = time.monotonic()
        self.master.end(signal.SIGKILL, "killed")
        self._collect(self.master, END_SECONDS)
        self.watch.look()
        self.watch.ready.clear()
        self._master_lost = lost_at, self.watch.applied_at
        self.later(seconds, lambda: self._start_again(self.master))

    def undo_all(self) -> None:
        """What is to be done later is done now: nobody stays stopped or away."""
        while self._later:
            self._later.pop()[1]()

    def _go_on(self, number: int) -> None:
        self.workers[number].go_on()
        if number not in self.watch.ready:
            self._lost_at[number] = time.monotonic()

    def _start_again(self, program: Program) -> None:
        self._collect(program, END_SECONDS)
        if program.pid is not None:
            self.told.findings.append(f"{program.role} (process {program.pid}) did not end in {END_SECONDS:g} s")
            program.end(signal.SIGKILL, "killed")
            self._collect(program, END_SECONDS)
        if not self.closing:
            program.start()

    def _count(self, deed: str) -> None:
        self.told.deeds[deed] = self.told.deeds.get(deed, 0) + 1

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something at a later look."""
        self._later.append((time.monotonic() + seconds, what))

    # ------------------------------------------------------------ looking after everybody

    def look(self) -> None:
        """What has to be done again and again; takes LOOK_SECONDS."""
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        for entry in [entry for entry in self._later if entry[0] <= now]:
            self._later.remove(entry)
            entry[1]()
        for program in self.programs:  # the master first: it may have told the others that the run is over
            self._collect(program, 0.0)
        self._look_for_the_left(now)
        for seen in self.watch.look():
            self._ready(seen.worker, seen.pid, seen.at)
        if self._master_lost is not None and self.watch.applied_at > self._master_lost[1]:
            self.told.recoveries.append(now - self._master_lost[0])
            self._master_lost = None
        if now - self._sampled_at >= SAMPLE_SECONDS:
            self._sampled_at = now
            self.told.samples += self.sample()

    def sample(self) -> list[Sample]:
        """What everybody holds now."""
        return [sample for program in self.programs if (sample := program.sample()) is not None]

    def _collect(self, program: Program, seconds: float) -> None:
        """If it has ended: was it asked to, and did it end as it should?"""
        life = program.collect(seconds)
        if life is None:
            return
        if program is self.master and life.code == 0:
            self.closing = True  # the run is over
        right = CODES.get(life.how, frozenset()) | (CODES_OF_THE_END if self.closing else frozenset())
        if life.code in right:
            return
        if life.code in CODES_OF_THE_END and program is not self.master:
            self._left.append((program, life))
        else:
            self._blame(program, life)

    def _look_for_the_left(self, now: float) -> None:
        """Who was told that the run is over leaves before its master, which has an evaluation and files to write."""
        for program, life in [*self._left]:
            if self.closing or now - life.ended > END_SECONDS:
                self._left.remove((program, life))
                if not self.closing:
                    self._blame(program, life)

    def _blame(self, program: Program, life: Process) -> None:
        """It should not have ended, or not so; it is started again as a supervisor would.

        Raises:
            ConfigError: it would end again, and for the same reason.
        """
        if life.code == WRONG_SETTINGS:
            raise ConfigError(f"the {life.role} of the soak ended at once: {program.last_words()}")
        who = f"{life.role} (process {life.pid})"
        self.told.findings.append(f"{who}: {life.how}, with exit code {life.code}; it said: {program.last_words()}")
        if life.how not in CODES and not self.closing:
            self.later(AGAIN_SECONDS, lambda: self._start_again(program))

    def _ready(self, number: int, pid: int | None, at: float) -> None:
        """A worker can be counted on: how long did that take?"""
        worker = self.workers[number]
        if pid is not None and pid == worker.pid and pid not in self._joined:
            self._joined.add(pid)
            self.told.joins.append(at - worker.began)
        lost_at = self._lost_at.pop(number, None)
        if lost_at is not None:
            self.told.returns.append(at - lost_at)
