"""What is known of a run, gathered record by record in bounded memory."""

import math
from collections import deque
from dataclasses import dataclass
from functools import singledispatchmethod
from statistics import median

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
from pgczmq.view.history import History

QUIET = frozenset({"late"})
"""Kinds of events that are only counted; every other kind is worth a line."""

STEPS_REMEMBERED = 50
LOSSES_AVERAGED = 25


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker.

    Args:
        state: absent (never heard of), ready, gone, or what it last said of itself.
        latency: seconds from publication to arrival of its newest answer.
        answers: messages that arrived, in time or late.
        ages: least and largest age in its last used message.
    """

    worker: int
    state: str = "absent"
    latency: float | None = None
    latency_step: int = -1
    answers: int = 0
    late: int = 0
    missing: int = 0
    ages: tuple[int, int] | None = None

    @property
    def late_fraction(self) -> float:
        """Share of its answers that came after their step had closed."""
        return self.late / self.answers if self.answers else 0.0

    def answered(self, step: int, seconds: float) -> None:
        """Remember how long an answer took, unless a newer one is known already."""
        if step >= self.latency_step:
            self.latency, self.latency_step = seconds, step


class RunView:
    """A run as its records tell it; ``add`` is the only way in and costs O(workers) at most."""

    def __init__(self) -> None:
        self.run: RunRecord | None = None
        self.result: Result | None = None
        self.last_step: StepRecord | None = None
        self.last_eval: EvalRecord | None = None
        self.evals: deque[EvalRecord] = deque(maxlen=256)
        self.events: deque[EventRecord] = deque(maxlen=32)  # those worth a line, newest last
        self.losses = History()
        self.metrics = History()
        self.workers: dict[int, WorkerView] = {}
        self.waiting = ""  # why the open step cannot close, empty while it can
        self.starting = ""  # who is still missing before step 0
        self.latest_at = 0.0  # largest time in any record, seconds since the run's start
        self.steps_seen = 0
        self._recent_losses: deque[float] = deque(maxlen=LOSSES_AVERAGED)
        self._open_seconds: deque[float] = deque(maxlen=STEPS_REMEMBERED)
        self._periods: deque[float] = deque(maxlen=STEPS_REMEMBERED)

    def add(self, record: Record) -> None:
        """Take the next record."""
        self._add(record)

    # ------------------------------------------------------------ derived numbers

    @property
    def steps(self) -> int:
        """Steps that the run is to have; 0 while unknown."""
        return self.run.steps if self.run else 0

    @property
    def steps_done(self) -> int:
        """Updates applied."""
        return self.last_step.step + 1 if self.last_step else 0

    @property
    def loss(self) -> float | None:
        """Mean of the last finite step losses; NaN when none of them was, None before the first step."""
        if not self._recent_losses:
            return None
        finite = [loss for loss in self._recent_losses if math.isfinite(loss)]
        return sum(finite) / len(finite) if finite else math.nan

    @property
    def open_seconds(self) -> float | None:
        """Median of recent steps from publication to closing."""
        return median(self._open_seconds) if self._open_seconds else None

    @property
    def period(self) -> float | None:
        """Median seconds from one publication to the next, over recent steps."""
        return median(self._periods) if self._periods else None

    @property
    def steps_per_second(self) -> float | None:
        """What the median period amounts to."""
        period = self.period
        return 1 / period if period else None

    @property
    def seconds_left(self) -> float | None:
        """Median period times the steps that are left; None while unknown."""
        period = self.period
        return None if period is None or not self.steps else period * max(0, self.steps - self.steps_done)

    @property
    def late_fraction(self) -> float:
        """Messages that arrived after their step closed, over messages."""
        messages = sum(worker.answers for worker in self.workers.values())
        return sum(worker.late for worker in self.workers.values()) / messages if messages else 0.0

    def missing_fraction(self, worker: WorkerView) -> float:
        """Share of the steps that closed without this worker."""
        return worker.missing / self.steps_seen if self.steps_seen else 0.0

    # ------------------------------------------------------------ records

    @singledispatchmethod
    def _add(self, record: Record) -> None:
        raise TypeError(f"a view knows no record {record!r}")

    @_add.register
    def _run(self, record: RunRecord) -> None:
        self.run = record
        for worker in range(record.workers):
            self._worker(worker)

    @_add.register
    def _step(self, record: StepRecord) -> None:
        self._time_step(record)
        self.last_step = record
        self.steps_seen += 1
        self.waiting = self.starting = ""
        self.losses.add(record.loss)
        self._recent_losses.append(record.loss)
        for number, at in zip(record.arrived, record.arrived_at, strict=True):
            worker = self._worker(number)
            worker.answers += 1
            worker.answered(record.step, at - record.published_at)
            if worker.state in {"absent", "gone"}:
                worker.state = "ready"
        for number in record.missing:
            self._worker(number).missing += 1
        for number, ages in zip(record.used, record.ages, strict=True):
            if ages:
                self._worker(number).ages = min(ages), max(ages)

    def _time_step(self, record: StepRecord) -> None:
        self._reach(record.applied_at)
        self._open_seconds.append(record.closed_at - record.published_at)
        before = self.last_step
        follows = before is not None and before.step + 1 == record.step
        begun, ended = record.published_at, record.applied_at
        if before is not None and follows:
            begun, ended = before.published_at, record.published_at
        self._periods.append(max(0.0, ended - begun))

    @_add.register
    def _event(self, record: EventRecord) -> None:
        self._reach(record.at)
        if record.kind not in QUIET:
            self.events.append(record)
        if record.kind in {"waiting", "stall"} and record.worker is None:
            self.waiting = record.text
        elif record.kind == "enough":
            self.waiting = ""
        elif record.kind == "starting":
            self.starting = record.text
        if record.worker is not None:
            self._worker_event(self._worker(record.worker), record.kind)

    def _worker_event(self, worker: WorkerView, kind: str) -> None:
        if kind == "late":
            worker.answers += 1
            worker.late += 1
        elif kind == "ready":
            worker.state = "ready"
        elif kind == "left":
            worker.state = "gone"

    @_add.register
    def _eval(self, record: EvalRecord) -> None:
        self._reach(record.at)
        self.last_eval = record
        self.evals.append(record)
        if record.metric is not None:
            self.metrics.add(record.metric)

    @_add.register
    def _latency(self, record: LatencyRecord) -> None:
        self._reach(record.arrived_at)
        self._worker(record.worker).answered(record.step, record.arrived_at - record.published_at)

    @_add.register
    def _worker_record(self, record: WorkerRecord) -> None:
        self._reach(record.at)
        self._worker(record.worker).state = record.state

    @_add.register
    def _result(self, record: Result) -> None:
        self.result = record
        self.waiting = self.starting = ""

    def _reach(self, at: float) -> None:
        if math.isfinite(at):
            self.latest_at = max(self.latest_at, at)

    def _worker(self, number: int) -> WorkerView:
        return self.workers.setdefault(number, WorkerView(number))
