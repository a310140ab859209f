"""Records of a run that never happened, with numbers that are easy to check."""

import math
from collections.abc import Iterator, Sequence

from pgczmq.gather.gathering import Gathering
from pgczmq.picture import Picture
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

PERIOD = 0.25
"""Seconds from one step to the next; a step is open for 0.2 of them."""


def run_record(workers: int = 4, steps: int = 100, name: str = "try", task: str = "digits-cnn") -> RunRecord:
    return RunRecord(name, f"runs/{name}", "pgc-cr", task, workers, 1, steps, 12345)


def step_record(step: int, workers: int = 4, *, loss: float = 1.0, missing: Sequence[int] = ()) -> StepRecord:
    """Worker j arrives 0.01 (j + 1) seconds after publication; the step closes after 0.2 seconds."""
    begun = 1.0 + PERIOD * step
    arrived = tuple(worker for worker in range(workers) if worker not in missing)
    return StepRecord(
        step=step,
        published_at=begun,
        closed_at=begun + 0.2,
        k=len(arrived),
        batch_fraction=1.0,
        loss=loss,
        arrived=arrived,
        arrived_at=tuple(begun + 0.01 * (worker + 1) for worker in arrived),
        used=arrived,
        spare=(),
        missing=tuple(missing),
        weights=(1 / max(1, 2 * len(arrived)),) * len(arrived),
        ages=((1, 0),) * len(arrived),
        recovered=1.0,
        max_alpha=1.0,
        fresh=len(arrived),
        applied_at=begun + 0.24,
        norm=1.0,
        bytes=1000,
    )


def latency_record(worker: int, step: int, seconds: float, outcome: str = "open") -> LatencyRecord:
    begun = 1.0 + PERIOD * step
    return LatencyRecord(
        worker, step, begun, 0.0, seconds, 0.0, 0.0, begun + seconds, 1, outcome, 0, "a", received_at=begun
    )


def late(worker: int, step: int) -> EventRecord:
    text = f"worker {worker} answered step {step} late"
    return EventRecord(1.0 + PERIOD * (step + 1), "late", text, worker, step)


def result(**other: object) -> Result:
    fields: dict[str, object] = {
        "scheme": "pgc-cr",
        "workers": 4,
        "stragglers": 1,
        "steps": 100,
        "seconds": 26.0,
        "loss": 0.125,
        "accuracy": 0.9725,
        "late_fraction": 0.031,
        "diverged": False,
        "weights_sha256": "ab" * 32,
        "exit": 0,
        "reason": "done",
        "run": "runs/try",
    }
    return Result(**(fields | other))  # type: ignore[arg-type]


def records(workers: int, *, done: int, steps: int = 100) -> Iterator[Record]:
    """A run so far: the last worker misses every second step and answers it late."""
    yield run_record(workers, steps)
    for worker in range(workers):
        yield EventRecord(0.5, "ready", f"worker {worker} is ready", worker)
    for step in range(done):
        missing = [workers - 1] if workers > 1 and step % 2 else []
        yield step_record(step, workers, loss=2.0 * math.exp(-step / 30), missing=missing)
        for worker in missing:
            yield latency_record(worker, step, 0.26, "late")
            yield late(worker, step)
        if step % 20 == 19:
            yield EvalRecord(step + 1, 1.0 + PERIOD * step, 0.5, step / 100, 0.1)
    if done:
        yield WorkerRecord(0, 1.0 + PERIOD * done, "evaluating", done)


def picture_of(*many: Record) -> Picture:
    gathering = Gathering()
    for record in many:
        gathering.add(record)
    return gathering.picture
