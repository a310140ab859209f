"""A run as its records tell it."""

import math
from collections import deque
from collections.abc import Sequence

from pgczmq.gather.crew import Crew
from pgczmq.gather.durations import Durations
from pgczmq.gather.history import Series, losses
from pgczmq.picture import EVENTS, Picture
from pgczmq.runlog import (
    EvalRecord,
    EventRecord,
    LatencyRecord,
    Record,
    Result,
    RunRecord,
    StepRecord,
    WorkerRecord,
)

QUIET = frozenset({"late"})
"""Kinds of events that are only counted; every other kind is worth a line."""

LOSSES_AVERAGED = 25


class Gathering:
    """Takes records, gives pictures; ``add`` is the only way in and costs O(workers) at most."""

    def __init__(self) -> None:
        self._run: RunRecord | None = None
        self._result: Result | None = None
        self._last: StepRecord | None = None
        self._evaluation: EvalRecord | None = None
        self._crew = Crew()
        self._durations = Durations()
        self._events: deque[EventRecord] = deque(maxlen=EVENTS)
        self._loss, self._metric, self._held_out = losses(LOSSES_AVERAGED), Series(), Series()
        self._period, self._waited, self._recovered = Series(), Series(), Series()
        self._age, self._oldest, self._k, self._batch_fraction = Series(), Series(), Series(), Series()
        self._waiting = self._starting = ""
        self._seen = 0
        self._virtual = False
        self.at = 0.0

    def add(self, record: Record) -> None:
        """Take the next record.

        Raises:
            ValueError, TypeError: it contradicts itself.
        """
        match record:
            case LatencyRecord():
                self._latency(record)
            case StepRecord():
                self._step(record)
            case WorkerRecord():
                self._worker(record)
            case EventRecord():
                self._event(record)
            case EvalRecord():
                self._eval(record)
            case RunRecord():
                self._about(record)
            case Result():
                self._end(record)

    @property
    def picture(self) -> Picture:
        """The run as it is now."""
        last = self._last
        return Picture(
            run=self._run,
            at=self.at,
            steps_done=last.step + 1 if last else 0,
            steps_seen=self._seen,
            applied_at=last.applied_at if last else None,
            loss=self._loss.numbers,
            metric=self._metric.numbers,
            held_out=self._held_out.numbers,
            evaluation=self._evaluation,
            period=self._period.numbers,
            waited=self._waited.numbers,
            time=self._durations.typical,
            recovered=self._recovered.numbers,
            age=self._age.numbers,
            oldest=self._oldest.numbers,
            k=self._k.numbers,
            batch_fraction=self._batch_fraction.numbers,
            weights=(min(last.weights), max(last.weights)) if last and last.weights else None,
            last_used=len(last.used) if last else 0,
            last_arrived=len(last.arrived) if last else 0,
            last_missing=last.missing if last else (),
            late_fraction=self._crew.late_fraction,
            waiting=self._waiting,
            starting=self._starting,
            workers=self._crew.pictures,
            events=tuple(self._events),
            result=self._result,
            virtual=self._virtual,
        )

    # ------------------------------------------------------------ records

    def _about(self, record: RunRecord) -> None:
        self._run = record
        self._crew.expect(range(record.workers))

    def _step(self, record: StepRecord) -> None:
        self._crew.closed(record)
        self._durations.closed(record)
        self._reach(record.applied_at)
        self._period.add(_period(self._last, record))
        self._waited.add(waited(record))
        self._loss.add(record.loss)
        self._recovered.add(record.recovered)
        parts = sum(map(len, record.ages))
        self._age.add(sum(map(sum, record.ages)) / parts if parts else math.nan)
        self._oldest.add(max((max(ages) for ages in record.ages if ages), default=math.nan))
        self._k.add(record.k)
        self._batch_fraction.add(record.batch_fraction)
        self._last = record
        self._seen += 1
        self._waiting = self._starting = ""

    def _event(self, record: EventRecord) -> None:
        self._reach(record.at)
        if record.kind not in QUIET:
            self._events.append(record)
        if record.kind in {"waiting", "stall"} and record.worker is None:
            self._waiting = record.text
        elif record.kind == "enough":
            self._waiting = ""
        elif record.kind == "starting":
            self._starting = record.text
        self._crew.happened(record)

    def _eval(self, record: EvalRecord) -> None:
        self._reach(record.at)
        self._evaluation = record
        self._held_out.add(record.loss)
        if record.metric is not None:
            self._metric.add(record.metric)

    def _latency(self, record: LatencyRecord) -> None:
        self._reach(record.arrived_at)
        self._virtual = record.received_at is None
        self._crew.answered(record)
        self._durations.answered(record)

    def _worker(self, record: WorkerRecord) -> None:
        self._reach(record.at)
        self._crew.said(record)

    def _end(self, record: Result) -> None:
        self._result = record
        self._virtual = record.virtual_seconds is not None
        self._waiting = self._starting = ""

    def _reach(self, at: float) -> None:
        if math.isfinite(at):
            self.at = max(self.at, at)


def _period(before: StepRecord | None, step: StepRecord) -> float:
    """As in ``Picture``."""
    if before is not None and before.step + 1 == step.step:
        return max(0.0, step.published_at - before.published_at)
    return max(0.0, step.applied_at - step.published_at)


def waited(step: StepRecord) -> float:
    """Share of a step that was spent waiting for stragglers, as in ``Picture``.

    In deterministic mode a step may close, as planned, after its update: then its time is until then.
    """
    half = (len(step.arrived) + len(step.missing) + 1) // 2
    whole = max(step.applied_at, step.closed_at) - step.published_at
    if not 0 < half <= len(step.arrived) or whole <= 0:
        return 0.0
    return max(0.0, step.closed_at - _of_rank(step.arrived_at, half)) / whole


def _of_rank(times: Sequence[float], rank: int) -> float:
    return sorted(times)[rank - 1]
