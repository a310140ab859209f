"""What a worker expects to evaluate next, so that its minibatch can be loaded: compared with what it then is told."""

from collections.abc import Iterable

import pytest
from core_oracles import repeatable
from hypothesis import given
from hypothesis import strategies as st

from pgczmq.core.pipeline import (
    Delay,
    DelayOver,
    Evaluated,
    EvaluatePlace,
    Lost,
    Opened,
    Pipeline,
    Published,
    WorkerCommand,
)
from pgczmq.core.schedule import EvaluateAll, EvaluateOne
from pgczmq.core.schemes import SCHEMES, Scheme, Settings, build

WORKERS = 6


def scheme_of(name: str, on_new_step: str = "skip") -> Scheme:
    return build(Settings(name=name, workers=WORKERS, stragglers=2, load=3, on_new_step=on_new_step))


def pipeline_of(scheme: Scheme, worker: int, seconds: float = 0.0) -> Pipeline:
    return Pipeline(
        worker,
        scheme.placement.held[worker],
        schedule=scheme.schedule,
        on_new_step=scheme.on_new_step,
        delay=lambda *_: seconds,
    )


def evaluation(commands: Iterable[WorkerCommand]) -> EvaluatePlace | None:
    """The evaluation that is begun now, if one is."""
    return next((command for command in commands if isinstance(command, EvaluatePlace)), None)


def end(pipeline: Pipeline, *, spoil: bool = False) -> EvaluatePlace | None:
    """The evaluation in hand ends, and any delay after it; what is begun then."""
    commands = pipeline.handle(Lost() if spoil else Evaluated(0.0))
    for command in commands:
        if isinstance(command, Delay):
            commands += pipeline.handle(DelayOver(command.step))
    return evaluation(commands)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("name", SCHEMES)
def test_on_time_every_evaluation_is_foreseen(name: str, seconds: float) -> None:
    scheme = scheme_of(name)
    for worker in range(WORKERS):
        pipeline, foreseen = pipeline_of(scheme, worker, seconds), None
        for step in range(10):
            begun = evaluation(pipeline.handle(Published(step, 1.0)))
            assert foreseen in (None, begun)
            while begun is not None:
                foreseen = pipeline.upcoming()
                begun = end(pipeline)
                assert foreseen is not None
                assert begun in (None, foreseen)
            assert pipeline.upcoming() is None


HISTORY = st.lists(
    st.tuples(st.sampled_from(["publish", "open", "end", "end", "lose"]), st.integers(1, 3)), max_size=60
)


@repeatable
@given(
    history=HISTORY,
    name=st.sampled_from(list(SCHEMES)),
    worker=st.integers(0, WORKERS - 1),
    on_new_step=st.sampled_from(["skip", "abandon"]),
)
def test_after_any_history_what_is_foreseen_comes_if_the_next_step_does(
    history: list[tuple[str, int]], name: str, worker: int, on_new_step: str
) -> None:
    """Whatever was published, skipped, dropped and lost before: then the foreseen step comes in time, and no other."""
    pipeline = pipeline_of(scheme_of(name, on_new_step), worker)
    newest, opened = -1, -1
    pipeline.handle(Published(newest := newest + 1, 1.0))
    for what, more in history:
        if what == "publish":
            newest = opened = max(newest, opened) + more
            pipeline.handle(Published(newest, 1.0))
        elif what == "open":
            opened = max(newest, opened) + more
            pipeline.handle(Opened(opened))
        elif pipeline.upcoming() is not None:
            end(pipeline, spoil=what == "lose")
    foreseen = pipeline.upcoming()
    assert (foreseen is None) == pipeline.idle
    if foreseen is not None:
        if foreseen.step > newest and foreseen.step != pipeline.step:
            pipeline.handle(Published(foreseen.step, 1.0))
        assert end(pipeline) == foreseen


def test_a_worker_that_is_behind_expects_the_open_step() -> None:
    pipeline = pipeline_of(scheme_of("pgc-cr"), 1)
    pipeline.handle(Published(0, 1.0))
    end(pipeline)
    end(pipeline)
    pipeline.handle(Published(4, 1.0))
    assert pipeline.upcoming() == end(pipeline) == EvaluatePlace(4, 0, 1.0)


def test_a_step_that_will_be_given_up_is_not_expected_to_go_on() -> None:
    pipeline = pipeline_of(scheme_of("is-gc-cr", "abandon"), 1)
    pipeline.handle(Published(0, 1.0))
    assert pipeline.upcoming() == EvaluatePlace(0, 1, 1.0)
    pipeline.handle(Published(1, 1.0))
    assert pipeline.upcoming() == end(pipeline) == EvaluatePlace(1, 0, 1.0)


def test_nothing_is_foreseen_while_nothing_is_evaluated() -> None:
    pipeline = Pipeline(1, (5,), schedule=EvaluateAll(), on_new_step="skip", delay=lambda *_: 1.0)
    assert pipeline.upcoming() is None
    pipeline.handle(Published(0, 1.0))
    assert pipeline.upcoming() == EvaluatePlace(1, 0, 1.0)
    assert isinstance(pipeline.handle(Evaluated(0.0))[0], Delay)
    assert pipeline.upcoming() is None
    pipeline.handle(DelayOver(0))
    assert pipeline.upcoming() is None


def test_an_age_that_must_not_grow_is_foreseen_too() -> None:
    """The rotation alone would say another place."""
    pipeline = Pipeline(1, (5, 6, 7), schedule=EvaluateOne(max_age=2), on_new_step="skip", delay=lambda *_: 0.0)
    pipeline.handle(Published(0, 1.0))
    for _ in range(3):
        end(pipeline)
    for step in (1, 3):
        begun = evaluation(pipeline.handle(Published(step, 1.0)))
        foreseen = pipeline.upcoming()
        end(pipeline)
    assert begun == EvaluatePlace(3, 2, 1.0)
    assert foreseen == evaluation(pipeline.handle(Published(4, 1.0))) == EvaluatePlace(4, 1, 1.0)
