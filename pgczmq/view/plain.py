"""A run as log lines, for files and pipes."""

import math

from pgczmq.runlog import EvalRecord, EventRecord, Record, Result, RunRecord, StepRecord
from pgczmq.view import words
from pgczmq.view.state import QUIET, RunView

EVERY_SECONDS = 10.0


class PlainLog:
    """A view that tells what is new in lines: everything that matters at once, progress now and then.

    Args:
        every: seconds of the run between two lines of progress.
    """

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self.view = RunView()
        self._every = every
        self._told_at = 0.0

    def feed(self, record: Record) -> list[str]:
        """Take the next record; returns the lines to write."""
        self.view.add(record)
        if isinstance(record, StepRecord):
            if record.applied_at - self._told_at < self._every:
                return []
            self._told_at = record.applied_at
        return lines(record, self.view)


def lines(record: Record, view: RunView) -> list[str]:
    """What there is to say about a record that ``view`` has taken already; nothing for most of them."""
    match record:
        case RunRecord():
            return [_line(0.0, _run(record))]
        case StepRecord():
            return [_line(record.applied_at, _progress(view))]
        case EventRecord():
            return [] if record.kind in QUIET else [_line(record.at, _event(record))]
        case EvalRecord():
            return [_line(record.at, _eval(record))]
        case Result():
            return [_line(max(record.seconds, view.latest_at), _result(record))]
        case _:
            return []


def _line(at: float, text: str) -> str:
    return words.clean(f"[{at:8.1f} s] {text}")


def _run(run: RunRecord) -> str:
    what = f"{run.name}: {run.task} with {run.scheme}, stragglers={run.stragglers}"
    size = f"{words.count(run.workers, 'worker')}, {words.count(run.steps, 'step')}"
    return f"{what}, {size}, {words.count(run.parameters, 'parameter')}; {run.directory}"


def _event(event: EventRecord) -> str:
    urgent = {"waiting": "WAITING: ", "stall": "STALL: "}
    return urgent.get(event.kind, "") + event.text


def _progress(view: RunView) -> str:
    done = f"step {view.steps_done}"
    if view.steps:
        done += f"/{view.steps} ({words.percent(math.floor(100 * view.steps_done / view.steps) / 100)})"
    speed = f"{words.number(view.steps_per_second, 3)} steps/s"
    left = f", {words.clock(view.seconds_left)} left" if view.seconds_left is not None else ""
    return f"{done}, loss {words.number(view.loss)}, {speed}, late {words.percent(view.late_fraction)}{left}"


def _eval(record: EvalRecord) -> str:
    metric = "" if record.metric is None else f", accuracy {words.accuracy(record.metric)}"
    return f"after {words.count(record.step, 'step')}: held-out loss {words.number(record.loss)}{metric}"


def _result(result: Result) -> str:
    end = "diverged" if result.diverged else "done" if result.exit == 0 else "ended"
    parts = [f"{end}: {words.count(result.steps, 'step')} in {words.duration(result.seconds)}"]
    parts.append(f"loss {words.number(result.loss)}")
    if result.accuracy is not None:
        parts.append(f"accuracy {words.accuracy(result.accuracy)}")
    parts.append(f"late {words.percent(result.late_fraction)}")
    why = f"; {result.reason} (exit code {result.exit})" if result.exit or result.diverged else ""
    return f"{', '.join(parts)}{why}"
