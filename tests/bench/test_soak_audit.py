"""The audit of a soak: clean where nothing is wrong, and everything that could be wrong is found."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_soak import KILLED_AT, MASTERS, RESUMED_AT, STEPS, WORKERS, made_up, processes

from pgczmq.bench.torture.soak.audit import AUDITED, Evidence, Findings, audit
from pgczmq.bench.torture.soak.fates import Sample, fates, growth, leaks
from pgczmq.config import FaultConfig
from pgczmq.runlog import EventRecord
from pgczmq.train import plain
from pgczmq.train.marks import MARK_FLOATS, Mark, read_applied, read_sent

Tamper = Callable[[Evidence], Evidence]


@pytest.mark.parametrize("scheme", sorted({*AUDITED} - {"dgd"}))  # it tolerates no late worker, and here one always is
def test_a_run_with_a_killed_master_is_clean(tmp_path: Path, scheme: str) -> None:
    evidence = made_up(tmp_path, scheme)
    assert audit(evidence) == []
    assert len(evidence.applied) == STEPS + KILLED_AT - RESUMED_AT + 1  # and one says what was taken up


def change(values: Any, place: int, **fields: Any) -> list[Any]:
    changed = list(values)
    changed[place] = dataclasses.replace(changed[place], **fields)
    return changed


def step_twice(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, steps=[*evidence.steps[:4], *evidence.steps[3:]])


def step_left_out(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, steps=[*evidence.steps[:4], *evidence.steps[5:]])


def update_twice(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, applied=[*evidence.applied[:3], *evidence.applied[2:]])


def update_left_out(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, applied=[*evidence.applied[:-2], evidence.applied[-1]])


def resumed_from_nowhere(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, applied=change(evidence.applied, KILLED_AT, sha256="0" * 64))


def resumed_from_another_step(evidence: Evidence) -> Evidence:
    """As if the parameters of one step earlier had been taken up."""
    earlier = evidence.applied[RESUMED_AT - 2].sha256
    return dataclasses.replace(evidence, applied=change(evidence.applied, KILLED_AT, sha256=earlier))


def two_masters_at_once(evidence: Evidence) -> Evidence:
    last = dataclasses.replace(evidence.applied[-1], master=MASTERS[0])
    return dataclasses.replace(evidence, applied=[*evidence.applied[:-1], last])


def wrong_weight(evidence: Evidence) -> Evidence:
    """In the record and in the memory."""
    weights = (0.5, *evidence.steps[-1].weights[1:])
    steps = change(evidence.steps, -1, weights=weights)
    messages = tuple(
        (worker, weight, mark) for (worker, _, mark), weight in zip(evidence.applied[-1].messages, weights, strict=True)
    )
    return dataclasses.replace(evidence, steps=steps, applied=change(evidence.applied, -1, messages=messages))


def other_weight_applied(evidence: Evidence) -> Evidence:
    (worker, _, mark), *others = evidence.applied[-1].messages
    return dataclasses.replace(evidence, applied=change(evidence.applied, -1, messages=((worker, 0.5, mark), *others)))


def closed_too_soon(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, steps=change(evidence.steps, -1, k=WORKERS))


def other_parameters(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, applied=change(evidence.applied, 2, sha256="0" * 64))


def other_result(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, weights_sha256="0" * 64)


def marked(evidence: Evidence, new: Callable[[Mark], Mark | None]) -> Evidence:
    """The first message of the last step bears another mark."""
    (worker, weight, mark), *others = evidence.applied[-1].messages
    assert mark is not None
    messages = ((worker, weight, new(mark)), *others)
    return dataclasses.replace(evidence, applied=change(evidence.applied, -1, messages=messages))


def no_mark(evidence: Evidence) -> Evidence:
    return marked(evidence, lambda mark: None)


def of_another_step(evidence: Evidence) -> Evidence:
    return marked(evidence, lambda mark: dataclasses.replace(mark, step=mark.step - 1))


def of_another_worker(evidence: Evidence) -> Evidence:
    return marked(evidence, lambda mark: dataclasses.replace(mark, worker=mark.worker + 1))


def of_an_unknown_life(evidence: Evidence) -> Evidence:
    return marked(evidence, lambda mark: dataclasses.replace(mark, incarnation="f" * 16))


def of_another_age(evidence: Evidence) -> Evidence:
    return marked(evidence, lambda mark: dataclasses.replace(mark, evaluated_at=(0, 0)))


def of_the_former_life(evidence: Evidence) -> Evidence:
    """A gradient that was sent to the killed master is used by the next one, for a step that both made."""
    before = next(one for one in evidence.applied if one.step == RESUMED_AT)
    place = next(place for place, one in enumerate(evidence.applied) if one.step == RESUMED_AT and one is not before)
    messages = (before.messages[0], *evidence.applied[place].messages[1:])
    return dataclasses.replace(evidence, applied=change(evidence.applied, place, messages=messages))


def of_another_run(evidence: Evidence) -> Evidence:
    place = next(place for place, one in enumerate(evidence.sent) if one.mark == evidence.applied[-1].messages[0][2])
    return dataclasses.replace(evidence, sent=change(evidence.sent, place, run="another"))


def other_ages_recorded(evidence: Evidence) -> Evidence:
    ages = ((7, 7), *evidence.steps[-1].ages[1:])
    return dataclasses.replace(evidence, steps=change(evidence.steps, -1, ages=ages))


def arrival_without_answer(evidence: Evidence) -> Evidence:
    used = evidence.steps[-1].used[0]
    answers = [answer for answer in evidence.answers if (answer.worker, answer.step) != (used, STEPS - 1)]
    return dataclasses.replace(evidence, answers=answers)


def answer_twice(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, answers=[*evidence.answers, evidence.answers[0]])


def nobody_missing(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, steps=change(evidence.steps, 3, missing=()))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (step_twice, "steps.jsonl has step 3 after step 3"),
        (step_left_out, "steps.jsonl has step 5 after step 3"),
        (update_twice, "process 101 applied step 2 where step 3 was next"),
        (update_left_out, "process 102 applied step 11 where step 10 was next"),
        (resumed_from_nowhere, "process 102 went on with parameters 000000000000, which no step had made"),
        (resumed_from_another_step, "process 102 applied step 5 where step 4 was next"),
        (two_masters_at_once, "process 101 applied step 11 after another had taken over"),
        (wrong_weight, "step 11 of pgc-cr: arrivals"),
        (other_weight_applied, "step 11 is recorded with"),
        (closed_too_soon, "closed with 3 arrivals and asks for 4"),
        (other_parameters, "the parameters after step 2 are not what its messages and weights make"),
        (other_result, "the result says parameters 000000000000"),
        (no_mark, "bears the mark None"),
        (of_another_step, "in step 11 bears the mark"),
        (of_another_worker, "in step 11 bears the mark"),
        (of_an_unknown_life, "which nobody had sent"),
        (of_another_age, "which nobody had sent"),
        (of_the_former_life, "was for run made-up of master master-"),
        (of_the_former_life, "whose answer was not counted"),
        (of_another_run, "was for run another"),
        (other_ages_recorded, "recorded ages (7, 7)"),
        (arrival_without_answer, "that latencies.jsonl does not know"),
        (answer_twice, "to step 0 counts 2 times"),
        (nobody_missing, "step 3 does not say of every worker once"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, tamper: Tamper, found: str) -> None:
    told = audit(tamper(made_up(tmp_path)))
    assert any(found in sentence for sentence in told), told


def test_a_master_that_took_up_a_checkpoint_and_applied_nothing_undoes_what_came_after_it(tmp_path: Path) -> None:
    evidence = made_up(tmp_path)
    config = evidence.config
    last = plain.PlainMaster(plain.Arguments.of(config.task.args), seed=config.seed, lr=config.optimizer.lr)
    last.restore(tmp_path)
    applied = [*evidence.applied, dataclasses.replace(read_applied(tmp_path)[-1], master=103)]
    left = dataclasses.replace(
        evidence,
        steps=evidence.steps[:RESUMED_AT],
        answers=[answer for answer in evidence.answers if answer.step < RESUMED_AT],
        applied=applied,
        weights_sha256=last.sha256(),
    )
    assert audit(left) == []
    assert fates(left, processes(evidence), Findings())["used"] == (WORKERS - 1) * RESUMED_AT


def test_many_findings_of_a_kind_are_counted(tmp_path: Path) -> None:
    evidence = made_up(tmp_path)
    steps = [dataclasses.replace(step, missing=()) for step in evidence.steps]
    told = audit(dataclasses.replace(evidence, steps=steps))
    assert len(told) == 4
    assert told[-1] == f"{STEPS - 3} more like this: sides"


# ---------------------------------------------------------------- what became of answers


def accounted(evidence: Evidence, lives: Any = None) -> tuple[dict[str, int], list[str]]:
    findings = Findings()
    counts = fates(evidence, processes(evidence) if lives is None else lives, findings)
    return dict(counts), findings.sentences()


def test_every_answer_has_a_fate(tmp_path: Path) -> None:
    counts, told = accounted(made_up(tmp_path))
    redone = KILLED_AT - RESUMED_AT
    assert told == []
    assert counts == {"late": STEPS, "lost with its master": WORKERS * redone, "used": (WORKERS - 1) * STEPS}


def without(evidence: Evidence, worker: int, step: int) -> Evidence:
    """The answer was sent, and nobody has heard of it."""
    answers = [answer for answer in evidence.answers if (answer.worker, answer.step) != (worker, step)]
    return dataclasses.replace(evidence, answers=answers)


LATE_IN_THE_MIDDLE = (WORKERS - 1 + 2) % WORKERS, 2
LATE_AT_THE_END = (STEPS - 1 + WORKERS - 1) % WORKERS, STEPS - 1


def test_a_missing_answer_is_found(tmp_path: Path) -> None:
    worker, step = LATE_IN_THE_MIDDLE
    counts, told = accounted(without(made_up(tmp_path), worker, step))
    assert counts["without a fate"] == 1
    assert told == [f"nothing tells what became of worker {worker}'s answer to step {step} ({0:08x}{worker:08x})"]


def test_the_last_answer_of_a_process_may_be_lost_with_it_if_it_had_just_been_sent(tmp_path: Path) -> None:
    evidence = without(made_up(tmp_path), *LATE_AT_THE_END)
    assert accounted(evidence)[0]["lost with its process"] == 1
    counts, told = accounted(evidence, processes(evidence, seconds=60.0))
    assert counts["without a fate"] == 1
    assert len(told) == 1


def test_an_answer_may_be_lost_with_the_connection_of_a_process_that_was_stopped(tmp_path: Path) -> None:
    evidence = without(made_up(tmp_path), *LATE_IN_THE_MIDDLE)
    sent = next(one for one in evidence.sent if (one.mark.worker, one.mark.step) == LATE_IN_THE_MIDDLE)
    lives = [
        dataclasses.replace(life, stops=((sent.at + 0.1, sent.at + 9.0),)) if life.pid == sent.process else life
        for life in processes(evidence)
    ]
    counts, told = accounted(evidence, lives)
    assert counts["lost with its connection"] == 1
    assert told == []


@pytest.mark.parametrize(("kind", "excused"), [("drop", True), ("corrupt", True), ("duplicate", False)])
def test_an_answer_may_be_lost_by_a_planned_fault(tmp_path: Path, kind: Any, excused: bool) -> None:
    worker, step = LATE_IN_THE_MIDDLE
    evidence = without(made_up(tmp_path), worker, step)
    planned = evidence.config.model_copy(update={"faults": (FaultConfig(kind=kind, workers=(worker,), steps=(step,)),)})
    counts, told = accounted(dataclasses.replace(evidence, config=planned))
    assert counts.get("lost by a planned fault", 0) == excused
    assert bool(told) is not excused


def test_a_refused_answer_has_a_fate(tmp_path: Path) -> None:
    worker, step = LATE_IN_THE_MIDDLE
    event = EventRecord(1.0, "refused", "not finite", worker, step)
    counts, told = accounted(dataclasses.replace(without(made_up(tmp_path), worker, step), events=[event]))
    assert counts["refused"] == 1
    assert told == []


def test_an_answer_that_nobody_sent_is_found(tmp_path: Path) -> None:
    evidence = made_up(tmp_path)
    worker = evidence.steps[-1].arrived[0]
    sent = [one for one in evidence.sent if (one.mark.worker, one.mark.step) != (worker, STEPS - 1)]
    _, told = accounted(dataclasses.replace(evidence, sent=sent))
    assert told == [f"worker {worker} answered step {STEPS - 1}, and never sent that"]


# ---------------------------------------------------------------- growth


def samples(role: str, pid: int, *held: tuple[float, int, int]) -> list[Sample]:
    return [Sample(role, pid, age, megabytes * 1_000_000, files) for age, megabytes, files in held]


def test_processes_that_hold_what_they_held_in_their_first_minute_are_fine() -> None:
    findings = Findings()
    master, worker = samples("master", 1, (1, 60, 50), (59, 80, 90)), samples("worker 0", 3, (1, 60, 30))
    growth(
        [
            *master,
            *worker,
            *samples("master", 1, (200, 99, 95)),
            *samples("master", 2, (1, 60, 50)),
            *samples("worker 1", 4, (1, 60, 30), (100, 79, 35)),
        ],
        findings,
    )
    leaks([*master, *worker], [*samples("master", 1, (200, 99, 93)), *samples("worker 1", 4, (9, 60, 33))], findings)
    assert findings.sentences() == []


@pytest.mark.parametrize("pid", [1, 2])
def test_growth_is_found_in_one_life_and_over_many(pid: int) -> None:
    findings = Findings()
    growth([*samples("master", 1, (1, 60, 50), (59, 80, 90)), *samples("master", pid, (90, 101, 50))], findings)
    assert findings.sentences() == [
        f"master (process {pid}) at the age of 90 s has 101 MB, over the 100 MB that are no growth"
    ]


def test_open_files_that_are_not_closed_are_found() -> None:
    findings = Findings()
    leaks(samples("worker 1", 1, (1, 60, 31)), samples("worker 7", 2, (90, 60, 35)), findings)
    assert findings.sentences() == [
        "worker 7 (process 2) at the age of 90 s has 35 open files, over the 34 that are no growth"
    ]


def test_marks_survive_the_wire_and_other_numbers_are_none() -> None:
    mark = Mark("0123456789abcdef", 300, 70_000, (70_000, 69_999, 0))
    vector = np.zeros(MARK_FLOATS + 5, np.float32)
    mark.write(vector)
    assert Mark.read(vector) == mark
    halves = ((vector.view(np.uint32) >> 16) << 16).view(np.float32)  # what bfloat16 keeps
    assert Mark.read(halves) == mark
    vector[3] += 0.5
    assert Mark.read(vector) is None
    vector[3] = np.nan
    assert Mark.read(vector) is None


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    evidence = made_up(tmp_path)
    for path in tmp_path.glob("a*.jsonl"):
        path.write_text(path.read_text()[:-20])
    assert len(read_applied(tmp_path)) == len(evidence.applied) - 1
    assert len(read_sent(tmp_path)) == len(evidence.sent) - WORKERS
