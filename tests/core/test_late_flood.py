"""A worker that sends the answers to thousands of closed steps at once costs bounded memory, and loses nothing."""

from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Applied, Apply, Arrived, Joined, Publish, Ready, Spoiled, Use
from pgczmq.core.progress import Progress
from pgczmq.core.received import LATE_TOLD_AT_MOST
from pgczmq.core.schemes import Settings, build

STEP = 3 * LATE_TOLD_AT_MOST


def engine_at_step():
    """Four workers of which three are enough, and STEP open."""
    scheme = build(Settings(name="is-sgd", workers=4))
    progress = Progress(STEP, scheme.policy.first())
    engine = Engine(scheme, Rules(steps=10 * STEP), lambda *planned: 0.0, 0.0, progress)
    for worker in range(4):
        engine.handle(Joined(worker, "a", 0.0))
        said = engine.handle(Ready(worker, "a", 0.0))
    assert any(isinstance(command, Publish) and command.step == STEP for command in said)
    return engine


def arrive(engine, worker, step, norm=1.0):
    return engine.handle(Arrived(worker, "a", step, (0,), ((worker, 1.0),), norm, 1.0))


def flood(engine, worker):
    for step in range(STEP):
        arrive(engine, worker, step)


def test_so_many_late_answers_are_told_and_all_are_counted():
    engine = engine_at_step()
    flood(engine, 3)
    for worker in range(3):
        said = arrive(engine, worker, STEP)
    assert isinstance(said[-1], Apply)
    published = engine.handle(Applied(STEP, 2.0))[0]
    assert isinstance(published, Publish)
    assert published.outcome.late == tuple((3, step) for step in range(LATE_TOLD_AT_MOST))
    assert engine.late == STEP


def test_the_answers_of_a_step_that_opens_again_may_be_sent_again_whatever_else_was_late():
    engine = engine_at_step()
    flood(engine, 3)
    for worker in range(3):
        arrive(engine, worker, STEP)
    arrive(engine, 3, STEP)  # while the update is made
    assert engine.late == STEP + 1
    engine.handle(Spoiled(STEP, (0,), 2.0))
    assert engine.late == STEP, "it may come in time after all"
    said = arrive(engine, 3, STEP)
    assert [type(command) for command in said] == [Use, Apply]
