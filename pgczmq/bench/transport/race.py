"""The transport bench: contenders take turns, round after round, so that a machine that slows down does so for all.

A turn starts a contender's processes, lets them make some steps, checks the result and ends them: nobody else is
there meanwhile. The first steps of each turn, in which memory is touched for the first time, do not count.
"""

import contextlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from pgczmq.app.processes import place_for_sockets
from pgczmq.bench.transport.turn import Took, Turn
from pgczmq.bench.transport.work import Work
from pgczmq.errors import ConfigError, PgcError
from pgczmq.net.memory import why_not_here

ROUNDS = 5
WARM_UP = 3
"""Steps of each turn that do not count."""
TURN_SECONDS = 1.0
"""Once it is known how long a step takes, a turn has as many as fill this, or more if more are asked for."""
LIMIT_SECONDS = 600.0
LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Contender:
    """A program that takes part.

    Args:
        module: its file in ``contenders``.
        wire_dtype: in what it carries vectors.
    """

    module: str
    wire_dtype: str = "float32"


CONTENDERS = {
    "shm": Contender("program"),
    "ipc": Contender("program"),
    "tcp": Contender("program"),
    "tcp-bfloat16": Contender("program", "bfloat16"),
    "tcp-curve": Contender("program"),
    "ray": Contender("ray_loop"),
    "gloo-allreduce": Contender("gloo"),
    "gloo-ps": Contender("gloo"),
    "pyzmq": Contender("pyzmq_loop"),
    "memory": Contender("memory_bound"),
    "raw-tcp": Contender("raw_tcp"),
}
OWN = ("shm", "ipc", "tcp", "tcp-bfloat16", "tcp-curve")
AGAINST = {"ray": ("ray",), "gloo": ("gloo-allreduce", "gloo-ps"), "pyzmq": ("pyzmq",), "memory": ("memory",)}
"""What can be asked for, and the rows that it means; raw-tcp is always there."""


@dataclass(frozen=True)
class Row:
    """What a contender took.

    Args:
        median_ms, min_ms, max_ms: of all steps that count, in milliseconds.
        bytes: parameters that all workers take and gradients that they give in a step; how often a transport moves
            them on the way is its own affair.
        peak_rss_mb: the most memory that the process which updates the parameters ever had (VmHWM on Linux), shared
            memory included; of gloo-allreduce, where every worker does, one of them. MB of 10^6 bytes.
    """

    name: str
    median_ms: float
    min_ms: float
    max_ms: float
    bytes: int
    peak_rss_mb: float


def entrants(against: Sequence[str]) -> list[str]:
    """Names of the rows, in their order.

    Raises:
        ConfigError: one is unknown.
    """
    for name in against:
        if name not in AGAINST:
            raise ConfigError(f"--against takes names out of {', '.join(AGAINST)}: got {name!r}.")
    wanted = {*OWN, *(row for name in against for row in AGAINST[name]), "raw-tcp"}
    return [name for name in CONTENDERS if name in wanted]


def why_not(name: str) -> str:
    """Why a contender cannot take part on this machine; empty when it can."""
    if name == "ray" and importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install 'pgczmq[ray]'"
    return why_not_here() if name == "shm" else ""


class Race:
    """All turns of some contenders.

    Args:
        work: what is computed.
        steps: that count, of each contender, at least.
        names: of the contenders.
        take: takes one turn: name, work, steps with warm-up.
    """

    def __init__(
        self,
        work: Work,
        *,
        steps: int,
        names: Sequence[str],
        take: Callable[[str, Work, int], Took] | None = None,
    ) -> None:
        self._work = work
        self._take = take or take_turn
        self._steps = steps
        self._rounds = min(ROUNDS, steps)
        self._seconds: dict[str, list[float]] = {name: [] for name in names}
        self._peak_rss_mb = dict.fromkeys(names, 0.0)

    @property
    def turns(self) -> int:
        """How many there are."""
        return self._rounds * len(self._seconds)

    def run(self) -> Iterator[str]:
        """Take all turns; yields the name of the contender after each.

        Raises:
            PgcError: see ``take_turn``.
        """
        for number in range(self._rounds):
            for name, seconds in self._seconds.items():
                took = self._take(name, self._work, WARM_UP + self._in_round(number, seconds))
                seconds += took.seconds[WARM_UP:]
                self._peak_rss_mb[name] = max(self._peak_rss_mb[name], took.peak_rss_mb)
                yield name

    @property
    def rows(self) -> list[Row]:
        """What was measured."""
        return [
            Row(
                name,
                1e3 * median(seconds),
                1e3 * min(seconds),
                1e3 * max(seconds),
                self._work.payload_bytes(CONTENDERS[name].wire_dtype),
                self._peak_rss_mb[name],
            )
            for name, seconds in self._seconds.items()
        ]

    def _in_round(self, number: int, before: Sequence[float]) -> int:
        """Steps that count in a round, given the seconds of those before."""
        asked = self._steps // self._rounds + (number < self._steps % self._rounds)
        return max(asked, math.ceil(TURN_SECONDS / median(before))) if before else asked


def take_turn(name: str, work: Work, steps: int) -> Took:
    """One turn, in a process group whose members all end with it.

    Raises:
        PgcError: the contender failed, or its result is wrong.
    """
    place = place_for_sockets()
    with tempfile.TemporaryDirectory(prefix="pgc-bench-", dir=place, ignore_cleanup_errors=True) as scratch:
        turn = Turn(work.workers, work.params, steps, variant=name, scratch=scratch)
        errors = Path(scratch) / "stderr"
        with errors.open("w", encoding="utf-8") as stderr, _started(name, turn, stderr.fileno()) as process:
            answer, _ = process.communicate(timeout=LIMIT_SECONDS)
        if process.returncode or not answer:
            said = errors.read_text(errors="replace", encoding="utf-8").strip().splitlines() or ["it said nothing"]
            raise PgcError(f"{name} failed with exit code {process.returncode}: {said[-1]}")
    took = Took(**json.loads(answer.splitlines()[-1]))
    if took.error:
        raise PgcError(f"{name}: {took.error}")
    return took


@contextlib.contextmanager
def _started(name: str, turn: Turn, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """A contender; it ends with the ``with``, and also when this process is gone: see ``turn.serve``."""
    lifeline, held = os.pipe()
    module = f"pgczmq.bench.transport.contenders.{CONTENDERS[name].module}"
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(turn))],
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | _settings(),
            start_new_session=True,
            text=True,
        )
        try:
            yield process
        finally:
            _end(process)
        os.write(held, b".")
    finally:
        os.close(lifeline)
        os.close(held)


def _end(process: subprocess.Popen[str]) -> None:
    """Let it end what it has started elsewhere, as Ray does, then end all of its group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _settings() -> dict[str, str]:
    """Environment of all contenders: one thread for torch and BLAS, the loopback for gloo, no reports by Ray."""
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONSAFEPATH": "1",
    }
