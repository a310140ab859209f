"""One turn of a contender: a process group of its own, told on its command line, answering with one line of JSON."""

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from pgczmq.bench.transport.work import Work
from pgczmq.errors import PgcError

GUARD_LOOKS, GUARD_SECONDS = 50, 0.1
"""How often, and after which pauses, a killed turn is cleared away, since somebody may just be writing there."""


@dataclass(frozen=True)
class Turn:
    """What a contender is to do.

    Args:
        workers, params: as in Work.
        steps: how many, warm-up included.
        variant: which of several loops that one file knows; empty where it knows one.
        scratch: a directory for files and sockets, removed after the turn.
    """

    workers: int
    params: int
    steps: int
    variant: str
    scratch: str

    @property
    def work(self) -> Work:
        """What is computed."""
        return Work(self.workers, self.params)


@dataclass(frozen=True)
class Took:
    """What a contender answers.

    Args:
        seconds: of each step, warm-up included.
        peak_rss_mb: most memory that the master's process had at a time, shared memory included; MB of 10^6 bytes.
        error: what went wrong, empty if nothing did.
    """

    seconds: list[float]
    peak_rss_mb: float
    error: str = ""


class Clock:
    """Seconds of each step, from the end of the one before."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = time.perf_counter()

    def start(self) -> None:
        """The first step begins."""
        self._since = time.perf_counter()

    def lap(self) -> None:
        """A step ends and the next begins."""
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self._since = now


class Crew:
    """The worker processes of a turn, forked; make it before there are threads, sockets or contexts to inherit.

    Args:
        turn: whose workers they are.
        target: what each runs: the turn, its number, and a pipe on which it may be told something.
        numbers: of the workers.
    """

    def __init__(self, turn: Turn, target: Callable[[Turn, int, Connection], None], numbers: Iterable[int]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in numbers:
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(target, turn, number, receiving), daemon=True)
            process.start()
            self._pipes.append(sending)
            self._processes.append(process)

    def tell(self, what: object) -> None:
        """Send it to every worker."""
        for pipe in self._pipes:
            pipe.send(what)

    def join(self) -> None:
        """Wait until all have ended of themselves."""
        for process in self._processes:
            process.join()


def serve(run: Callable[[Turn], list[float]]) -> None:
    """The main program of a contender: take the turn and answer.

    Args:
        run: checks its result, and returns the seconds of each step.
    """
    turn = Turn(**json.loads(sys.argv[1]))
    contender = os.getpid()
    if os.fork() == 0:
        _guard(contender, turn.scratch)
    try:
        answer = Took(run(turn), peak_rss_mb())
    except PgcError as error:
        answer = Took([], 0.0, str(error))
    print(json.dumps(asdict(answer)), flush=True)


def peak_rss_mb() -> float:
    """The most memory this process ever had, MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the process before exec had
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _work(target: Callable[[Turn, int, Connection], None], turn: Turn, number: int, pipe: Connection) -> None:
    """In the child. A worker that fails takes its contender along: nobody would get its gradient."""
    try:
        target(turn, number, pipe)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os.killpg(0, signal.SIGKILL)


def _guard(contender: int, scratch: str) -> NoReturn:
    """In a process beside the turn: if the bench is killed, end the turn and remove what it has on disk.

    Standard input brings a byte when the bench itself has seen to that, and ends without one when it is gone.
    """
    os.setsid()
    os.close(sys.stdout.fileno())  # the bench waits for its end
    if os.read(sys.stdin.fileno(), 1) == b"":
        if os.getppid() == contender:
            os.killpg(contender, signal.SIGKILL)
        for _ in range(GUARD_LOOKS):
            _end_all_of(scratch)
            shutil.rmtree(scratch, ignore_errors=True)
            time.sleep(GUARD_SECONDS)
    os._exit(0)


def _end_all_of(scratch: str) -> None:
    """Kill whoever was started with this directory, whose name nobody else has; Ray's workers are in no group of ours.

    Most of them go of themselves with who started them, but one that is just starting waits half a minute for it.
    """
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            process = int(file.parent.name)
            if scratch.encode() in file.read_bytes() and process != os.getpid():
                os.kill(process, signal.SIGKILL)
