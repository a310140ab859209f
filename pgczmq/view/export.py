"""A run's records as files for other programs: tables, TensorBoard's events, a Chrome trace."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from pgczmq.errors import ConfigError
from pgczmq.rundirs import RunDirectory
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, Record, StepRecord, read
from pgczmq.view.pictures.past import Array, Past, left, read_past
from pgczmq.view.trace import chrome_trace

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

TRACED_ANSWERS = 200_000
"""More make a trace that no viewer opens with pleasure."""

Cell = float | str | None
Table = tuple[Sequence[str], Iterable[Sequence[Cell]]]
"""Heading and rows."""


def write_csv(run: RunDirectory, folder: Path) -> list[Path]:
    """``steps.csv``, ``answers.csv``, ``evals.csv`` and ``events.csv``: one record a row, times in seconds.

    Raises:
        ConfigError: the folder cannot be written, or a record is none.
    """
    tables: dict[str, Callable[[Path], Table]] = {
        "steps.csv": _steps,
        "answers.csv": _answers,
        "evals.csv": _evals,
        "events.csv": _events,
    }
    files = [_folder(folder) / name for name in tables]
    for file, table in zip(files, tables.values(), strict=True):
        heading, rows = table(run.path)
        with file.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.writer(opened)
            writer.writerow(heading)
            writer.writerows(rows)
    return files


def write_trace(run: RunDirectory, file: Path) -> int:
    """One trace of the first steps, as many as ``TRACED_ANSWERS`` allows; returns how many.

    Raises:
        ConfigError: a record is none.
    """
    steps: list[StepRecord] = []
    answers = 0
    for step in read(run.path, StepRecord):
        answers += len(step.arrived) + len(step.missing)
        if steps and answers > TRACED_ANSWERS:
            break
        steps.append(step)
    if not steps:
        raise ConfigError(f"{run.path} holds no step: its run has not closed one. Try again later.")
    end = steps[-1].applied_at
    records: list[Record] = [*steps, *takewhile(lambda answer: answer.arrived_at <= end, left(run.path, LatencyRecord))]
    file.write_text(json.dumps(chrome_trace({run.name: records}), allow_nan=False) + "\n", encoding="utf-8")
    return len(steps)


def write_tensorboard(run: RunDirectory, folder: Path) -> Path:
    """Scalars of every step and evaluation; the time of each is seconds (virtual ones, too) since the first step.

    Raises:
        ConfigError: the package is not there, or the folder holds another run's events.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise ConfigError(
            "exporting to TensorBoard needs the package tensorboard, which is not installed. "
            'pip install "pgczmq[tensorboard]" brings it.'
        ) from None
    past = read_past(run.path)
    file = _folder(folder) / f"events.out.tfevents.0.{run.name}"
    others = [other.name for other in folder.glob("*tfevents*") if other != file]
    if others:
        raise ConfigError(
            f"TensorBoard takes all events of a folder for one run: {folder} holds {others[0]} already. "
            f"--out {folder / run.name} would work."
        )
    with file.open("wb") as opened:
        writer = RecordWriter(opened)
        writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        for event in _tensorboard_events(past, run.result.metric if run.result else ""):
            writer.write(event.SerializeToString())
    return file


def _folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# ---------------------------------------------------------------- TensorBoard


def _tensorboard_events(past: Past, metric: str) -> Iterator["Event"]:
    late_S, missing_S = ((past.fate_SN == fate).sum(1) for fate in (1, 0))
    of_steps: dict[str, Array] = {
        "loss/training": past.loss_S,
        "step/seconds": past.period_S,
        "step/k": past.k_S,
        "step/batch fraction": past.batch_fraction_S,
        "step/recovered": past.recovered_S,
        "step/late answers": late_S.astype(float),
        "step/missing answers": missing_S.astype(float),
        "age/mean": past.mean_age_S,
        "age/largest": past.max_age_S,
    }
    yield from _scalars(past.step_S + 1, past.applied_S, of_steps)
    held_out = {"loss/held out": past.eval_loss_E, f"{metric or 'metric'}/held out": past.metric_E}
    yield from _scalars(past.eval_steps_E, past.eval_at_E, held_out)


def _scalars(steps: Iterable[int], at: Array, columns: dict[str, Array]) -> Iterator["Event"]:
    """One event a row; numbers that are not finite are left out."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for step, seconds, *numbers in zip(steps, at, *columns.values(), strict=True):
        values = [
            Summary.Value(tag=tag, simple_value=number)
            for tag, number in zip(columns, numbers, strict=True)
            if math.isfinite(number)
        ]
        yield Event(wall_time=float(seconds), step=int(step), summary=Summary(value=values))


# ---------------------------------------------------------------- tables

_PLAIN = ("k", "batch_fraction", "loss", "recovered", "max_alpha", "fresh", "norm", "bytes", "inner", "distance")
_MASTERS = ("combining", "updating", "writing")
_OF_ANSWERS = ("worker", "step", "outcome", "published_at", "arrived_at", "wait", "compute", "delay", "send")
_MORE_OF_ANSWERS = ("evaluated", "newest_age")


def _steps(directory: Path) -> Table:
    heading = ["step", "published_at", "closed_at", "applied_at", "arrived", "used", "spare", "missing"]
    return [*heading, "mean_age", "max_age", *_PLAIN, *_MASTERS], map(_step_row, left(directory, StepRecord))


def _step_row(step: StepRecord) -> list[Cell]:
    ages = [age for parts in step.ages for age in parts]
    counts = [len(step.arrived), len(step.used), len(step.spare), len(step.missing)]
    mean, most = (sum(ages) / len(ages), max(ages)) if ages else (None, None)
    others = [getattr(step, name) for name in (*_PLAIN, *_MASTERS)]
    return [step.step, step.published_at, step.closed_at, step.applied_at, *counts, mean, most, *others]


def _answers(directory: Path) -> Table:
    names = (*_OF_ANSWERS, *_MORE_OF_ANSWERS)
    answers = left(directory, LatencyRecord)
    return ["seconds", *names], (
        [answer.arrived_at - answer.published_at, *(getattr(answer, name) for name in names)] for answer in answers
    )


def _evals(directory: Path) -> Table:
    names = ("step", "at", "loss", "metric", "seconds")
    return names, ([getattr(one, name) for name in names] for one in left(directory, EvalRecord))


def _events(directory: Path) -> Table:
    names = ("at", "kind", "worker", "step", "seconds", "text")
    return names, ([getattr(event, name) for name in names] for event in left(directory, EventRecord))
