"""What is known of each worker of a run."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from pgczmq.picture import RECENT, WorkerPicture
from pgczmq.runlog import EventRecord, LatencyRecord, StepRecord, WorkerRecord

AWAY = frozenset({"absent", "gone"})
USED, SPARE, LATE, MISSING = "u", "s", "l", "m"
_FROM = " joined from "
_HERE = "here"
_OF_A_MEMBER = frozenset({"late", "joined", "ready", "left"})


def _recent() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass(slots=True)
class _Worker:
    """As in ``WorkerPicture``; ``latency_step`` is the step of the newest answer."""

    worker: int
    state: str = "absent"
    step: int | None = None
    host: str = ""
    heard_at: float | None = None
    latency: float | None = None
    latency_step: int = -1
    used: int = 0
    spare: int = 0
    late: int = 0
    missing: int = 0
    ages: tuple[int, int] | None = None
    took: deque[float] = field(default_factory=_recent)
    outcomes: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))
    spent: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def heard(self, at: float) -> None:
        """Something came of it."""
        if math.isfinite(at) and (self.heard_at is None or at > self.heard_at):
            self.heard_at = at

    def answered(self, step: int, seconds: float) -> None:
        """Remember how long an answer took, unless a newer one is known already."""
        if step >= self.latency_step:
            self.latency, self.latency_step = seconds, step

    def closed(self, seconds: float, outcome: str) -> None:
        """A step closed, with an answer of this worker or without."""
        self.took.append(seconds)
        self.outcomes.append(outcome)

    def picture(self) -> WorkerPicture:
        """As it is now."""
        compute, delay, send = [_middle(list(part)) for part in zip(*self.spent, strict=True)] or (None, None, None)
        return WorkerPicture(
            worker=self.worker,
            state=self.state,
            step=self.step,
            host=self.host,
            heard_at=self.heard_at,
            latency=self.latency,
            typical=_middle([seconds for seconds in self.took if math.isfinite(seconds)]),
            recent=tuple(self.took),
            outcomes="".join(self.outcomes),
            compute=compute,
            delay=delay,
            send=send,
            used=self.used,
            spare=self.spare,
            late=self.late,
            missing=self.missing,
            ages=self.ages,
        )


def _middle(values: list[float]) -> float | None:
    """The median, in a fifth of the time that ``statistics.median`` takes: there are a thousand of them a picture."""
    if not values:
        return None
    values.sort()
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


class Crew:
    """All workers of a run, as its records tell of them."""

    def __init__(self) -> None:
        self._workers: dict[int, _Worker] = {}
        self._steps: deque[int] = deque(maxlen=RECENT)  # those of every worker's ``took`` and ``outcomes``
        self._answers = self._late = 0

    @property
    def pictures(self) -> tuple[WorkerPicture, ...]:
        """In the order of their numbers."""
        return tuple([worker.picture() for _, worker in sorted(self._workers.items(), key=itemgetter(0))])

    @property
    def late_fraction(self) -> float:
        """Answers that came after their step closed, over answers."""
        return self._late / self._answers if self._answers else 0.0

    def expect(self, workers: Iterable[int]) -> None:
        """These belong to the run, whether they are ever heard of or not."""
        for number in workers:
            self._worker(number)

    def closed(self, record: StepRecord) -> None:
        """A step closed, and what became of everybody's answer."""
        if len(record.arrived) != len(record.arrived_at) or len(record.used) != len(record.ages):
            raise ValueError(f"step {record.step} has as many times as arrivals, and ages for everybody used")
        used = frozenset(record.used)
        for number, at in zip(record.arrived, record.arrived_at, strict=True):
            worker = self._worker(number)
            worker.closed(at - record.published_at, USED if number in used else SPARE)
            worker.answered(record.step, at - record.published_at)
            worker.heard(min(at, record.applied_at))  # in deterministic mode arrivals are planned
            if worker.state in AWAY:
                worker.state = _HERE
        for number, ages in zip(record.used, record.ages, strict=True):
            worker = self._worker(number)
            worker.used += 1
            if ages:
                worker.ages = min(ages), max(ages)
        for number in record.spare:
            self._worker(number).spare += 1
        for number in record.missing:
            worker = self._worker(number)
            worker.missing += 1
            if worker.latency_step == record.step and worker.latency is not None:
                worker.closed(worker.latency, LATE)  # while the step's update was computed
            else:
                worker.closed(math.nan, MISSING)
        self._answers += len(record.arrived)
        self._steps.append(record.step)

    def answered(self, record: LatencyRecord) -> None:
        """An answer came; one to a step that closed without it takes its place among the recent ones."""
        worker, seconds = self._worker(record.worker), record.arrived_at - record.published_at
        worker.heard(record.arrived_at)
        worker.answered(record.step, seconds)
        worker.spent.append((record.compute, record.delay, record.send))
        self._came_late(worker, record.step, seconds)

    def _came_late(self, worker: _Worker, step: int, seconds: float) -> None:
        back = self._steps[-1] - step if self._steps else -1
        if not 0 <= back < len(worker.took) or self._steps[-1 - back] != step:
            return
        if worker.outcomes[-1 - back] == MISSING:
            worker.took[-1 - back], worker.outcomes[-1 - back] = seconds, LATE

    def said(self, record: WorkerRecord) -> None:
        """A worker told what it does."""
        worker = self._worker(record.worker)
        worker.heard(record.at)
        worker.state, worker.step = record.state, record.step

    def happened(self, record: EventRecord) -> None:
        """Something about a worker; others are left out, such as one about somebody who was not let in."""
        if record.worker is None or record.kind not in _OF_A_MEMBER:
            return
        worker = self._worker(record.worker)
        match record.kind:
            case "late":
                worker.late += 1
                self._late += 1
                self._answers += 1
            case "joined":
                worker.host = record.text.partition(_FROM)[2]
                worker.heard(record.at)
            case "ready":
                worker.state = _HERE
                worker.heard(record.at)
            case "left":
                worker.state = "gone"

    def _worker(self, number: int) -> _Worker:
        worker = self._workers.get(number)
        if worker is None:
            worker = self._workers[number] = _Worker(number)
        return worker
