"""Runs as a Chrome trace, to be opened at ui.perfetto.dev or chrome://tracing: who did what when.

A run is a process of the trace. Its rows are the steps, the master (which waits for answers, combines, updates and
writes) and each worker (which waits, evaluates, encodes, is delayed, and sends). Times count from the run's start.

A worker's clock is its own. It is set so that the quickest parameters it ever received took no time: all of them were
received then after they were published, and what looks late is late. What remains is cut where spans of a row would
overlap: an answer is no longer under way, in the picture, when its worker begins on the next step.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from pgczmq.runlog import LatencyRecord, Record, StepRecord

STEPS_ROW, MASTER_ROW, FIRST_WORKER_ROW = 0, 1, 2
Event = dict[str, object]


def chrome_trace(runs: Mapping[str, Iterable[Record]]) -> dict[str, object]:
    """A JSON document in the trace event format.

    Args:
        runs: names and records, in any order; of those only StepRecords and LatencyRecords are read. In a deterministic
            run steps close as planned, whoever is still on the way.
    """
    found: list[Event] = []
    for number, (name, records) in enumerate(runs.items()):
        found += _run_events(number, name, list(records))
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _run_events(run: int, name: str, records: Sequence[Record]) -> list[Event]:
    steps = sorted((one for one in records if isinstance(one, StepRecord)), key=lambda step: step.step)
    answers: defaultdict[int, list[LatencyRecord]] = defaultdict(list)
    for record in records:
        if isinstance(record, LatencyRecord):
            answers[record.worker].append(record)
    rows = [_steps_row(run, steps), _master_row(run, steps)]
    rows += [_worker_row(run, worker, answers[worker]) for worker in sorted(answers)]
    return [_named(run, None, name), *(event for row in rows for event in row.events)]


class _Row:
    """Spans one after the other; the later one is cut where two would overlap."""

    def __init__(self, run: int, number: int, name: str) -> None:
        self._place: Event = {"pid": run, "tid": number}
        self._end = 0
        self.events: list[Event] = [_named(run, number, name)]

    @property
    def end(self) -> float:
        """Of the last span, seconds."""
        return self._end / 1e9

    def add(self, name: str, begin: float, end: float, **details: object) -> None:
        """A span, unless nothing is left of it; whole nanoseconds, so that neighbours touch."""
        first, last = max(self._end, round(1e9 * begin)), round(1e9 * end)
        if last <= first:
            return
        times: Event = {"ts": first / 1000, "dur": (last - first) / 1000}
        self.events.append({"name": name, "ph": "X", **times, **self._place, "args": details})
        self._end = last


def _named(run: int, row: int | None, name: str) -> Event:
    """What a run or one of its rows is called."""
    kind, place = ("process_name", 0) if row is None else ("thread_name", row)
    return {"name": kind, "ph": "M", "ts": 0, "pid": run, "tid": place, "args": {"name": name}}


# ---------------------------------------------------------------- the master's clock


def _steps_row(run: int, steps: Sequence[StepRecord]) -> _Row:
    """Each from its publication to the next one; the last until it is applied."""
    row = _Row(run, STEPS_ROW, "steps")
    ends = [after.published_at for _, after in pairwise(steps)] + [step.applied_at for step in steps[-1:]]
    for step, end in zip(steps, ends, strict=True):
        loss = step.loss if math.isfinite(step.loss) else None
        row.add(f"step {step.step}", step.published_at, end, used=step.used, missing=step.missing, loss=loss)
    return row


def _master_row(run: int, steps: Sequence[StepRecord]) -> _Row:
    """What it took after a step closed is recorded without its place: it ends when the update is applied."""
    row = _Row(run, MASTER_ROW, "master")
    for step in steps:
        at = step.applied_at - step.combining - step.updating - step.writing
        row.add("wait for answers", step.published_at, min(step.closed_at, at), step=step.step)
        for name, seconds in (("combine", step.combining), ("update", step.updating), ("write", step.writing)):
            row.add(name, at, at + seconds, step=step.step)
            at += seconds
    return row


# ---------------------------------------------------------------- a worker's own clock


def _worker_row(run: int, worker: int, answers: Iterable[LatencyRecord]) -> _Row:
    row = _Row(run, FIRST_WORKER_ROW + worker, f"worker {worker}")
    in_order = sorted(answers, key=lambda answer: answer.arrived_at)
    ahead = _ahead(in_order)
    for answer, after in zip(in_order, [*in_order[1:], None], strict=True):
        _add_given_up(row, answer, ahead)
        sent_at = _add_work(row, answer, ahead)
        until = answer.arrived_at if after is None else min(answer.arrived_at, _next_at(after, ahead))
        row.add("send", sent_at, until, step=answer.step, outcome=answer.outcome)
    return row


def _ahead(answers: Iterable[LatencyRecord]) -> dict[str, float]:
    """Seconds by which the clock of each incarnation of a worker is ahead of the master's."""
    found: dict[str, float] = {}
    for answer in answers:
        if answer.received_at is not None:
            ahead = answer.received_at - answer.published_at
            found[answer.incarnation] = min(ahead, found.get(answer.incarnation, ahead))
    return found


def _received_at(answer: LatencyRecord, ahead: Mapping[str, float]) -> float:
    if answer.received_at is None:
        return answer.published_at
    return answer.received_at - ahead[answer.incarnation]


def _next_at(answer: LatencyRecord, ahead: Mapping[str, float]) -> float:
    """When the worker began on this answer, or on a step that it gave up before."""
    given_up = [entry[1] - ahead.get(answer.incarnation, 0.0) for entry in answer.dropped if len(entry) > 3]
    return min([_received_at(answer, ahead) + answer.wait, *given_up])


def _add_given_up(row: _Row, answer: LatencyRecord, ahead: Mapping[str, float]) -> None:
    """What went into steps that were never answered; how long they waited is not known."""
    for step, received_at, delay, *evaluations in answer.dropped:
        at = max(row.end, received_at - ahead.get(answer.incarnation, 0.0))
        if not evaluations:
            continue
        for seconds in evaluations:
            row.add("evaluate, given up", at, at + seconds, step=int(step))
            at += seconds
        row.add("delay", at, at + delay, step=int(step))


def _add_work(row: _Row, answer: LatencyRecord, ahead: Mapping[str, float]) -> float:
    """From having the parameters to having an answer; returns when that was."""
    received_at = _received_at(answer, ahead)
    at = received_at + answer.wait
    row.add("wait", received_at, at, step=answer.step)
    for name, seconds in _parts(answer):
        row.add(name, at, at + seconds, step=answer.step)
        at += seconds
    return at


def _parts(answer: LatencyRecord) -> list[tuple[str, float]]:
    """In their order; simulated runs record evaluating and encoding as one."""
    if not answer.evaluations:
        return [("evaluate", answer.compute), ("delay", answer.delay)]
    names = [f"evaluate {partition}" for partition in answer.partitions]
    if len(names) != len(answer.evaluations):  # runs recorded before partitions were
        names = ["evaluate"] * len(answer.evaluations)
    encoding = answer.compute - sum(answer.evaluations)
    return [*zip(names, answer.evaluations, strict=True), ("delay", answer.delay), ("encode", encoding)]
