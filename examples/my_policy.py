"""A policy of one's own: how many answers close a step? Few at first, when any direction will do, and more later.

    cd examples && pgc sim --config my_policy.toml
    cd examples && pgc local --config my_policy.toml

It runs on the master alone. Any scheme that takes any number of arrivals can have one: is-sgd, is-gc-*, pgc-cr.
"""

from dataclasses import dataclass

from pgczmq.core.policies import Finished, Needs, Plan, PolicyState


@dataclass(frozen=True)
class Ramp:
    """One arrival more after every so many steps, until everybody is waited for.

    A policy is two pure functions: the state at step 0, and the state after each step that has finished. All that it
    may remember is in the state, which goes into checkpoints.

    Args:
        start: arrivals that close the first steps.
        every: steps until it is one more.
        workers: of the run; given because it is asked for here, as ``seed``, ``steps`` and ``load`` would be.
    """

    start: int = 1
    every: int = 30
    workers: int = 1

    needs = Needs()  # no statistics of the gradients, such as those that adaptive-k reads

    def first(self) -> PolicyState:
        """At step 0."""
        return PolicyState(Plan(self.start))

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """At the step after one that has finished."""
        step = finished.step + 1
        if step < state.changed_at + self.every or state.plan.k == self.workers:
            return state
        return PolicyState(Plan(state.plan.k + 1), rung=state.rung + 1, changed_at=step)
