"""The worker's brain: event in, exact command out."""

from collections.abc import Sequence

import pytest
from core_oracles import repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core.pipeline import (
    Answer,
    Delay,
    DelayOver,
    Evaluated,
    EvaluatePlace,
    Lost,
    Opened,
    Pipeline,
    Published,
    Report,
    WorkerCommand,
)
from pgczmq.core.schedule import EvaluateAll, EvaluateOne

HELD = (5, 6, 7)


class Asked:
    """An injected delay that remembers what it was asked for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls: list[tuple[int, int, int, float]] = []

    def __call__(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        self.calls.append((worker, step, evaluated, batch_fraction))
        return self.seconds


def rotating(on_new_step: str = "skip", delay: float = 0.0, held: Sequence[int] = HELD) -> Pipeline:
    schedule = EvaluateOne(2 * len(held) - 1)
    return Pipeline(1, held, schedule=schedule, on_new_step=on_new_step, delay=Asked(delay))


def evaluating_all(on_new_step: str = "skip", delay: float = 0.0) -> Pipeline:
    return Pipeline(1, HELD, schedule=EvaluateAll(), on_new_step=on_new_step, delay=Asked(delay))


def warm(pipeline: Pipeline, step: int = 0) -> list[WorkerCommand]:
    """Three evaluations with losses 0, 1, 2; what the last one causes."""
    said = pipeline.handle(Published(step, 1.0))
    for place in range(3):
        assert said == [EvaluatePlace(step, place, 1.0)]
        said = pipeline.handle(Evaluated(float(place)))
    return said


def test_a_new_worker_has_nothing_in_hand() -> None:
    pipeline = rotating()
    assert (pipeline.idle, pipeline.is_behind, pipeline.step) == (True, False, -1)


def test_the_first_step_evaluates_every_place_one_after_another_and_answers() -> None:
    pipeline = rotating()
    assert warm(pipeline) == [Answer(0, (0, 0, 0), ((5, 0.0), (6, 1.0), (7, 2.0)))]
    assert (pipeline.idle, pipeline.is_behind, pipeline.step) == (True, False, 0)


def test_afterwards_it_evaluates_one_place_a_step_and_sends_the_ages_of_all() -> None:
    pipeline = rotating()
    warm(pipeline)
    answers = []
    for step in range(1, 7):
        (asked,) = pipeline.handle(Published(step, 0.5))
        assert asked == EvaluatePlace(step, (step - 1) % 3, 0.5)
        answers += pipeline.handle(Evaluated(9.0))
    assert [answer.ages for answer in answers] == [(0, 1, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 1, 0)]
    assert answers[0] == Answer(1, (0, 1, 1), ((5, 9.0),))
    assert answers[4] == Answer(5, (1, 0, 2), ((6, 9.0),))


def test_a_scheme_that_is_not_pipelined_evaluates_all_places_every_step() -> None:
    pipeline = evaluating_all()
    for step in range(3):
        assert warm(pipeline, step) == [Answer(step, (0, 0, 0), ((5, 0.0), (6, 1.0), (7, 2.0)))]


def test_the_injected_delay_is_drawn_once_after_the_last_partition_and_slept_before_the_answer() -> None:
    delay = Asked(0.25)
    pipeline = Pipeline(1, HELD, schedule=EvaluateOne(5), on_new_step="skip", delay=delay)
    assert warm(pipeline) == [Delay(0, 0.25)]
    assert not pipeline.idle
    (answer,) = pipeline.handle(DelayOver(0))
    assert isinstance(answer, Answer)
    assert pipeline.handle(Published(1, 0.5)) == [EvaluatePlace(1, 0, 0.5)]
    assert pipeline.handle(Evaluated(1.0)) == [Delay(1, 0.25)]
    assert delay.calls == [(1, 0, 3, 1.0), (1, 1, 1, 0.5)]


def test_the_end_of_a_delay_that_is_not_being_slept_means_nothing() -> None:
    pipeline = rotating(delay=0.25)
    assert pipeline.handle(DelayOver(0)) == []
    pipeline.handle(Published(0, 1.0))
    assert pipeline.handle(DelayOver(0)) == []
    for _ in range(3):
        pipeline.handle(Evaluated(0.0))
    assert pipeline.handle(DelayOver(1)) == []
    assert len(pipeline.handle(DelayOver(0))) == 1
    assert pipeline.handle(DelayOver(0)) == []


def test_an_evaluation_that_was_not_asked_for_is_a_drivers_error() -> None:
    with pytest.raises(AssertionError, match="not asked for"):
        rotating().handle(Evaluated(0.0))
    pipeline = rotating(delay=1.0)
    warm(pipeline)
    with pytest.raises(AssertionError, match="not asked for"):
        pipeline.handle(Evaluated(0.0))


def test_a_step_published_twice_or_out_of_order_is_begun_once() -> None:
    pipeline = rotating()
    pipeline.handle(Published(3, 1.0))
    assert pipeline.handle(Published(3, 1.0)) == []
    assert pipeline.handle(Published(2, 1.0)) == []
    for _ in range(2):
        pipeline.handle(Evaluated(0.0))
    assert pipeline.handle(Evaluated(0.0)) == [Answer(3, (0, 0, 0), ((5, 0.0), (6, 0.0), (7, 0.0)))]
    assert pipeline.handle(Published(3, 1.0)) == []


# ---------------------------------------------------------------- behind: skip


def test_skip_finishes_the_step_in_hand_reports_it_and_works_on_the_newest() -> None:
    pipeline = evaluating_all()
    pipeline.handle(Published(0, 1.0))
    assert pipeline.handle(Published(1, 1.0)) == []
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(0, 1, 1.0)]
    assert pipeline.handle(Published(2, 0.5)) == []
    assert pipeline.handle(Evaluated(1.0)) == [EvaluatePlace(0, 2, 1.0)]
    losses = ((5, 0.0), (6, 1.0), (7, 2.0))
    assert pipeline.handle(Evaluated(2.0)) == [Report(0, (0, 0, 0), losses), EvaluatePlace(2, 0, 0.5)]
    assert pipeline.step == 2


def test_parameters_older_than_those_waiting_their_turn_are_ignored() -> None:
    pipeline = rotating("skip", delay=1.0)
    warm(pipeline)
    pipeline.handle(Published(2, 1.0))
    assert pipeline.handle(Published(1, 0.5)) == []
    assert pipeline.handle(DelayOver(0))[1:] == [EvaluatePlace(2, 1, 1.0)]


def test_skip_sleeps_its_delay_to_the_end_before_it_reports() -> None:
    pipeline = rotating(delay=0.5)
    warm(pipeline)
    assert pipeline.handle(Published(1, 1.0)) == []
    said = pipeline.handle(DelayOver(0))
    assert [type(command) for command in said] == [Report, EvaluatePlace]


def test_skip_retains_what_it_finished_for_a_closed_step() -> None:
    pipeline = rotating()
    warm(pipeline)
    pipeline.handle(Published(1, 1.0))
    pipeline.handle(Published(4, 1.0))
    assert pipeline.handle(Evaluated(0.0)) == [Report(1, (0, 1, 1), ((5, 0.0),)), EvaluatePlace(4, 0, 1.0)]
    assert pipeline.handle(Evaluated(0.0)) == [Answer(4, (0, 4, 4), ((5, 0.0),))]


# ---------------------------------------------------------------- behind: abandon


def test_abandon_retains_the_partition_in_hand_and_drops_the_rest_of_the_step() -> None:
    pipeline = evaluating_all("abandon")
    pipeline.handle(Published(0, 1.0))
    assert pipeline.handle(Published(1, 1.0)) == []
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(1, 0, 1.0)]
    pipeline.handle(Evaluated(0.0))
    pipeline.handle(Evaluated(0.0))
    assert pipeline.handle(Evaluated(0.0)) == [Answer(1, (0, 0, 0), ((5, 0.0), (6, 0.0), (7, 0.0)))]


def test_abandon_inside_a_delay_begins_the_new_step_at_once_and_the_old_delay_means_nothing() -> None:
    pipeline = rotating("abandon", delay=5.0)
    warm(pipeline)
    assert pipeline.handle(Published(1, 1.0)) == [EvaluatePlace(1, 0, 1.0)]
    assert pipeline.handle(DelayOver(0)) == []
    assert pipeline.handle(Evaluated(0.0)) == [Delay(1, 5.0)]
    assert pipeline.handle(DelayOver(0)) == []
    assert pipeline.handle(DelayOver(1)) == [Answer(1, (0, 1, 1), ((5, 0.0),))]


def test_abandon_keeps_the_gradients_of_an_interrupted_warm_up() -> None:
    pipeline = rotating("abandon")
    pipeline.handle(Published(0, 1.0))
    pipeline.handle(Published(1, 1.0))
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(1, 1, 1.0)]
    pipeline.handle(Published(2, 1.0))
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(2, 2, 1.0)]
    assert pipeline.handle(Evaluated(4.0)) == [Answer(2, (2, 1, 0), ((7, 4.0),))]


def test_abandon_finishing_its_last_partition_behind_time_says_nothing_about_it_but_retains_it() -> None:
    pipeline = rotating("abandon")
    warm(pipeline)
    pipeline.handle(Published(1, 1.0))
    pipeline.handle(Published(2, 1.0))
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(2, 1, 1.0)]
    assert pipeline.handle(Evaluated(0.0)) == [Answer(2, (1, 0, 2), ((6, 0.0),))]


# ---------------------------------------------------------------- what the master's heartbeat says


def test_a_step_known_to_be_closed_is_reported_not_answered() -> None:
    pipeline = rotating()
    pipeline.handle(Published(0, 1.0))
    pipeline.handle(Evaluated(0.0))
    assert pipeline.handle(Opened(1)) == []
    pipeline.handle(Evaluated(0.0))
    (said,) = pipeline.handle(Evaluated(0.0))
    assert said == Report(0, (0, 0, 0), ((5, 0.0), (6, 0.0), (7, 0.0)))
    assert (pipeline.idle, pipeline.is_behind) == (True, True)


def test_parameters_are_not_begun_when_a_later_step_is_known_to_be_open() -> None:
    pipeline = rotating()
    pipeline.handle(Opened(5))
    assert pipeline.handle(Published(4, 1.0)) == []
    assert (pipeline.idle, pipeline.is_behind, pipeline.step) == (True, True, -1)
    assert pipeline.handle(Published(5, 1.0)) == [EvaluatePlace(5, 0, 1.0)]
    assert not pipeline.is_behind


def test_stale_parameters_waiting_their_turn_are_dropped_and_the_worker_knows_it_is_behind() -> None:
    pipeline = rotating()
    pipeline.handle(Published(0, 1.0))
    pipeline.handle(Published(1, 1.0))
    pipeline.handle(Opened(2))
    for _ in range(2):
        pipeline.handle(Evaluated(0.0))
    said = pipeline.handle(Evaluated(0.0))
    assert [type(command) for command in said] == [Report]
    assert (pipeline.idle, pipeline.is_behind) == (True, True)
    assert pipeline.handle(Published(2, 1.0)) == [EvaluatePlace(2, 1, 1.0)]


def test_a_worker_that_has_begun_or_answered_the_open_step_is_not_behind() -> None:
    pipeline = rotating()
    warm(pipeline)
    pipeline.handle(Opened(0))
    assert not pipeline.is_behind
    pipeline.handle(Opened(1))
    assert pipeline.is_behind
    pipeline.handle(Published(1, 1.0))
    assert not pipeline.is_behind


def test_an_older_open_step_does_not_turn_the_clock_back() -> None:
    pipeline = rotating()
    pipeline.handle(Opened(3))
    pipeline.handle(Opened(1))
    assert pipeline.handle(Published(2, 1.0)) == []


def test_a_second_life_warms_up_at_the_step_it_returns_to_and_rotates_from_there() -> None:
    pipeline = rotating()
    assert warm(pipeline, 17) == [Answer(17, (0, 0, 0), ((5, 0.0), (6, 1.0), (7, 2.0)))]
    assert pipeline.handle(Published(18, 1.0)) == [EvaluatePlace(18, 17 % 3, 1.0)]


# ---------------------------------------------------------------- parameters that were taken back


def test_an_evaluation_that_was_lost_is_not_answered_and_its_place_is_evaluated_first_again() -> None:
    pipeline = rotating()
    warm(pipeline)
    assert pipeline.handle(Published(1, 1.0)) == [EvaluatePlace(1, 0, 1.0)]
    assert pipeline.handle(Lost()) == []
    assert pipeline.idle
    assert pipeline.handle(Published(2, 1.0)) == [EvaluatePlace(2, 0, 1.0)]
    assert pipeline.handle(Evaluated(3.0)) == [Answer(2, (0, 2, 2), ((5, 3.0),))]
    assert pipeline.handle(Published(3, 1.0)) == [EvaluatePlace(3, 2, 1.0)], "the rotation goes on where it would be"


def test_after_a_loss_the_next_step_is_taken_at_once_if_it_is_there() -> None:
    pipeline = rotating()
    warm(pipeline)
    pipeline.handle(Published(1, 1.0))
    pipeline.handle(Published(7, 0.5))
    assert pipeline.handle(Lost()) == [EvaluatePlace(7, 0, 0.5)]
    assert pipeline.step == 7


def test_a_worker_that_lost_its_step_knows_that_it_is_behind_and_pulls() -> None:
    pipeline = rotating()
    warm(pipeline)
    pipeline.handle(Published(1, 1.0))
    pipeline.handle(Lost())
    assert not pipeline.is_behind, "as far as it knows no later step is open"
    pipeline.handle(Opened(9))
    assert pipeline.is_behind
    assert pipeline.handle(Published(9, 1.0)) == [EvaluatePlace(9, 0, 1.0)]


def test_a_loss_in_the_middle_of_a_step_keeps_what_was_evaluated_before_it() -> None:
    """The first place was evaluated while the parameters held; the second was not, the third not begun."""
    pipeline = rotating()
    pipeline.handle(Published(0, 1.0))
    assert pipeline.handle(Evaluated(0.0)) == [EvaluatePlace(0, 1, 1.0)]
    assert pipeline.handle(Lost()) == []
    assert pipeline.handle(Published(4, 1.0)) == [EvaluatePlace(4, 1, 1.0)]
    assert pipeline.handle(Evaluated(1.0)) == [EvaluatePlace(4, 2, 1.0)]
    assert pipeline.handle(Evaluated(2.0)) == [Answer(4, (4, 0, 0), ((6, 1.0), (7, 2.0)))]


@pytest.mark.parametrize("on_new_step", ["skip", "abandon"])
def test_a_scheme_that_is_not_pipelined_begins_the_next_step_from_its_first_place(on_new_step: str) -> None:
    pipeline = evaluating_all(on_new_step)
    pipeline.handle(Published(0, 1.0))
    pipeline.handle(Evaluated(0.0))
    assert pipeline.handle(Lost()) == []
    assert warm(pipeline, 1) == [Answer(1, (0, 0, 0), ((5, 0.0), (6, 1.0), (7, 2.0)))]


def test_a_loss_that_nothing_was_evaluated_for_is_a_drivers_error() -> None:
    with pytest.raises(AssertionError, match="not asked for"):
        rotating().handle(Lost())


# ---------------------------------------------------------------- any order of events

STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "open", "evaluated", "lost", "over"]), st.integers(0, 2)), max_size=80
)


@repeatable
@given(events=STEPS, on_new_step=st.sampled_from(["skip", "abandon"]), seconds=st.sampled_from([0.0, 1.0]))
def test_in_any_order_of_events_steps_only_grow_and_every_message_is_complete(
    events: list[tuple[str, int]], on_new_step: str, seconds: float
) -> None:
    pipeline = rotating(on_new_step, seconds)
    newest, known, busy, sent, begun = -1, -1, None, -1, []
    for kind, more in events:
        said: list[WorkerCommand] = []
        if kind == "publish":
            newest += more
            known = max(known, newest)
            said = pipeline.handle(Published(newest, 1.0)) if newest >= 0 else []
        elif kind == "open":
            known = max(known, newest + more)
            said = pipeline.handle(Opened(known))
        elif kind == "evaluated" and isinstance(busy, EvaluatePlace):
            busy, said = None, pipeline.handle(Evaluated(0.0))
        elif kind == "lost" and isinstance(busy, EvaluatePlace):
            busy, said = None, pipeline.handle(Lost())
        elif kind == "over" and isinstance(busy, Delay):
            over, busy = busy, None
            said = pipeline.handle(DelayOver(over.step))
        for command in said:
            if isinstance(command, Answer | Report):
                assert command.step > sent
                assert isinstance(command, Report) == (command.step < known)
                assert len(command.ages) == 3
                assert min(command.ages) == 0
                assert command.losses
                sent = command.step
            else:
                assert not isinstance(busy, EvaluatePlace)
                busy = command
                begun.append(command.step)
        if pipeline.idle:
            assert not isinstance(busy, EvaluatePlace)
        assert pipeline.is_behind == (pipeline.idle and pipeline.step < known)
    assert begun == sorted(begun)
