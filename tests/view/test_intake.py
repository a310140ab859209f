import threading
from dataclasses import replace

from made_up_run import result, run_record, step_record

from pgczmq.gather import intake as module
from pgczmq.gather.intake import Intake
from pgczmq.runlog import EventRecord, StepRecord


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_time_goes_on_between_records_by_the_clock_given() -> None:
    clock = Clock()
    intake = Intake(clock)
    intake.put(run_record())
    intake.put(step_record(0))  # applied at 1.24 s
    assert intake.seen().now == 1.24
    clock.now += 60.0
    assert intake.seen().now == 61.24
    intake.put(step_record(1))
    assert intake.seen().now == intake.seen().picture.at == 1.49


def test_time_counts_from_when_a_record_came_not_from_when_it_was_looked_at() -> None:
    clock = Clock()
    intake = Intake(clock)
    intake.put(step_record(0))
    clock.now += 10.0
    assert intake.seen().now == 11.24


def test_time_stands_still_when_the_run_is_over() -> None:
    clock = Clock()
    intake = Intake(clock)
    intake.put(step_record(0))
    intake.put(result())
    clock.now += 60.0
    assert intake.seen().now == 1.24


def test_records_that_nobody_looks_at_cost_no_memory() -> None:
    intake = Intake(Clock())
    for step in range(3 * module.PENDING_AT_MOST):
        intake.put(step_record(step))
        assert len(intake._pending) < module.PENDING_AT_MOST
    assert intake.seen().picture.steps_seen == 3 * module.PENDING_AT_MOST


def test_whoever_has_a_record_does_not_wait_for_whoever_looks() -> None:
    intake = Intake(Clock())
    with intake._lock:  # as if a picture were being made all this time
        for step in range(2 * module.PENDING_AT_MOST):
            intake.put(step_record(step))
    assert intake.seen().picture.steps_seen == 2 * module.PENDING_AT_MOST


def test_records_that_contradict_themselves_are_left_out() -> None:
    intake = Intake(Clock())
    intake.put(StepRecord(**vars(step_record(0)) | {"arrived_at": ()}))
    intake.put(EventRecord(2.0, "checkpoint", "saved"))
    seen = intake.seen()
    assert (seen.picture.steps_seen, [event.text for event in seen.picture.events]) == (0, ["saved"])


def test_records_come_from_any_thread() -> None:
    intake = Intake(Clock())
    intake.put(replace(run_record(), steps=10_000))

    def produce() -> None:
        for step in range(200):
            intake.put(step_record(step))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        intake.seen()
    assert intake.seen().picture.steps_seen == 800
