"""What of the engine is kept in a checkpoint, and that an engine which begins with it goes on as the one before."""

import json
import math

import pytest
from test_engine import Run

from pgczmq.core.divergence import Losses
from pgczmq.core.engine import BACK_SECONDS, Engine, Rules
from pgczmq.core.events import (
    Applied,
    Apply,
    Checkpoint,
    Evaluate,
    Finish,
    Joined,
    Left,
    Note,
    Publish,
    Send,
    Spoiled,
    Stop,
    Tick,
)
from pgczmq.core.policies import Plan, PolicyState
from pgczmq.core.progress import Progress
from pgczmq.core.schemes import Scheme
from pgczmq.core.settings import Settings


def resumed(run: Run, **rules: object) -> Run:
    """A new engine of the same scheme, from what a checkpoint would have kept of the other."""
    progress = Progress.from_plain(json.loads(json.dumps(run.engine.progress.plain(), allow_nan=False)))
    assert progress == run.engine.progress
    other = Run(run.scheme.name, run.scheme.workers)
    rules.setdefault("steps", 1000)
    other.scheme = run.scheme
    other.engine = Engine(run.scheme, Rules(**rules), lambda *_: 0.0, 100.0, progress)  # type: ignore[arg-type]
    return other


def test_it_is_plain_json_and_back() -> None:
    state = PolicyState(Plan(3, 0.5), rung=1, changed_at=4, counter=-2, distance=0.25)
    progress = Progress(7, state, Losses(2.0, (1.5, 0.1 + 0.2)), planned=1 / 3, lasted=9.5, messages=40, late=3)
    assert Progress.from_plain(json.loads(json.dumps(progress.plain()))) == progress
    assert progress.loss == 0.1 + 0.2


def test_a_first_loss_that_was_no_number_stays_none_and_is_not_the_next_one() -> None:
    progress = Progress(3, PolicyState(Plan(1)), Losses(math.nan, (1.0,)))
    back = Progress.from_plain(json.loads(json.dumps(progress.plain(), allow_nan=False)))
    assert back.losses.first is not None and math.isnan(back.losses.first)
    assert Progress.from_plain(Progress(0, PolicyState(Plan(1))).plain()).losses.first is None


def test_an_engine_that_goes_on_publishes_the_next_step_first() -> None:
    run = Run(steps=1000)
    run.start()
    run.step(0, (0, 1, 2), loss=4.0)
    run.step(1, (0, 1, 3), loss=3.0)
    run.arrive(2, 1)
    assert run.engine.progress == Progress(
        2, PolicyState(Plan(3)), Losses(4.0, (4.0, 3.0)), lasted=1.0, messages=7, late=1
    )
    other = resumed(run)
    said = other.start(at=100.0)
    assert [(command.step, command.k) for command in said if isinstance(command, Publish)] == [(2, 3)]
    assert other.engine.open_step == 2
    other.step(2, (0, 1, 2), loss=2.0)
    assert other.engine.progress.losses == Losses(4.0, (4.0, 3.0, 2.0))
    assert (other.engine.messages, other.engine.late) == (10, 1)


def test_time_goes_on_without_the_time_between_two_masters() -> None:
    run = Run()
    run.start(at=0.0)
    for worker in (0, 1, 2):
        run.arrive(worker, 0, at=4.0)
    run.engine.handle(Applied(0, 5.0))
    other = resumed(run)
    other.start(at=103.0)
    for worker in (0, 1, 2):
        other.arrive(worker, 1, at=105.0)
    other.engine.handle(Applied(1, 106.0))
    assert run.engine.progress.lasted == 5.0 and other.engine.progress.lasted == 8.0


def test_an_answer_to_a_step_before_is_late_not_unknown() -> None:
    """Of a worker that computed on what the master before had sent, and has joined this one since."""
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    other = resumed(run)
    other.start(at=100.0)
    assert not any(isinstance(command, Apply) for command in other.arrive(0, 0, at=101.0))
    assert other.engine.late == 1


def test_divergence_is_measured_from_the_runs_first_loss() -> None:
    run = Run("dgd", 2)
    run.start()
    for step in range(20):
        run.step(step, (0, 1), loss=1.0)
    other = resumed(run)
    other.start(at=100.0)
    said = []
    for step in range(20, 60):
        said = other.step(step, (0, 1), loss=11.0)
        if isinstance(said[-1], Finish):
            break
    assert isinstance(said[-1], Finish) and said[-1].diverged
    assert step == 20 + 22  # with losses from before the break in the window; 24 if there were none


