"""The master's brain: event in, exact commands out. Times are seconds on a clock that only these tests turn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pgczmq.core.decoders import Weights
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import (
    Applied,
    Apply,
    Arrived,
    Checkpoint,
    ClosedStep,
    Command,
    Evaluate,
    Finish,
    Heard,
    Joined,
    Left,
    Note,
    Outcome,
    Publish,
    Ready,
    Refuse,
    Send,
    Spoiled,
    Stop,
    Tick,
    Use,
)
from pgczmq.core.schemes import Settings, build

NEVER = 10**9


def nothing_planned(worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
    return 0.0


class Run:
    """An engine, and the events of workers whose incarnation is ``a`` unless said otherwise."""

    def __init__(
        self,
        name: str = "is-sgd",
        workers: int = 4,
        *,
        scheme: dict[str, object] | None = None,
        planned: Callable[[int, int, int, float], float] = nothing_planned,
        **rules: object,
    ) -> None:
        built = build(Settings(name=name, workers=workers, **(scheme or {})))  # type: ignore[arg-type]
        rules.setdefault("steps", 1000)
        self.scheme = built
        self.engine = Engine(built, Rules(**rules), planned, started_at=0.0)  # type: ignore[arg-type]

    def join(self, worker: int, at: float = 0.0, life: str = "a") -> list[Command]:
        joined = self.engine.handle(Joined(worker, life, at))
        assert joined[-1].incarnation == life  # type: ignore[union-attr]
        return self.engine.handle(Ready(worker, life, at))

    def start(self, at: float = 0.0) -> list[Command]:
        """Everybody joins; what the last one causes."""
        said: list[Command] = []
        for worker in range(self.scheme.workers):
            said = self.join(worker, at)
        return said

    def arrive(
        self,
        worker: int,
        step: int,
        at: float = 1.0,
        *,
        life: str = "a",
        norm: float | None = 1.0,
        loss: float = 2.0,
        ages: tuple[int, ...] | None = None,
    ) -> list[Command]:
        held = self.scheme.placement.held[worker]
        given = (0,) * len(held) if ages is None else ages
        losses = tuple((partition, loss) for partition, age in zip(held, given, strict=True) if age == 0)
        return self.engine.handle(Arrived(worker, life, step, given, losses, norm, at))

    def apply(self, step: int, at: float = 1.0) -> list[Command]:
        return self.engine.handle(Applied(step, at))

    def heard(self, worker: int, at: float, life: str = "a") -> list[Command]:
        return self.engine.handle(Heard(worker, life, at))

    def left(self, worker: int, at: float = 1.0, life: str = "a", reason: str = "said goodbye") -> list[Command]:
        return self.engine.handle(Left(worker, life, reason, at))

    def tick(self, at: float, deaf: float = 0.0) -> list[Command]:
        return self.engine.handle(Tick(at, deaf))

    def step(self, step: int, workers: tuple[int, ...], loss: float = 2.0) -> list[Command]:
        """These workers answer, the step is applied; what that causes."""
        for worker in workers:
            last = self.arrive(worker, step, loss=loss)
        assert closed(last).step == step
        return self.apply(step)


def closed(commands: list[Command]) -> ClosedStep:
    return next(command.closed for command in commands if isinstance(command, Apply))


def notes(commands: list[Command]) -> list[str]:
    return [command.kind for command in commands if isinstance(command, Note)]


def without_notes(commands: list[Command]) -> list[Command]:
    return [command for command in commands if not isinstance(command, Note)]


def back(worker: int, seconds: float) -> Note:
    return Note("ready", f"worker {worker} is back after {seconds:.1f} s", worker=worker, seconds=seconds)


def publish(step: int, k: int = 3, outcome: Outcome | None = None) -> Publish:
    return Publish(step, k, 1.0, outcome or Outcome())


# ---------------------------------------------------------------- starting


def test_step_zero_opens_when_the_last_worker_is_ready() -> None:
    run = Run()
    for worker in range(3):
        assert run.join(worker) == [Note("ready", f"worker {worker} is ready", worker=worker)]
    assert (run.engine.phase, run.engine.open_step) == ("starting", -1)
    assert run.join(3) == [Note("ready", "worker 3 is ready", worker=3), publish(0)]
    assert (run.engine.phase, run.engine.open_step) == ("open", 0)


def test_whoever_left_while_starting_is_waited_for() -> None:
    run = Run()
    run.join(0)
    assert notes(run.left(0)) == ["left"]
    for worker in (1, 2, 3):
        assert Publish not in {type(command) for command in run.join(worker)}
    assert without_notes(run.join(0, life="b")) == [publish(0)]


def test_a_worker_that_was_silent_and_comes_back_while_starting_starts_the_run() -> None:
    run = Run(workers=2, scheme={"stragglers": 0})
    run.join(0)
    assert notes(run.tick(7.0)) == ["left"]
    run.join(1, at=7.0)
    said = run.heard(0, 8.0)
    assert said == [back(0, 1.0), publish(0, k=2)]


def test_a_worker_silent_before_it_was_ready_is_not_counted_on_by_a_sign_of_life() -> None:
    run = Run(workers=2, scheme={"stragglers": 0})
    run.join(0)
    run.engine.handle(Joined(1, "a", 0.0))
    run.heard(0, 6.5)
    assert notes(run.tick(7.0)) == ["left"]
    assert run.heard(1, 7.5) == []
    assert run.engine.phase == "starting"
    assert without_notes(run.engine.handle(Ready(1, "a", 8.0))) == [publish(0, k=2)]
    assert run.tick(8.1) == []


def test_getting_ready_is_a_sign_of_life() -> None:
    run = Run(workers=2, scheme={"stragglers": 0})
    run.join(0, at=50.0)
    run.engine.handle(Joined(1, "a", 40.0))
    run.engine.handle(Ready(1, "a", 50.0))
    assert run.tick(50.1) == []


def test_start_timeout_starts_with_a_usable_set_and_names_the_missing() -> None:
    run = Run(start_timeout=120.0)
    for worker in (0, 1, 3):
        run.join(worker, at=119.0)
    assert run.tick(120.0)[:1] == [Note("starting", "3/4 workers ready, missing 2")]
    note = Note("waiting", "starting without workers 2: start_timeout is over")
    assert run.tick(120.5) == [note, publish(0)]


def test_start_timeout_without_a_usable_set_ends_the_run_and_names_the_missing() -> None:
    run = Run("gc-fr", scheme={"stragglers": 1}, start_timeout=60.0)
    for worker in (0, 1):
        run.join(worker, at=59.0)
    text = "only 2 of 4 workers were ready within start_timeout=60 s; missing 2, 3"
    assert run.tick(61.0) == [Finish(74, text)]
    assert run.engine.phase == "finished"


def test_a_deterministic_run_starts_with_everybody_or_not_at_all() -> None:
    run = Run(deterministic=True, start_timeout=60.0)
    for worker in (0, 1, 2):
        run.join(worker, at=59.0)
    assert [type(command) for command in run.tick(61.0)] == [Finish]


def test_while_starting_a_reminder_comes_every_ten_seconds() -> None:
    run = Run()
    run.join(0)
    said = []
    for at in range(1, 35):
        run.heard(0, at)
        said += [(at, note.text) for note in run.tick(at) if isinstance(note, Note)]
    assert said == [(at, "1/4 workers ready, missing 1, 2, 3") for at in (10, 20, 30)]


def test_a_worker_that_comes_late_is_sent_the_open_step() -> None:
    run = Run(start_timeout=10.0)
    for worker in (0, 1, 2):
        run.join(worker, at=9.5)
    run.tick(10.5)
    assert run.join(3, at=11.0) == [Note("ready", "worker 3 is ready", worker=3), Send(3, 0)]


# ---------------------------------------------------------------- a step


def test_a_step_closes_at_the_kth_arrival_with_the_account_of_it() -> None:
    run = Run()
    run.start()
    assert run.arrive(2, 0, 1.0, loss=1.0) == [Use(0, 2, fold=True)]
    assert run.arrive(0, 0, 1.5, loss=2.0) == [Use(0, 0, fold=True)]
    assert run.engine.arrived == (2, 0)
    use, apply = run.arrive(3, 0, 2.0, loss=6.0)
    third = pytest.approx(1 / 3)
    assert use == Use(0, 3, fold=True)
    assert apply == Apply(
        0,
        Weights((2, 0, 3), (third, third, third)),  # type: ignore[arg-type]
        ClosedStep(
            step=0,
            published_at=0.0,
            closed_at=2.0,
            k=3,
            batch_fraction=1.0,
            loss=3.0,
            arrived=(2, 0, 3),
            arrived_at=(1.0, 1.5, 2.0),
            used=(0, 2, 3),
            spare=(),
            missing=(1,),
            weights=(third, third, third),  # type: ignore[arg-type]
            ages=((0,), (0,), (0,)),
            recovered=0.75,
            max_alpha=pytest.approx(4 / 3),  # type: ignore[arg-type]
            fresh=3,
        ),
    )
    assert run.engine.phase == "applying"
    assert run.apply(0, 2.5) == [publish(1, outcome=Outcome(0, (0, 2, 3), (), ()))]


def test_what_arrives_while_applying_or_afterwards_is_late_counted_and_reported_once() -> None:
    run = Run(scheme={"k": 2})
    run.start()
    run.arrive(0, 0)
    run.arrive(1, 0)
    assert run.arrive(2, 0, 1.2) == [Note("late", "worker 2 answered step 0 late", 2, 0)]
    assert run.apply(0) == [publish(1, k=2, outcome=Outcome(0, (0, 1), (), ((2, 0),)))]
    assert run.arrive(3, 0, 1.5) == [Note("late", "worker 3 answered step 0 late", 3, 0)]
    assert (run.engine.late, run.engine.messages, run.engine.late_fraction) == (2, 4, 0.5)
    assert run.engine.arrived == ()
    assert run.step(1, (0, 1)) == [publish(2, k=2, outcome=Outcome(1, (0, 1), (), ((3, 0),)))]
    assert run.step(2, (0, 1)) == [publish(3, k=2, outcome=Outcome(2, (0, 1), (), ()))]


def test_a_bare_report_is_late_and_never_used() -> None:
    run = Run(scheme={"k": 2})
    run.start()
    run.step(0, (0, 1))
    assert notes(run.arrive(2, 0, norm=None)) == ["late"]
    assert run.engine.arrived == ()


def test_a_bare_report_of_the_open_step_has_no_gradient_to_use() -> None:
    run = Run(scheme={"k": 1})
    run.start()
    assert notes(run.arrive(2, 0, norm=None)) == ["late"]
    assert (run.engine.arrived, run.engine.phase) == ((), "open")


def test_a_second_arrival_of_a_group_is_spare() -> None:
    run = Run("gc-fr", scheme={"stragglers": 1})
    run.start()
    assert run.arrive(1, 0) == [Use(0, 1, fold=True)]
    assert run.arrive(0, 0) == [Use(0, 0)]
    account = closed(run.arrive(3, 0))
    assert (account.arrived, account.used, account.spare, account.missing) == ((1, 0, 3), (1, 3), (0,), (2,))
    assert run.apply(0) == [publish(1, outcome=Outcome(0, (1, 3), (0,), ()))]
    assert run.engine.outcome == Outcome(0, (1, 3), (0,))


def test_waiting_for_k_waits_for_k_though_fewer_are_usable_and_waiting_for_usable_does_not() -> None:
    patient = Run("gc-fr", scheme={"stragglers": 1, "wait": "k"})
    patient.start()
    patient.arrive(0, 0)
    assert patient.arrive(2, 0) == [Use(0, 2, fold=True)]
    assert closed(patient.arrive(1, 0)).used == (0, 2)
    quick = Run("gc-fr", scheme={"stragglers": 1, "wait": "usable"})
    quick.start()
    assert quick.arrive(0, 0) == [Use(0, 0, fold=True)]
    assert closed(quick.arrive(2, 0)).used == (0, 2)


def test_k_arrivals_that_are_not_usable_are_not_enough() -> None:
    run = Run("gc-fr", 6, scheme={"stragglers": 1, "load": 3})
    run.start()
    for worker in (0, 1, 2):
        run.arrive(worker, 0)
    assert closed([*run.arrive(4, 0), *run.arrive(5, 0)]).used == (0, 4)


def test_waiting_for_usable_changes_nothing_where_any_number_is_usable() -> None:
    run = Run("pgc-cr", scheme={"stragglers": 1, "wait": "usable"})
    run.start()
    run.arrive(0, 0)
    assert run.arrive(1, 0) == [Use(0, 1, fold=True)]
    assert closed(run.arrive(2, 0)).used == (0, 1, 2)


def test_a_scheme_usable_at_any_number_waits_for_k_even_when_it_says_usable() -> None:
    scheme = replace(build(Settings(name="is-sgd", workers=3, k=2)), wait="usable")
    engine = Engine(scheme, Rules(steps=3), nothing_planned, started_at=0.0)
    for worker in range(3):
        engine.handle(Joined(worker, "a", 0.0))
        engine.handle(Ready(worker, "a", 0.0))
    assert engine.handle(Arrived(0, "a", 0, (0,), (), 1.0, 1.0)) == [Use(0, 0, fold=True)]


def test_an_answer_sent_again_is_ignored_before_and_after_the_close() -> None:
    run = Run(scheme={"k": 2})
    run.start()
    run.arrive(0, 0)
    assert run.arrive(0, 0, 1.1) == []
    run.arrive(1, 0)
    assert run.arrive(1, 0, 1.3) == []
    run.apply(0)
    assert run.arrive(0, 0, 1.4) == []
    assert (run.engine.messages, run.engine.late) == (2, 0)


def test_a_late_answer_sent_again_is_counted_once() -> None:
    run = Run(scheme={"k": 2})
    run.start()
    run.step(0, (0, 1))
    run.arrive(2, 0)
    assert run.arrive(2, 0) == []
    assert run.engine.late == 1


def test_a_step_that_was_never_published_is_refused_and_not_counted() -> None:
    run = Run()
    assert isinstance(run.arrive(0, 0)[0], Refuse)
    run.start()
    assert run.arrive(0, 1) == [Refuse(0, "a", 1, "step 1 was never published")]
    assert run.engine.messages == 0
    assert run.arrive(0, 0) == [Use(0, 0, fold=True)]


def test_messages_of_another_incarnation_and_of_strangers_are_refused() -> None:
    run = Run()
    run.start()
    assert run.arrive(0, 0, life="old") == [Refuse(0, "old", 0, "its sender is not in this run")]
    assert run.engine.handle(Arrived(9, "a", 0, (0,), (), 1.0, 1.0)) == [
        Refuse(9, "a", 0, "its sender is not in this run")
    ]
    assert (run.engine.arrived, run.engine.messages) == ((), 0)


def test_a_worker_that_joined_but_is_not_ready_is_refused() -> None:
    run = Run()
    run.start()
    run.left(0)
    run.engine.handle(Joined(0, "b", 2.0))
    assert run.arrive(0, 0, life="b") == [Refuse(0, "b", 0, "its sender is not in this run")]


def test_an_applied_step_that_is_not_being_applied_is_a_drivers_error() -> None:
    run = Run()
    run.start()
    with pytest.raises(AssertionError, match="step 0 was applied but step 0 is open"):
        run.apply(0)


def test_a_spoiled_step_that_is_not_being_applied_is_a_drivers_error() -> None:
    run = Run()
    run.start()
    with pytest.raises(AssertionError, match="step 0 was spoiled but step 0 is open"):
        run.engine.handle(Spoiled(0, (1,), 1.0))


@pytest.mark.parametrize("shortfall", ["wait", "partial"])
def test_a_decoder_is_asked_once_a_step_where_the_number_of_arrivals_decides(shortfall: str) -> None:
    asked: list[Sequence[int]] = []

    class Counting:
        def weights(self, arrived: Sequence[int], origin: float) -> Weights | None:
            asked.append(arrived)
            return Weights.uniform(arrived, 1 / len(arrived))

        partial = weights

    scheme = replace(build(Settings(name="is-gc-hr", workers=6, stragglers=2, shortfall=shortfall)), decoder=Counting())
    run = Run()
    run.scheme, run.engine = scheme, Engine(scheme, Rules(steps=100), nothing_planned, started_at=0.0)
    run.start()
    for step in range(3):
        run.step(step, (3, 1, 5, 0))
    assert asked == [(3, 1, 5, 0)] * 3


# ---------------------------------------------------------------- too few workers


def test_the_loss_of_too_many_is_said_once_with_names_and_so_is_their_return() -> None:
    run = Run()
    run.start()
    assert notes(run.left(1)) == ["left"]
    text = "step 0 cannot close: is-sgd needs 3 of 4 workers; missing 1, 2"
    text += "; the run ends after 600 s of this (net.step_timeout)"
    assert run.left(2) == [Note("left", "worker 2 said goodbye", worker=2), Note("waiting", text, step=0)]
    assert run.tick(1.5) == []
    said = run.join(1, at=2.0, life="b")
    assert said == [
        back(1, 1.0),
        Send(1, 0),
        Note("enough", "enough workers again", step=0),
    ]


def test_a_worker_that_has_answered_is_not_missing_when_it_leaves() -> None:
    run = Run()
    run.start()
    run.arrive(0, 0)
    assert notes(run.left(0)) == ["left"]
    assert notes(run.left(1)) == ["left"]
    run.arrive(2, 0)
    assert closed(run.arrive(3, 0)).used == (0, 2, 3)


def test_partial_closes_when_no_live_worker_owes_an_answer_and_divides_by_what_there_is() -> None:
    run = Run("gc-fr", scheme={"stragglers": 1, "shortfall": "partial"})
    run.start()
    run.arrive(0, 0)
    run.left(2)
    assert run.engine.phase == "open"
    run.left(3)
    assert run.engine.phase == "open"
    said = run.left(1, at=3.0)
    assert notes(said) == ["left", "waiting", "partial"]
    account = closed(said)
    assert (account.used, account.weights, account.recovered, account.closed_at) == ((0,), (0.5,), 0.5, 3.0)


def test_partial_closes_at_the_last_answer_owed() -> None:
    run = Run("dgd", 3, scheme={"shortfall": "partial"})
    run.start()
    run.left(1)
    run.arrive(0, 0)
    said = run.arrive(2, 0)
    assert without_notes(said)[0] == Use(0, 2, fold=True)
    assert closed(said).weights == (0.5, 0.5)
    assert closed(said).missing == (1,)


def test_waiting_does_not_close_with_less_than_enough() -> None:
    run = Run("dgd", 3)
    run.start()
    run.left(1)
    run.arrive(0, 0)
    assert run.arrive(2, 0) == [Use(0, 2, fold=True)]
    assert without_notes(run.join(1, life="b")) == [Send(1, 0)]
    assert closed(run.arrive(1, 0, life="b")).used == (0, 1, 2)


def test_partial_with_nobody_left_closes_nothing() -> None:
    run = Run("dgd", 2, scheme={"shortfall": "partial"})
    run.start()
    run.left(0)
    assert notes(run.left(1)) == ["left", "waiting"]
    assert run.engine.phase == "open"


def test_step_timeout_ends_the_run_with_a_checkpoint_and_the_names() -> None:
    run = Run(step_timeout=60.0)
    run.start()
    run.step(0, (0, 1, 2))
    run.left(1)
    run.left(2)
    for at in (20.0, 40.0, 61.0):
        run.heard(0, at)
        run.heard(3, at)
        assert run.tick(at) == []
    run.heard(0, 61.1)
    run.heard(3, 61.1)
    reason = "no usable set of workers for step 1 within step_timeout=60 s; is-sgd needs 3 of 4 workers; missing 1, 2"
    assert run.tick(61.5) == [Checkpoint(1), Finish(74, reason)]
    assert run.tick(62.0) == []
    assert run.arrive(0, 1) == []


# ---------------------------------------------------------------- silence


def test_a_worker_expires_after_three_silent_heartbeats_and_not_before() -> None:
    run = Run(heartbeat=2.0)
    run.start()
    for at in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        for worker in (0, 1, 2):
            run.heard(worker, at)
        assert run.tick(at) == []
    for worker in (0, 1, 2):
        run.heard(worker, 6.2)
    assert run.tick(6.5) == [Note("left", "worker 3 has been silent for 6.5 s", worker=3)]
    assert run.tick(6.6) == []


def test_an_answer_is_a_sign_of_life() -> None:
    run = Run()
    run.start()
    for worker in range(4):
        run.heard(worker, 4.0) if worker else run.arrive(0, 0, 5.0)
    assert [run.tick(at) for at in (5.5, 7.0, 9.0)] == [[], [], []]


def test_nobody_expires_because_the_master_itself_was_asleep() -> None:
    run = Run(heartbeat=2.0)
    run.start()
    run.tick(1.0)
    assert run.tick(500.0, deaf=499.0) == []
    assert run.tick(501.0) == []
    for worker in (0, 1, 2):
        run.heard(worker, 505.0)
    assert [run.tick(at) for at in (502.0, 503.0, 504.0, 505.0)] == [[]] * 4
    assert notes(run.tick(505.5)) == ["left"]


def test_a_step_has_all_its_time_although_the_master_was_asleep() -> None:
    run = Run(heartbeat=2.0, step_timeout=10.0)
    run.start()
    run.tick(1.0)
    assert run.tick(500.0, deaf=498.5) == []
    assert run.engine.deadline == 508.5
    for worker in range(4):
        run.heard(worker, 508.0)
    assert run.tick(508.4) == []
    assert run.tick(508.6)[-1].exit_code == 74  # type: ignore[union-attr]


def test_a_run_has_all_its_time_to_start_although_the_master_was_asleep() -> None:
    run = Run(heartbeat=2.0, start_timeout=10.0)
    run.join(0)
    assert notes(run.tick(500.0, deaf=499.0)) == ["starting"]
    assert run.engine.deadline == 509.0


def test_a_sign_of_life_read_after_the_masters_sleep_grants_no_extra_time() -> None:
    run = Run(heartbeat=2.0)
    run.start()
    run.tick(1.0)
    run.heard(3, 500.0)
    run.tick(500.0, deaf=498.5)
    for at in range(501, 507):
        for worker in (0, 1, 2):
            run.heard(worker, at)
        assert run.tick(at) == []
    for worker in (0, 1, 2):
        run.heard(worker, 506.5)
    assert notes(run.tick(506.5)) == ["left"]


def test_a_gone_worker_heard_again_was_only_slow_and_is_sent_the_open_step() -> None:
    run = Run()
    run.start()
    for worker in (0, 1, 2):
        run.heard(worker, 6.0)
    run.tick(6.5)
    run.step(0, (0, 1, 2))
    assert run.heard(3, 7.0) == [back(3, 0.5), Send(3, 1)]
    assert run.heard(3, 7.5) == []


def test_a_late_answer_brings_a_gone_worker_back_and_it_is_sent_the_open_step() -> None:
    run = Run()
    run.start()
    for worker in (0, 1, 2):
        run.heard(worker, 6.0)
    run.tick(6.5)
    run.step(0, (0, 1, 2))
    said = run.arrive(3, 0, 7.0)
    assert notes(said) == ["ready", "late"]
    assert without_notes(said) == [Send(3, 1)]


def test_the_answer_of_a_gone_worker_to_the_open_step_counts_and_nothing_is_sent() -> None:
    run = Run()
    run.start()
    for worker in (0, 1, 2):
        run.heard(worker, 6.0)
    run.tick(6.5)
    assert run.arrive(3, 0, 7.0) == [back(3, 0.5), Use(0, 3, fold=True)]


# ---------------------------------------------------------------- wrong numbers


def test_a_gradient_that_is_not_finite_is_refused_and_the_others_go_on() -> None:
    run = Run()
    run.start()
    reason = "the gradient for step 0 is not finite"
    assert run.arrive(1, 0, norm=math.nan) == [
        Refuse(1, "a", 0, reason),
        Note("refused", f"worker 1: {reason}", 1, 0),
    ]
    assert run.engine.arrived == (1,)
    assert run.arrive(1, 0) == []
    run.arrive(0, 0)
    run.arrive(2, 0)
    assert closed(run.arrive(3, 0)).used == (0, 2, 3)
    assert (run.engine.messages, run.engine.late) == (4, 0)
    run.apply(0)
    assert run.arrive(1, 1) == [Use(1, 1, fold=True)]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
@pytest.mark.parametrize("shortfall", ["wait", "partial"])
def test_when_no_gradient_is_finite_the_run_has_diverged(norm: float, shortfall: str) -> None:
    run = Run(scheme={"shortfall": shortfall})
    run.start()
    for worker in (0, 1, 2):
        assert Finish not in {type(command) for command in run.arrive(worker, 0, norm=norm)}
    last = run.arrive(3, 0, norm=norm)[-1]
    assert last == Finish(0, "diverged at step 0: the gradients of step 0 are not finite", diverged=True)


def test_when_the_finite_gradients_of_all_workers_are_too_few_the_run_has_diverged() -> None:
    run = Run()
    run.start()
    run.arrive(0, 0, norm=math.nan)
    run.arrive(1, 0, norm=math.nan)
    run.arrive(2, 0)
    assert run.arrive(3, 0)[-1].diverged  # type: ignore[union-attr]


def test_one_refusal_and_one_absent_worker_are_waited_out_not_called_divergence() -> None:
    run = Run()
    run.start()
    run.left(3)
    said = run.arrive(0, 0, norm=math.nan)
    assert notes(said) == ["refused", "waiting"]
    run.arrive(1, 0)
    assert run.arrive(2, 0) == [Use(0, 2, fold=True)]
    assert Send(3, 0) in run.join(3, life="b")
    assert closed(run.arrive(3, 0, life="b")).used == (1, 2, 3)


def test_when_all_the_living_send_nonsense_the_absent_are_not_waited_for() -> None:
    run = Run(scheme={"k": 1})
    run.start()
    run.left(3)
    run.arrive(0, 0, norm=math.nan)
    run.arrive(1, 0, norm=math.nan)
    assert run.arrive(2, 0, norm=math.nan)[-1].diverged  # type: ignore[union-attr]


def test_partial_uses_the_finite_gradients_when_the_others_are_refused() -> None:
    run = Run("dgd", 3, scheme={"shortfall": "partial"})
    run.start()
    run.arrive(0, 0, norm=math.nan)
    run.arrive(1, 0)
    account = closed(run.arrive(2, 0))
    assert (account.used, account.weights) == ((1, 2), (0.5, 0.5))


def test_with_abort_the_first_gradient_that_is_not_finite_ends_the_run() -> None:
    run = Run(nonfinite="abort")
    run.start()
    run.step(0, (0, 1, 2))
    said = without_notes(run.arrive(1, 1, norm=math.nan))
    assert said == [
        Refuse(1, "a", 1, "the gradient for step 1 is not finite"),
        Checkpoint(1),
        Finish(70, "worker 1 sent a gradient that is not finite (nonfinite=abort)"),
    ]


def test_a_spoiled_combination_reopens_the_step_and_refuses_the_culprits() -> None:
    run = Run()
    run.start()
    for worker in (0, 1, 2):
        run.arrive(worker, 0)
    said = run.engine.handle(Spoiled(0, (1,), 2.0))
    reason = "the gradient for step 0 is not finite"
    assert said == [Refuse(1, "a", 0, reason), Note("refused", f"worker 1: {reason}", 1, 0)]
    assert (run.engine.phase, run.engine.arrived) == ("open", (0, 2, 1))
    assert closed(run.arrive(3, 0)).used == (0, 2, 3)


def test_a_spoiled_combination_with_enough_others_closes_again_at_once() -> None:
    run = Run("gc-fr", scheme={"stragglers": 1})
    run.start()
    for worker in (0, 1):
        run.arrive(worker, 0)
    assert closed(run.arrive(2, 0)).used == (0, 2)
    run.arrive(3, 0, 1.5)
    said = run.engine.handle(Spoiled(0, (0,), 2.0))
    assert [type(command) for command in said] == [Refuse, Note]
    assert closed(run.arrive(3, 0, 2.5)).used == (1, 2)


def test_what_came_while_a_spoiled_update_was_made_is_taken_when_it_is_sent_again() -> None:
    run = Run()
    run.start()
    for worker in (0, 1, 2):
        run.arrive(worker, 0)
    assert notes(run.arrive(3, 0, 1.5)) == ["late"]
    run.engine.handle(Spoiled(0, (1,), 2.0))
    assert (run.engine.late, 3 in run.engine.arrived) == (0, False)
    assert closed(run.arrive(3, 0, 2.5)).used == (0, 2, 3)
    assert (run.engine.late, run.engine.messages) == (0, 4)
    assert run.apply(0) == [publish(1, outcome=Outcome(0, (0, 2, 3), (), ()))]


def test_a_combination_spoiled_by_nobody_has_diverged() -> None:
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    for worker in (0, 1, 2):
        run.arrive(worker, 1)
    reason = "diverged at step 1: the update of step 1 is not finite although every gradient was"
    assert run.engine.handle(Spoiled(1, (), 2.0)) == [Finish(0, reason, diverged=True)]


def test_a_mean_loss_of_twenty_five_steps_above_ten_times_the_first_has_diverged() -> None:
    run = Run(scheme={"k": 1})
    run.start()
    run.step(0, (0,), loss=1.0)
    for step in range(1, 24):
        assert type(run.step(step, (0,), loss=10.0)[-1]) is Publish
    assert type(run.step(24, (0,), loss=19.0)[-1]) is Publish  # 1 + 23 * 10 + 19 is 25 * 10, and not above it
    assert type(run.step(25, (0,), loss=1.0)[-1]) is Publish  # the first 1 has left the window
    said = run.step(26, (0,), loss=10.5)
    reason = "diverged at step 26: the mean loss of 25 steps is over 10 times the first"
    assert said == [Finish(0, reason, diverged=True)]


def test_a_loss_that_is_not_a_number_beside_a_finite_gradient_is_reported_and_nothing_more() -> None:
    run = Run(scheme={"k": 1})
    run.start()
    run.step(0, (0,), loss=1.0)
    for step in range(1, 40):
        account = closed(run.arrive(0, step, loss=math.nan))
        assert math.isnan(account.loss)
        assert type(run.apply(step)[-1]) is Publish


def test_the_loss_of_a_spoiled_attempt_is_not_counted() -> None:
    run = Run("is-sgd", 2, scheme={"k": 1})
    run.start()
    run.arrive(0, 0, loss=1e-6)
    run.engine.handle(Spoiled(0, (0,), 1.0))
    run.arrive(1, 0, loss=1.0)
    assert type(run.apply(0)[-1]) is Publish
    for step in range(1, 40):
        assert type(run.step(step, (0,), loss=1.0)[-1]) is Publish


# ---------------------------------------------------------------- a second life, and two of one number


def test_a_worker_that_rejoins_is_sent_the_open_step_and_its_old_life_is_refused() -> None:
    run = Run()
    run.start()
    run.left(2)
    assert run.join(2, at=2.0, life="b") == [back(2, 1.0), Send(2, 0)]
    assert isinstance(run.arrive(2, 0, life="a")[0], Refuse)
    assert run.arrive(2, 0, life="b") == [Use(0, 2, fold=True)]


def test_a_worker_whose_old_life_has_answered_is_sent_nothing_and_not_used_twice() -> None:
    run = Run()
    run.start()
    run.arrive(2, 0)
    run.left(2)
    assert without_notes(run.join(2, at=2.0, life="b")) == []
    assert run.arrive(2, 0, 2.5, life="b") == []
    assert run.engine.arrived == (2,)
    run.arrive(0, 0)
    assert closed(run.arrive(1, 0)).used == (0, 1, 2)


def test_a_new_life_may_answer_where_the_old_one_was_refused() -> None:
    run = Run()
    run.start()
    run.arrive(2, 0, norm=math.nan)
    run.left(2)
    assert Send(2, 0) in run.join(2, at=2.0, life="b")
    assert run.arrive(2, 0, life="b") == [Use(0, 2, fold=True)]
    assert run.engine.arrived == (2,)


def test_saying_hello_again_does_not_make_an_old_answer_new() -> None:
    run = Run(scheme={"k": 2})
    run.start()
    run.step(0, (0, 1))
    assert notes(run.arrive(2, 0)) == ["late"]
    run.join(2, at=2.0, life="a")
    assert run.arrive(2, 0, 2.1) == []
    assert (run.engine.late, run.engine.messages) == (1, 3)


def test_while_a_step_is_being_applied_nothing_is_sent_to_whoever_returns() -> None:
    run = Run()
    run.start()
    run.left(3)
    for worker in (0, 1, 2):
        run.arrive(worker, 0)
    assert without_notes(run.join(3, life="b")) == []


def test_a_goodbye_of_a_former_life_means_nothing() -> None:
    run = Run()
    run.start()
    run.left(2)
    run.join(2, life="b")
    assert run.left(2, life="a") == []
    assert run.heard(2, 3.0, life="a") == []


# ---------------------------------------------------------------- the end


def test_evaluations_and_checkpoints_come_at_their_intervals_and_at_the_end() -> None:
    run = Run(scheme={"k": 1}, steps=7, eval_every=2, checkpoint_every=3)
    run.start()
    told = [[c for c in run.step(step, (0,)) if not isinstance(c, Publish)] for step in range(7)]
    assert told == [
        [],
        [Evaluate(2)],
        [Checkpoint(3)],
        [Evaluate(4)],
        [],
        [Evaluate(6), Checkpoint(6)],
        [Evaluate(7), Checkpoint(7), Finish(0, "done")],
    ]


def test_without_intervals_there_is_one_evaluation_and_one_checkpoint_at_the_end() -> None:
    run = Run(scheme={"k": 1}, steps=2)
    run.start()
    assert run.step(0, (0,)) == [publish(1, k=1, outcome=Outcome(0, (0,), (), ()))]
    assert run.step(1, (0,)) == [Evaluate(2), Checkpoint(2), Finish(0, "done")]
    assert run.engine.handle(Stop("again", 9.0)) == []


def test_stop_saves_what_was_applied_and_drops_the_open_step() -> None:
    run = Run()
    run.start()
    run.step(0, (0, 1, 2))
    run.arrive(0, 1)
    assert run.engine.handle(Stop("interrupted by a person", 3.0)) == [
        Checkpoint(1),
        Finish(75, "interrupted by a person"),
    ]


def test_stop_before_the_first_update_saves_nothing() -> None:
    run = Run()
    assert run.engine.handle(Stop("no", 0.0)) == [Finish(75, "no")]


def test_an_unknown_event_is_a_drivers_error() -> None:
    with pytest.raises(TypeError, match="knows no event"):
        Run().engine.handle("hello")  # type: ignore[arg-type]
