"""The course of a run from one update to the next: how far it is, and what the policy makes of that.

Part of the engine's state, and the part that a checkpoint keeps.
"""

import math
from dataclasses import replace

from pgczmq.core.events import Applied, ClosedStep
from pgczmq.core.open_step import Closing
from pgczmq.core.policies import Finished, Needs, Plan, Policy, PolicyState
from pgczmq.core.progress import Progress
from pgczmq.errors import ConfigError


class Course:
    """Of one run.

    Args:
        policy: decides how many arrivals close a step, and how much of a batch is evaluated.
        progress: where the run goes on.
        deterministic: time is what is planned, to the bit.

    Attributes:
        progress: as of the last applied update.
    """

    def __init__(self, policy: Policy, progress: Progress, *, deterministic: bool) -> None:
        self.progress = progress
        self._policy = policy
        self._deterministic = deterministic
        self._began_at = 0.0  # step 0 was published; when a run goes on: would have been
        self._loss = math.nan  # of the closed step; counts once it is applied
        self._finished = Finished(-1, 0, 0.0)  # seen by the policy then

    @property
    def step(self) -> int:
        """The next one to be published, or the one that is open."""
        return self.progress.steps

    @property
    def plan(self) -> Plan:
        """Of that step."""
        return self.progress.policy.plan

    def begin(self, at: float) -> None:
        """The first step of this master is published now."""
        self._began_at = at - self.progress.lasted

    def close(self, closed: ClosedStep, closing: Closing) -> None:
        """The step has closed; its update comes next."""
        self._loss = closed.loss
        self._finished = Finished(closed.step, len(closed.arrived), self._seconds_at(closing))

    def apply(self, event: Applied) -> None:
        """Its update is in the parameters.

        Raises:
            ConfigError: the policy decides by what a run without gradients does not have.
        """
        self.progress = replace(
            self.progress,
            steps=event.step + 1,
            policy=self._followed_policy(event),
            losses=self.progress.losses.after(self._loss),
            planned=self._finished.seconds if self._deterministic else 0.0,
            lasted=event.at - self._began_at,
        )

    def _followed_policy(self, event: Applied) -> PolicyState:
        if event.statistics is None and self._policy.needs != Needs():
            raise ConfigError(
                "the policy decides by statistics of the gradients: got a run without gradients. "
                'Use policy.name="fixed" or "bound-optimal-k", or run it with gradients.'
            )
        finished = self._finished if event.statistics is None else replace(self._finished, statistics=event.statistics)
        return self._policy.next(self.progress.policy, finished)

    def _seconds_at(self, closing: Closing) -> float:
        """From the run's beginning to a step's closing; in deterministic mode planned seconds alone, to the bit."""
        if self._deterministic:
            return self.progress.planned + closing.seconds
        return closing.at - self._began_at
