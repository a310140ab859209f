"""Delay models and policies of a user's own: built, tried once, and their answers checked for as long as they are used.

Both are asked by several processes, and again when a run is resumed or replayed. So they must be functions of what they
are asked alone: that is tried when they are built.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from pgczmq.config import RunConfig
from pgczmq.core.delays import DelayModel
from pgczmq.core.policies import Finished, Needs, Plan, Policy, PolicyState, Statistics
from pgczmq.errors import ConfigError
from pgczmq.extensions import Kind, call, find, reason

TRIED = 4
"""Workers, and steps, for which a delay is asked when it is built."""


def delay_model(
    kind: Kind, name: str, args: Mapping[str, Any], *, section: str, stream: str, config: RunConfig
) -> DelayModel:
    """The delay model that a function of the user's own returns.

    Args:
        section: of the configuration that asks for it, such as "delay".
        stream: names its random numbers.

    Raises:
        ConfigError: it cannot be found or called, returns something else, or answers the same question twice otherwise.
    """
    function = find(kind, name, f"{section}.model")
    context = {"seed": config.seed, "workers": config.workers, "stream": stream}
    models = []
    for _ in range(2):
        model = call(function, args, name=f"delay model {name}", setting=f"{section}.args", **context)
        if not callable(getattr(model, "seconds", None)):
            raise ConfigError(
                f"a delay model has a method seconds(worker, step, evaluated, batch_fraction): {name} gave "
                f"{type(model).__name__}, which has none."
            )
        models.append(CheckedDelay(model, name))
    _same_seconds(*models, workers=config.workers)
    return models[0]


def _same_seconds(one: DelayModel, other: DelayModel, *, workers: int) -> None:
    """Ask one model forwards and another backwards: as workers do, each in its own process and for itself alone."""
    asked = list(itertools.product(range(min(workers, TRIED)), range(TRIED)))
    backwards = {(worker, step): other.seconds(worker, step, 1, 1.0) for worker, step in reversed(asked)}
    for worker, step in asked:
        first, second = one.seconds(worker, step, 1, 1.0), backwards[worker, step]
        if first != second:
            raise ConfigError(
                "a delay is the same number whoever asks for it, and whatever was asked before: got "
                f"{first:g} and {second:g} seconds for worker {worker} at step {step}. Keep nothing between two "
                "questions, and draw with pgczmq.core.draws.exponential(seed, stream, worker, step) or uniform."
            )


@dataclass(frozen=True)
class CheckedDelay:
    """Another model, whose answers must be seconds. Scales as the other model does.

    Args:
        model: the user's.
        name: as the user wrote it.
    """

    model: DelayModel
    name: str

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """The model's delay.

        Raises:
            ConfigError: it fails, or its answer is no time.
        """
        try:
            seconds = self.model.seconds(worker, step, evaluated, batch_fraction)
        except Exception as error:  # the user's code
            raise ConfigError(
                f"delay model {self.name} failed for worker {worker} at step {step}: {reason(error)}."
            ) from error
        if not (isinstance(seconds, Real) and 0 <= seconds < math.inf):
            raise ConfigError(
                f"a delay is a number of seconds, at least 0: {self.name} gave {seconds!r} for worker {worker} "
                f"at step {step}."
            )
        return float(seconds)


# ---------------------------------------------------------------- policies


def policy(kind: Kind, name: str, args: Mapping[str, Any], *, load: int, config: RunConfig) -> Policy:
    """The policy that a function of the user's own returns.

    Args:
        load: of the scheme.

    Raises:
        ConfigError: it cannot be found or called, returns something else, or decides the same thing twice otherwise.
    """
    function = find(kind, name, "policy.name")
    context = {"seed": config.seed, "workers": config.workers, "steps": config.steps, "load": load}
    policies = []
    for _ in range(2):
        made = call(function, args, name=f"policy {name}", setting="policy.args", **context)
        if not (callable(getattr(made, "first", None)) and callable(getattr(made, "next", None))):
            raise ConfigError(
                "a policy has needs, first() and next(state, finished), see pgczmq.core.policies.Policy: "
                f"{name} gave {type(made).__name__}."
            )
        policies.append(CheckedPolicy(made, name, config.workers))
    _same_states(*policies)
    return policies[0]


def _same_states(one: "CheckedPolicy", other: "CheckedPolicy") -> None:
    """Let both decide the same twice."""
    needs = one.needs
    inner, distance = (0.5 if needs.lag else None), (1.0 if needs.distance else None)
    state = one.first()
    finished = Finished(0, state.plan.k, 1.0, None if needs == Needs() else Statistics(1.0, inner, distance))
    after = one.next(state, finished)
    if other.first() != state or any(policy.next(state, finished) != after for policy in (one, other)):
        raise ConfigError(
            f"a policy decides the same of the same state, however often it is asked: {one.name} does not. What it has "
            "to remember belongs into the PolicyState that it returns."
        )


@dataclass(frozen=True)
class CheckedPolicy:
    """Another policy, whose plans must be such that a step can close.

    Args:
        policy: the user's.
        name: as the user wrote it.
        workers: of the run.
    """

    policy: Policy
    name: str
    workers: int

    @property
    def needs(self) -> Needs:
        """The policy's.

        Raises:
            ConfigError: it has none.
        """
        needs = getattr(self.policy, "needs", None)
        if not isinstance(needs, Needs):
            raise ConfigError(
                f"a policy says what statistics it reads: {self.name} has needs = {needs!r}. Give it needs = Needs(), "
                "of pgczmq.core.policies, if it reads none."
            )
        return needs

    def first(self) -> PolicyState:
        """The policy's first state.

        Raises:
            ConfigError: it fails, or no step can close so.
        """
        try:
            state = self.policy.first()
        except Exception as error:  # the user's code
            raise ConfigError(f"policy {self.name} failed in first(): {reason(error)}.") from error
        return self._checked(state)

    def next(self, state: PolicyState, finished: Finished) -> PolicyState:
        """The policy's next state.

        Raises:
            ConfigError: it fails, or no step can close so.
        """
        try:
            after = self.policy.next(state, finished)
        except Exception as error:  # the user's code
            raise ConfigError(f"policy {self.name} failed after step {finished.step}: {reason(error)}.") from error
        return self._checked(after)

    def _checked(self, state: PolicyState) -> PolicyState:
        plan = state.plan if isinstance(state, PolicyState) else None
        if not isinstance(plan, Plan):
            raise ConfigError(f"a policy returns PolicyState(Plan(k)): {self.name} gave {state!r}.")
        if not (isinstance(plan.k, int) and 1 <= plan.k <= self.workers and 0 < plan.batch_fraction <= 1):
            raise ConfigError(
                f"a step closes at 1 to {self.workers} arrivals, of more than nothing and at most a whole minibatch: "
                f"{self.name} gave k={plan.k!r}, batch_fraction={plan.batch_fraction!r}."
            )
        return state
