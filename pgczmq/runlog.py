"""What a run leaves behind: typed records, JSON lines in and out, the run directory.

    runs/<name>/config.toml      the resolved configuration
                steps.jsonl      one StepRecord a step
                events.jsonl     EventRecords: joins, leaves, refusals, late answers, checkpoints
                evals.jsonl      EvalRecords, keyed by the number of updates
                latencies.jsonl  LatencyRecords, one per worker and answer
                result.json      the Result

Times are seconds since the run's start on the master's monotonic clock.
"""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pgczmq.core.values import value
from pgczmq.errors import ConfigError, PgcError

PARTIAL = ".partial-"
"""So begins the name of a file that is not written to its end."""

# ---------------------------------------------------------------- records


@dataclass(frozen=True)
class RunRecord:
    """What views need to know about a run before its first step; never written, it follows from the config.

    Args:
        metric: name of the task's metric; empty where it has none.
    """

    name: str
    directory: str
    scheme: str
    task: str
    workers: int
    stragglers: int
    steps: int
    parameters: int
    metric: str = "accuracy"


@value
class StepRecord:
    """One step, when its update has been applied; the fields of ``core.events.ClosedStep`` and what it cost.

    In deterministic mode ``arrived_at`` and ``closed_at`` are planned: ``published_at`` plus the injected delays, which
    nobody sleeps; what is late is late by that plan. ``published_at`` and ``applied_at`` are real.

    Args:
        inner, distance: as in ``core.policies.Statistics``; None when the run's policy does not read them.
        combining, updating, writing: seconds that the master took, between ``closed_at`` and ``applied_at``, to combine
            what was not added up before, to update the parameters, and to write them where they are sent from; 0 in
            simulated runs.
    """

    step: int
    published_at: float
    closed_at: float
    k: int
    batch_fraction: float
    loss: float
    arrived: tuple[int, ...]
    arrived_at: tuple[float, ...]
    used: tuple[int, ...]
    spare: tuple[int, ...]
    missing: tuple[int, ...]
    weights: tuple[float, ...]
    ages: tuple[tuple[int, ...], ...]
    recovered: float
    max_alpha: float
    fresh: int
    applied_at: float
    norm: float
    bytes: int
    inner: float | None = None
    distance: float | None = None
    combining: float = 0.0
    updating: float = 0.0
    writing: float = 0.0


@dataclass(frozen=True)
class EventRecord:
    """Something that happened beside the steps; ``kind`` is one word.

    Args:
        seconds: of "ready", how long a worker that is back could not be counted on; of "joined", how long it had no
            master, where it was in a run before.
    """

    at: float
    kind: str
    text: str
    worker: int | None = None
    step: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class EvalRecord:
    """The held-out data after ``step`` updates; ``metric`` is None for tasks that have none."""

    step: int
    at: float
    loss: float
    metric: float | None
    seconds: float


@value
class LatencyRecord:
    """Where the time of one answer went, in seconds.

    Args:
        published_at: when the step was published, on the master's clock.
        wait: from having the parameters to beginning on them; durations are the worker's own.
        compute: evaluating and encoding.
        delay: injected; as long as it was slept.
        send: the rest: both ways over the wire.
        arrived_at: on the master's clock.
        evaluated, partitions: how many partitions were evaluated for it, and which.
        outcome: open (in time) or late, as it really was, in deterministic mode too.
        newest_age: least age in the message; 0 unless the worker did not evaluate at this step.
        received_at: when the worker had the parameters, on its own clock; None in simulated runs.
        evaluations: of each partition, one directly after the other; empty in simulated runs.
        dropped: steps before this one that the worker gave up since its answer before, each as (step, received_at,
            delay until it was given up, evaluations...); those that it never began have no evaluations.
    """

    worker: int
    step: int
    published_at: float
    wait: float
    compute: float
    delay: float
    send: float
    arrived_at: float
    evaluated: int
    outcome: str
    newest_age: int
    incarnation: str
    received_at: float | None = None
    evaluations: tuple[float, ...] = ()
    dropped: tuple[tuple[float, ...], ...] = ()
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class WorkerRecord:
    """What a worker says of itself in its heartbeat; a view shows it, nothing is decided by it."""

    worker: int
    at: float
    state: str
    step: int


@dataclass(frozen=True)
class Result:
    """``result.json`` and what ``--json`` writes; the seconds of a simulated run are virtual.

    Args:
        accuracy: the task's metric, whatever it is; ``metric`` is its name.
    """

    scheme: str
    workers: int
    stragglers: int
    steps: int
    seconds: float
    loss: float | None
    accuracy: float | None
    late_fraction: float
    diverged: bool
    weights_sha256: str
    exit: int
    reason: str
    run: str
    virtual_seconds: float | None = None  # of a simulated run
    seconds_per_step: float | None = None
    metric: str = "accuracy"


