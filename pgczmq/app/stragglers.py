"""From the ``[delay]`` section to a straggler model, traces read from their files."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pgczmq.app import own
from pgczmq.config import DelayConfig, DelayPartConfig, RunConfig
from pgczmq.core.codes import Floats
from pgczmq.core.delays import (
    BimodalDelay,
    ConstantDelay,
    DelayModel,
    ExponentialDelay,
    Failure,
    NoDelay,
    ParetoDelay,
    Proportional,
    SomeWorkers,
    TwoParts,
    slow_workers,
)
from pgczmq.core.markov import MarkovDelay
from pgczmq.core.traces import Recording, replay
from pgczmq.errors import ConfigError
from pgczmq.extensions import Kind
from pgczmq.runlog import LatencyRecord, read

_LOAD = re.compile(r"load(\d{3})")
_GROUP = "pgczmq.delays"
PARTS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "constant": frozenset({"mean"}),
    "exponential": frozenset({"mean"}),
    "shifted-exponential": frozenset({"mean", "shift"}),
    "pareto": frozenset({"mean", "shape"}),
    "bimodal": frozenset({"mean", "factor", "slow_fraction"}),
    "markov": frozenset({"mean", "factor", "turns_slow", "recovers"}),
}
"""The built-in models that a part of a delay may have, and the settings that each reads."""
DELAYS: Mapping[str, frozenset[str]] = {**PARTS, "trace": frozenset({"file"})}
"""The same for a delay as a whole."""


def delay_of(config: RunConfig) -> DelayModel:
    """The straggler model of the run.

    Raises:
        ConfigError: it names workers that the run does not have, contradicts itself, or its trace cannot be read.
    """
    model = _whole(config)
    if config.delay.workers is None:
        return model
    strangers = [worker for worker in config.delay.workers if not 0 <= worker < config.workers]
    if strangers:
        raise ConfigError(
            f"delay.workers names workers of this run, 0 to {config.workers - 1}: got {', '.join(map(str, strangers))}."
        )
    return SomeWorkers(model, frozenset(config.delay.workers))


def failures_of(config: RunConfig) -> tuple[Failure, ...]:
    """Who is gone when, for the simulator; by time. Those of one worker do not overlap.

    Raises:
        ConfigError: a worker that the run does not have, or one that goes while it is gone.
    """
    made = [Failure(one.worker, one.down_at, one.back_at) for one in config.delay.failures]
    made.sort(key=lambda failure: (failure.down_at, failure.worker))
    for place, failure in enumerate(made):
        if failure.worker >= config.workers:
            raise ConfigError(
                f"delay.failures names workers of this run, 0 to {config.workers - 1}: got worker={failure.worker}."
            )
        if any(earlier.covers(failure.worker, failure.down_at) for earlier in made[:place]):
            raise ConfigError(
                f"a worker that is gone cannot go: got delay.failures with worker={failure.worker}, "
                f"down_at={failure.down_at:g} before it is back."
            )
    return tuple(made)


def _whole(config: RunConfig) -> DelayModel:
    delay = config.delay
    communication, computation = delay.communication, delay.computation
    if communication is None and computation is None:
        if delay.model == "trace":
            return replay(_recordings(delay), workers=config.workers, seed=config.seed)
        return _part(delay, config, "delay", "delay")
    if delay.model != "none":
        raise ConfigError(
            "a delay has one model, or parts with models of their own: got delay.model="
            f'"{delay.model}" beside [delay.communication] or [delay.computation]. Leave delay.model out.'
        )
    sent = _part(communication or DelayPartConfig(), config, "delay.communication", "delay sent")
    computed = _part(computation or DelayPartConfig(), config, "delay.computation", "delay computed")
    return TwoParts(Proportional(computed), sent)


def _part(part: DelayPartConfig, config: RunConfig, section: str, stream: str) -> DelayModel:
    seed, mean = config.seed, part.mean
    match part.model:
        case "constant":
            return ConstantDelay(mean)
        case "exponential":
            return ExponentialDelay(seed, mean, stream=stream)
        case "shifted-exponential":
            return ExponentialDelay(seed, mean, part.shift, stream)
        case "pareto":
            return ParetoDelay(seed, mean, part.shape, stream)
        case "bimodal":
            candidates = range(config.workers) if config.delay.workers is None else config.delay.workers
            return BimodalDelay(seed, mean, part.factor, slow_workers(seed, candidates, part.slow_fraction), stream)
        case "markov":
            return MarkovDelay(seed, mean, part.factor, part.turns_slow, part.recovers, stream)
        case "none":
            return NoDelay()
        case name:
            kind = Kind("delay model", _GROUP, DELAYS if section == "delay" else PARTS)
            return own.delay_model(kind, name, part.args, section=section, stream=stream, config=config)


# ---------------------------------------------------------------- traces


def _recordings(delay: DelayConfig) -> list[Recording]:
    """Of CSV files, one a load, or of the latencies of an earlier run."""
    if not delay.file:
        raise ConfigError(
            'delay.model="trace" needs delay.file: CSV files with their load in the name, such as '
            '["cnn-load000.csv", "cnn-load100.csv"], or the directory of an earlier run.'
        )
    paths = [Path(name) for name in ([delay.file] if isinstance(delay.file, str) else delay.file)]
    runs = [path for path in paths if path.is_dir() or path.suffix == ".jsonl"]
    if not runs:
        return [read_csv(path) for path in paths]
    if len(paths) > 1:
        raise ConfigError(f"a trace is one earlier run or CSV files: got delay.file with {len(paths)} names.")
    return read_run(paths[0] if paths[0].is_dir() else paths[0].parent)


def read_csv(path: Path) -> Recording:
    """Response times as in ``round,w0,w1,...``; the load is in the name, ``load025`` = a quarter of the data.

    Raises:
        ConfigError: no load in the name, or the file is not of this form.
    """
    load = _LOAD.search(path.stem)
    if load is None:
        raise ConfigError(
            f"a trace's name says how much of the data each worker evaluated, as in cnn-load025.csv: got {path.name}."
        )
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        seconds = np.array([[float(cell) for cell in row[1:]] for row in rows])
    except OSError as error:
        raise ConfigError(
            f"cannot read the trace {path}: {error.strerror}. Relative paths start at {Path.cwd()}."
        ) from None
    except ValueError:
        header, seconds = [], np.empty((0, 0))
    if header[:2] != ["round", "w0"] or seconds.ndim != 2 or seconds.shape[1:] != (len(header) - 1,):
        raise ConfigError(
            f"{path} is not a trace: it should begin with round,w0,w1,... and hold seconds, a row a round."
        )
    return Recording(int(load[1]) / 100, seconds)


def read_run(directory: Path) -> list[Recording]:
    """What an earlier run recorded, at two loads: without computation, and with what most answers evaluated.

    Waiting for the worker's own earlier steps is left out: it comes of itself when the trace is replayed. Where a
    worker skipped a step, the time of its answer before stands in for it.

    Raises:
        ConfigError: the directory holds no such run, or a worker never answered.
    """
    records = [record for record in read(directory, LatencyRecord) if record.evaluated]
    if not records:
        raise ConfigError(f"{directory} holds no latencies of workers that evaluated anything.")
    ((usual, _),) = Counter(record.evaluated for record in records).most_common(1)
    records = [record for record in records if record.evaluated == usual]
    workers = 1 + max(record.worker for record in records)
    rest = _filled(directory, records, workers, [record.send + record.delay for record in records])
    whole = _filled(directory, records, workers, [record.send + record.delay + record.compute for record in records])
    return [Recording(0.0, rest), Recording(usual / workers, whole)]


def _filled(directory: Path, records: Sequence[LatencyRecord], workers: int, seconds: Sequence[float]) -> Floats:
    """A row for each step, a column for each worker; gaps take the value above, or the first below."""
    steps = sorted({record.step for record in records})
    row = {step: place for place, step in enumerate(steps)}
    table: Floats = np.full((len(steps), workers), np.nan)
    for record, value in zip(records, seconds, strict=True):
        table[row[record.step], record.worker] = value
    known = ~np.isnan(table)
    silent = np.flatnonzero(~known.any(axis=0)).tolist()
    if silent:
        raise ConfigError(f"the run in {directory} has no answers of workers {', '.join(map(str, silent))}.")
    places = np.where(known, np.arange(len(steps))[:, None], -1)
    last = np.maximum.accumulate(places, axis=0)
    source = np.where(last >= 0, last, known.argmax(axis=0))
    return np.take_along_axis(table, source, axis=0)
