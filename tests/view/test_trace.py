"""A picture of who did what when: one row never shows two things at a time, and clocks of workers are set."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_run import latency_record, records, step_record

from pgczmq.runlog import LatencyRecord, Record
from pgczmq.view.trace import chrome_trace

Span = tuple[str, float, float]
"""Name, begin and end in seconds."""


def rows(*run: Record, name: str = "a run") -> dict[str, list[Span]]:
    """Spans of each row, by the row's name, of a document that is as it must be."""
    document = json.loads(json.dumps(chrome_trace({name: run}), allow_nan=False))
    return checked(document["traceEvents"])


def checked(events: Iterable[dict[str, Any]]) -> dict[str, list[Span]]:
    names: dict[tuple[int, int], str] = {}
    spans: defaultdict[str, list[Span]] = defaultdict(list)
    for event in events:
        assert {"name", "ph", "ts", "pid", "tid", "args"} <= event.keys()
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] > 0
        row = names[event["pid"], event["tid"]]
        spans[row].append((event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6))
    for row in spans.values():
        for (_, _, end), (_, begin, _) in pairwise(row):
            assert begin >= end - 1e-9
    return spans


def answer(worker: int, step: int, received_at: float, **other: Any) -> LatencyRecord:
    """Published at 1 + step / 4; waits 0.01, evaluates 0.06 and 0.04, is delayed 0.02, encodes 0.01, sends 0.01."""
    fields: dict[str, Any] = {
        "wait": 0.01,
        "compute": 0.11,
        "delay": 0.02,
        "send": 0.01,
        "arrived_at": 1.0 + 0.25 * step + 0.15,
        "evaluated": 2,
        "received_at": received_at,
        "evaluations": (0.06, 0.04),
        "partitions": (worker, worker + 1),
    }
    return replace(latency_record(worker, step, 0.0), **(fields | other))


def near(spans: list[Span]) -> list[Any]:
    return [(name, pytest.approx(begin, abs=1e-8), pytest.approx(end, abs=1e-8)) for name, begin, end in spans]


def test_the_master_waits_and_then_updates() -> None:
    first = replace(step_record(0), combining=0.01, updating=0.015, writing=0.005)
    found = rows(first, step_record(1))
    assert found["steps"] == near([("step 0", 1.0, 1.25), ("step 1", 1.25, 1.49)])
    assert found["master"][:4] == near(
        [("wait for answers", 1.0, 1.2), ("combine", 1.21, 1.22), ("update", 1.22, 1.235), ("write", 1.235, 1.24)]
    )


@pytest.mark.parametrize("ahead", [0.0, 1000.0, -0.9])
def test_what_a_worker_does_is_set_to_the_masters_clock(ahead: float) -> None:
    found = rows(answer(0, 0, 1.0 + ahead), answer(0, 1, 1.28 + ahead, wait=0.0))
    assert found["worker 0"] == near(
        [
            ("wait", 1.0, 1.01),
            ("evaluate 0", 1.01, 1.07),
            ("evaluate 1", 1.07, 1.11),
            ("delay", 1.11, 1.13),
            ("encode", 1.13, 1.14),
            ("send", 1.14, 1.15),
            ("evaluate 0", 1.28, 1.34),
            ("evaluate 1", 1.34, 1.38),
            ("delay", 1.38, 1.4),
            ("encode", 1.4, 1.41),
        ]
    )


def test_a_worker_that_came_back_has_another_clock() -> None:
    found = rows(answer(2, 0, 501.0), answer(2, 1, 7.25, incarnation="b"))
    assert [begin for name, begin, _ in found["worker 2"] if name == "wait"] == near_all(1.0, 1.25)


def near_all(*values: float) -> list[Any]:
    return [pytest.approx(value, abs=1e-8) for value in values]


def test_parameters_that_come_while_a_worker_is_busy_wait_for_it() -> None:
    busy = answer(1, 0, 1.0, evaluations=(0.3,), partitions=(5,), compute=0.31, arrived_at=1.36, outcome="late")
    found = rows(busy, answer(1, 1, 1.25, wait=0.1))
    assert found["worker 1"][:6] == near(
        [
            ("wait", 1.0, 1.01),
            ("evaluate 5", 1.01, 1.31),
            ("delay", 1.31, 1.33),
            ("encode", 1.33, 1.34),
            ("send", 1.34, 1.35),  # until it begins on the next
            ("evaluate 1", 1.35, 1.41),
        ]
    )


def test_steps_that_were_given_up_are_there() -> None:
    after = answer(0, 2, 51.5, dropped=((1, 51.25, 0.05, 0.1),))
    found = rows(answer(0, 0, 51.0), after)["worker 0"]
    assert found[6:9] == near([("evaluate, given up", 1.25, 1.35), ("delay", 1.35, 1.4), ("wait", 1.5, 1.51)])


def test_simulated_and_deterministic_runs_can_be_drawn() -> None:
    found = rows(*(latency_record(worker, 0, 0.2) for worker in range(3)), replace(step_record(0), closed_at=9.0))
    assert found["worker 2"] == near([("evaluate", 1.0, 1.2)])
    assert found["master"] == near([("wait for answers", 1.0, 1.24)])


def test_runs_stand_beside_each_other_and_a_loss_may_be_nothing() -> None:
    runs = {"one": list(records(4, done=5)), "two": [replace(step_record(0), loss=math.nan)]}
    events: Any = chrome_trace(runs)["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {0: "one", 1: "two"}
    assert [event["args"]["loss"] for event in events if event["pid"] == 1 and event["name"] == "step 0"] == [None]
    checked([event for event in events if event["pid"] == 0])


SECONDS = st.floats(0, 3)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(SECONDS, SECONDS, st.lists(SECONDS, max_size=2), SECONDS, SECONDS), max_size=6),
    st.floats(-1000, 1000),
)
def test_no_two_spans_overlap_whatever_a_worker_says(
    said: list[tuple[float, float, list[float], float, float]], ahead: float
) -> None:
    told = [
        answer(
            0,
            step,
            1.0 + 0.25 * step + late + ahead,
            wait=wait,
            evaluations=tuple(evaluations),
            partitions=tuple(range(len(evaluations))),
            compute=sum(evaluations) + encoding,
            arrived_at=1.0 + 0.25 * step + arrived,
            dropped=((step - 1, 1.0 + 0.25 * step + ahead, encoding, *evaluations),),
        )
        for step, (late, wait, evaluations, encoding, arrived) in enumerate(said)
    ]
    rows(*told)