Record = RunRecord | StepRecord | EventRecord | EvalRecord | LatencyRecord | WorkerRecord | Result
Sink = Callable[[Record], None]
"""Whoever wants to see records as they come: a view, a file, a test. Must not block."""

FILES: dict[type, str] = {
    StepRecord: "steps.jsonl",
    EventRecord: "events.jsonl",
    EvalRecord: "evals.jsonl",
    LatencyRecord: "latencies.jsonl",
}

# ---------------------------------------------------------------- JSON


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_json(record: Record) -> str:
    """One line of strict JSON; numbers that are not finite become null."""
    try:
        return _ENCODER.encode(vars(record))  # records are flat; "asdict" would take five times as long
    except ValueError:
        return _ENCODER.encode(_finite(vars(record)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def read(directory: Path, kind: type[Record]) -> Iterator[Any]:
    """The records of one kind that a run left, in order; a half-written last line is left out.

    Raises:
        ConfigError: the directory holds no such file, or a line of it is no record.
    """
    path = directory / FILES[kind]
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield from_json(kind, line, f"line {number} of {path}")
    except OSError as error:
        raise ConfigError(f"{directory} is not a run directory: cannot read {path.name}: {error.strerror}.") from None


def from_json(kind: type[Record], line: bytes, where: str) -> Any:
    """The record that ``to_json`` wrote; keys that are not known, of other versions, are left out.

    Raises:
        ConfigError: it is none.
    """
    names = _NAMES[kind]
    try:
        return kind(**{name: _restored(name, value) for name, value in json.loads(line).items() if name in names})
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{where} is not a {kind.__name__}: it is damaged, or not of this program.") from None


_NAMES = {kind: frozenset(field.name for field in fields(kind)) for kind in FILES}


def _restored(name: str, value: Any) -> Any:
    if value is None and name in {"loss", "norm", "max_alpha"}:
        return math.nan
    return _tuples(value) if type(value) is list else value


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple([_tuples(inner) if type(inner) is list else inner for inner in values])


# ---------------------------------------------------------------- the run directory


def create_directory(root: Path, name: str) -> Path:
    """Make ``root/name``, or name-2, name-3, ... when that run exists already.

    Raises:
        ConfigError: the directory cannot be made.
    """
    for number in range(1, 10_000):
        directory = root / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            if root.is_dir():
                continue
            raise ConfigError(f"runs are kept in a directory: {root} is a file. Move it, or go elsewhere.") from None
        except NotADirectoryError:
            raise ConfigError(f"runs are kept in a directory: {root} is a file. Move it, or go elsewhere.") from None
        except UnicodeEncodeError:
            raise ConfigError(
                f"in this locale names of files are {sys.getfilesystemencoding()}: got {directory}. Set PYTHONUTF8=1, "
                "or give the run another name."
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot make the run directory {directory}: {error.strerror}.") from None
        return directory
    raise ConfigError(f"there are 9,999 runs named {name} in {root}: choose another name.")


def write_whole(file: Path, text: str) -> None:
    """Write a file, whole or not at all: until then what was there stays.

    Raises:
        OSError: it cannot be written; nothing is left of the attempt.
    """
    temporary = file.with_name(f"{PARTIAL}{file.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_result(directory: Path, result: Result) -> None:
    """Write ``result.json``, whole or not at all.

    Raises:
        PgcError: it cannot be written.
    """
    file = directory / "result.json"
    try:
        write_whole(file, to_json(result) + "\n")
    except OSError as error:
        raise PgcError(f"cannot write {file}: {error.strerror}. Free space there, then --resume auto.") from None


def read_result(path: Path) -> Result:
    """The result in a run directory, or in a file that ``--json`` wrote.

    Raises:
        ConfigError: there is none.
    """
    file = path / "result.json" if path.is_dir() else path
    try:
        return _checked(Result(**json.loads(file.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ConfigError(f"cannot read the result of a run in {file}: {error.strerror}.") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file} does not hold the result of a run: {error}.") from None


def _checked(result: Result) -> Result:
    """A file is foreign text: what is to be a number is one."""
    for field in fields(result):
        given = getattr(result, field.name)
        if not isinstance(given, field.type) and not (isinstance(0.0, field.type) and isinstance(given, int)):  # type: ignore[arg-type]
            raise TypeError(f"{field.name} is {given!r}")
    return result
