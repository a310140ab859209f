"""A run as log lines, for files and pipes."""

import math
from collections.abc import Sequence
from operator import itemgetter

from pgczmq.gather.gathering import QUIET, Gathering
from pgczmq.picture import Picture, Seen
from pgczmq.runlog import EvalRecord, EventRecord, Record, Result, RunRecord, StepRecord
from pgczmq.view import words

EVERY_SECONDS = 10.0


class PlainLog:
    """A view that tells what is new in lines: everything that matters at once, progress now and then.

    Args:
        every: seconds of the run between two lines of progress.
    """

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self._gathering = Gathering()
        self._every = every
        self._told_at = 0.0

    def feed(self, record: Record) -> list[str]:
        """Take the next record; returns the lines to write."""
        self._gathering.add(record)
        if isinstance(record, StepRecord):
            if record.applied_at - self._told_at < self._every:
                return []
            self._told_at = record.applied_at
        return lines(record, self._gathering)


def lines(record: Record, known: Gathering) -> list[str]:
    """What there is to say about a record that has been taken in already; nothing for most of them."""
    match record:
        case RunRecord():
            return [_line(0.0, _run(record))]
        case StepRecord():
            return [_line(record.applied_at, _progress(known.picture))]
        case EventRecord():
            return [] if record.kind in QUIET else [_line(record.at, _event(record))]
        case EvalRecord():
            return [_line(record.at, _eval(record))]
        case Result():
            return [_line(max(record.seconds, known.at), _result(record))]
        case _:
            return []


def news(before: Seen | None, after: Seen, every: float = EVERY_SECONDS) -> list[str]:
    """What there is to say about a run between two looks at it, the same as ``PlainLog`` says, but less exactly.

    Args:
        before: the earlier look; None when there was none.
        every: seconds of the run between two lines of progress.
    """
    old, new = before.picture if before else Picture(), after.picture
    if old.run != new.run:
        old = Picture()  # another run: all of it is new
    told = [] if new.run is None or old.run == new.run else [_line(0.0, _run(new.run))]
    happened = [(event.at, _event(event)) for event in _after(old.events, new.events)]
    if new.evaluation is not None and new.evaluation != old.evaluation:
        happened.append((new.evaluation.at, _eval(new.evaluation)))
    if new.steps_done != old.steps_done and (new.at // every > old.at // every or before is None):
        happened.append((new.at, _progress(new)))
    told += [_line(at, text) for at, text in sorted(happened, key=itemgetter(0))]
    if new.result is not None and new.result != old.result:
        told.append(_line(max(new.result.seconds, new.at), _result(new.result)))
    if after.note and not (before and before.note):
        told.append(_line(after.now, after.note))
    return told


def _after(old: Sequence[EventRecord], new: Sequence[EventRecord]) -> Sequence[EventRecord]:
    """Those that came after the last old one."""
    known = [place for place, event in enumerate(new) if old and event == old[-1]]
    return new[known[-1] + 1 :] if known else new


def _line(at: float, text: str) -> str:
    return words.clean(f"[{at:8.1f} s] {text}")


def _run(run: RunRecord) -> str:
    what = f"{run.name}: {run.task} with {run.scheme}, stragglers={run.stragglers}"
    size = f"{words.count(run.workers, 'worker')}, {words.count(run.steps, 'step')}"
    parameters = f", {words.count(run.parameters, 'parameter')}" if run.parameters else ""
    return f"{what}, {size}{parameters}; {run.directory}"


def _event(event: EventRecord) -> str:
    urgent = {"waiting": "WAITING: ", "stall": "STALL: "}
    return urgent.get(event.kind, "") + event.text


def _progress(picture: Picture) -> str:
    done = f"step {picture.steps_done}"
    if picture.steps:
        done += f"/{picture.steps} ({words.percent(math.floor(100 * picture.steps_done / picture.steps) / 100)})"
    speed = f"{words.number(picture.steps_per_second, 3)} steps/s"
    left = f", {words.clock(picture.seconds_left)} left" if picture.seconds_left is not None else ""
    return (
        f"{done}, loss {words.number(picture.loss.typical)}, {speed}, late {words.percent(picture.late_fraction)}{left}"
    )


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