def test_a_run_that_goes_on_does_not_wait_long_for_workers_it_can_do_without() -> None:
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    other = resumed(run)
    for worker in (0, 1, 3):
        other.join(worker, at=105.0)
    assert not [command for command in other.tick(100.0 + BACK_SECONDS) if isinstance(command, Publish)]
    assert other.tick(100.1 + BACK_SECONDS)[0] == Note("waiting", "going on without workers 2")
    assert other.engine.open_step == 1
    sent = other.join(2, at=112.0)
    assert Send(2, 1) in sent


def test_a_run_that_goes_on_waits_for_enough_workers() -> None:
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    other = resumed(run)
    other.join(0, at=105.0)
    other.tick(100.1 + BACK_SECONDS)
    assert other.engine.phase == "starting"


def test_when_all_steps_are_done_it_says_so_at_once() -> None:
    run = Run(steps=1000)
    run.start()
    run.step(0, (0, 1, 2))
    other = resumed(run, steps=1)
    assert other.engine.handle(Tick(100.0)) == [Evaluate(1), Checkpoint(1), Finish(0, "done")]


def test_a_stop_before_the_first_step_saves_what_it_began_with() -> None:
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    other = resumed(run)
    assert other.engine.handle(Stop("no", 100.0)) == [Checkpoint(1), Finish(75, "no")]


# ---------------------------------------------------------------- a checkpoint is of what it says


def being_applied(name: str = "is-sgd", **rules: object) -> Run:
    run = Run(name, **rules)  # type: ignore[arg-type]
    run.start()
    run.step(0, (0, 1, 2) if name == "is-sgd" else (0, 1, 2, 3))
    for worker in (0, 1, 2) if name == "is-sgd" else (0, 1, 2, 3):
        run.arrive(worker, 1)
    assert run.engine.phase == "applying"
    return run


def test_a_stop_during_an_update_waits_for_it() -> None:
    run = being_applied()
    assert run.engine.handle(Stop("now", 2.0)) == []
    assert run.engine.handle(Stop("now, I said", 2.5)) == []
    assert run.apply(1, at=3.0) == [Checkpoint(2), Finish(75, "now")]
    assert run.engine.progress.steps == 2


def test_a_stop_during_an_update_that_comes_to_nothing() -> None:
    run = being_applied()
    assert run.engine.handle(Stop("now", 2.0)) == []
    assert run.engine.handle(Spoiled(1, (0,), 3.0)) == [Checkpoint(1), Finish(75, "now")]
    assert run.engine.progress.steps == 1


def test_a_stop_during_the_last_update_is_a_run_that_is_done() -> None:
    run = being_applied(steps=2)
    assert run.engine.handle(Stop("now", 2.0)) == []
    assert run.apply(1, at=3.0)[-1] == Finish(0, "done")


def test_a_deterministic_run_that_loses_a_worker_during_an_update_waits_for_it_too() -> None:
    run = being_applied("dgd", deterministic=True)
    said = run.engine.handle(Left(0, "a", "said goodbye", 2.0))
    assert not any(isinstance(command, Checkpoint | Finish) for command in said)
    checkpoint, finish = run.apply(1, at=3.0)
    assert checkpoint == Checkpoint(2) and isinstance(finish, Finish) and finish.exit_code == 74


@pytest.mark.parametrize("name", ["dgd", "pgc-cr"])
def test_planned_seconds_add_up_over_a_break(name: str) -> None:
    from pgczmq.core.schemes import build

    def planned(worker: int, step: int, evaluated: int, fraction: float) -> float:
        return 0.1 + worker / 3 + step / 7

    scheme = build(Settings(name=name, workers=4))
    whole, first = (Engine(scheme, Rules(steps=9, deterministic=True), planned, 0.0) for _ in range(2))
    for step in range(4):
        drive(whole, scheme, step)
        drive(first, scheme, step)
    second = Engine(scheme, Rules(steps=9, deterministic=True), planned, 50.0, first.progress)
    for step in range(4, 6):
        drive(whole, scheme, step)
        drive(second, scheme, step)
    assert second.progress.planned == whole.progress.planned > 0


def drive(engine: Engine, scheme: Scheme, step: int) -> None:
    """One step of an engine of which all workers answer."""
    from pgczmq.core.events import Arrived, Ready

    if engine.phase == "starting":
        for worker in range(4):
            engine.handle(Joined(worker, "a", 0.0))
            engine.handle(Ready(worker, "a", 0.0))
    for worker in range(4):
        held = scheme.placement.held[worker]
        engine.handle(Arrived(worker, "a", step, (0,) * len(held), tuple((p, 1.0) for p in held), 1.0, 1.0))
    engine.handle(Applied(step, 2.0))
