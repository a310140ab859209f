"""A deadline in virtual time: a slow worker no longer holds everybody up."""

from sim_runs import Simulated, scheme_of, simulate

from pgczmq.core.pace import ANSWERS_AT_LEAST
from pgczmq.sim.virtual import Durations


def slow_worker(worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
    return 10.0 if worker == 3 and step >= ANSWERS_AT_LEAST else 1.0 + 0.01 * worker


def run(**settings: object) -> Simulated:
    scheme = scheme_of("dgd", 4, stragglers=0, **settings)
    return simulate(scheme, steps=60, durations=Durations(delay=slow_worker))


def test_steps_close_at_their_deadline_and_not_at_the_slowest() -> None:
    waits, cuts = run(), run(shortfall="partial", deadline=3.0)
    known = -(-ANSWERS_AT_LEAST // 4)
    late = [step for step in cuts.steps if step.missing]
    assert [step.missing for step in late] == [(3,)] * len(late)
    assert late[0].step == ANSWERS_AT_LEAST and len(late) == 60 - ANSWERS_AT_LEAST
    assert all(len(step.used) == 4 for step in waits.steps)
    assert known <= ANSWERS_AT_LEAST  # from then on there is a deadline
    assert cuts.ending.seconds < waits.ending.seconds / 3
    assert len(cuts.events("partial")) == len(late)
