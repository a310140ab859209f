from dataclasses import replace
from itertools import pairwise

from made_up_run import late, latency_record, picture_of, result, run_record, step_record

from pgczmq.gather.gathering import Gathering
from pgczmq.picture import Seen
from pgczmq.runlog import EvalRecord, EventRecord, Record, WorkerRecord
from pgczmq.view.live.plain import PlainLog, lines, news


def fed(log: PlainLog, *many: Record) -> list[str]:
    return [line for record in many for line in log.feed(record)]


def test_a_whole_run() -> None:
    log = PlainLog(every=10.0)
    told = fed(
        log,
        run_record(),
        EventRecord(0.5, "ready", "worker 0 is ready", 0),
        *(step_record(step) for step in range(100)),
        EvalRecord(100, 26.0, 0.25, 0.9725, 0.1),
        result(),
    )
    assert told == [
        "[     0.0 s] try: digits-cnn with pgc-cr, stragglers=1, 4 workers, 100 steps, 12,345 parameters; runs/try",
        "[     0.5 s] worker 0 is ready",
        "[    10.2 s] step 37/100 (37 %), loss 1, 4 steps/s, late 0 %, 0:16 left",
        "[    20.5 s] step 78/100 (78 %), loss 1, 4 steps/s, late 0 %, 0:06 left",
        "[    26.0 s] after 100 steps: held-out loss 0.25, accuracy 97.2 %",
        "[    26.0 s] done: 100 steps in 26.0 s, loss 0.125, accuracy 97.2 %, late 3.1 %",
    ]


def test_every_event_that_matters_is_told_and_late_answers_are_not() -> None:
    log = PlainLog()
    kinds = [
        "ready",
        "left",
        "refused",
        "waiting",
        "resumed",
        "enough",
        "starting",
        "partial",
        "checkpoint",
        "stall",
        "evaluation",
    ]
    told = fed(log, *(EventRecord(1.0, kind, f"text of {kind}") for kind in kinds))
    urgent = {"waiting": "WAITING: ", "stall": "STALL: "}
    assert told == [f"[     1.0 s] {urgent.get(kind, '')}text of {kind}" for kind in kinds]
    quiet: list[Record] = [
        late(1, 0),
        latency_record(1, 0, 0.1),
        WorkerRecord(1, 2.0, "idle", 0),
    ]
    assert fed(log, *quiet) == []


def test_an_event_of_a_kind_that_is_not_known_yet_is_told() -> None:
    assert fed(PlainLog(), EventRecord(1.0, "flood", "water in the machine room")) == [
        "[     1.0 s] water in the machine room"
    ]


def test_progress_is_told_by_the_time_of_the_run() -> None:
    log = PlainLog(every=1.0)
    _, *told = fed(log, run_record(steps=1000), *(step_record(step) for step in range(12)))
    assert [line.split(",")[0] for line in told] == [
        "[     1.2 s] step 1/1000 (0 %)",
        "[     2.2 s] step 5/1000 (0 %)",
        "[     3.2 s] step 9/1000 (0 %)",
    ]


def test_a_run_that_went_wrong() -> None:
    diverged = result(diverged=True, loss=float("nan"), accuracy=None, reason="diverged at step 7: too much")
    assert fed(PlainLog(), diverged) == [
        "[    26.0 s] diverged: 100 steps in 26.0 s, loss nan, late 3.1 %; diverged at step 7: too much (exit code 0)"
    ]
    ended = result(exit=74, loss=None, accuracy=None, reason="only 3 of 4 workers", steps=0)
    assert fed(PlainLog(), ended)[0].endswith("; only 3 of 4 workers (exit code 74)")


def test_a_task_without_a_metric_and_a_line_with_foreign_text() -> None:
    assert fed(PlainLog(), EvalRecord(1, 2.0, 0.5, None, 0.1)) == ["[     2.0 s] after 1 step: held-out loss 0.5"]
    assert fed(PlainLog(), EventRecord(1.0, "left", "worker on [/tag]\n\x1b[31m is gone")) == [
        "[     1.0 s] worker on [/tag]  [31m is gone"
    ]


def test_lines_is_a_function_of_the_record_and_what_is_known() -> None:
    view = Gathering()
    view.add(step_record(0))
    assert lines(step_record(0), view) == lines(step_record(0), view)
    assert lines(step_record(0), view) == ["[     1.2 s] step 1, loss 1, 4.17 steps/s, late 0 %"]


# ---------------------------------------------------------------- from one look to the next


def told(*looks: Seen) -> list[list[str]]:
    """The lines of each look."""
    return [news(before, after) for before, after in pairwise((None, *looks))]


def seen(*many: Record, note: str = "") -> Seen:
    picture = picture_of(*many)
    return Seen(picture, picture.at, note)


def test_a_run_that_is_looked_at_now_and_then_is_told_as_the_whole_one_is() -> None:
    begun = [run_record(), EventRecord(0.5, "ready", "worker 0 is ready", 0)]
    steps = [step_record(step) for step in range(100)]
    end = [EvalRecord(100, 26.0, 0.25, 0.9725, 0.1), result()]
    looks = [seen(*begun), seen(*begun, *steps[:30]), seen(*begun, *steps[:38]), seen(*begun, *steps, *end)]
    whole = [line for look in told(*looks, looks[-1]) for line in look]
    assert whole == [
        "[     0.0 s] try: digits-cnn with pgc-cr, stragglers=1, 4 workers, 100 steps, 12,345 parameters; runs/try",
        "[     0.5 s] worker 0 is ready",
        "[    10.5 s] step 38/100 (38 %), loss 1, 4 steps/s, late 0 %, 0:16 left",
        "[    26.0 s] after 100 steps: held-out loss 0.25, accuracy 97.2 %",
        "[    26.0 s] step 100/100 (100 %), loss 1, 4 steps/s, late 0 %, 0:00 left",
        "[    26.0 s] done: 100 steps in 26.0 s, loss 0.125, accuracy 97.2 %, late 3.1 %",
    ]


def test_of_two_equal_events_each_is_told_once() -> None:
    stall = EventRecord(1.0, "stall", "the event loop was blocked")
    first, second = told(seen(stall), seen(stall, replace(stall, at=2.0)))
    assert first == ["[     1.0 s] STALL: the event loop was blocked"]
    assert second == ["[     2.0 s] STALL: the event loop was blocked"]


def test_a_note_is_told_when_it_begins_and_another_run_from_its_beginning() -> None:
    one, other = run_record(name="one"), run_record(name="other")
    ready = EventRecord(0.5, "ready", "worker 0 is ready", 0)
    looks = [seen(one, ready), seen(one, ready, note="no news for 4 s"), seen(one, ready, note="no news for 5 s")]
    lines_of = told(*looks, seen(other, ready))
    assert [len(each) for each in lines_of] == [2, 1, 0, 2]
    assert lines_of[1] == ["[     0.5 s] no news for 4 s"]
    assert "other" in lines_of[3][0]
