"""From the ``[policy]`` section to a policy, and to the plans and constants that theory speaks of."""

import math
from collections.abc import Mapping, Sequence

from pgczmq.app import own
from pgczmq.config import PolicyConfig, RunConfig
from pgczmq.core.order_statistics import BothVary, ComputationVaries, ResponseTimes
from pgczmq.core.policies import (
    DistanceTest,
    Plan,
    Policy,
    SignTest,
    StationarityTest,
    StationaryPolicy,
    TimedPolicy,
)
from pgczmq.core.schedule import EvaluateOne
from pgczmq.core.schemes import Scheme
from pgczmq.core.theory import Bound, ladder_k, ladder_k_batch, stages
from pgczmq.errors import ConfigError
from pgczmq.extensions import Kind

_OF_TEST = {
    "pflug": frozenset({"test", "threshold", "burn_in", "lag"}),
    "distance": frozenset({"test", "threshold", "skip", "min_steps", "distance"}),
}
POLICIES: Mapping[str, frozenset[str]] = {
    "fixed": frozenset(),
    "adaptive-k": frozenset({"start", "most", "increment", "test"}),
    "bound-optimal-k": frozenset({"start", "most", "increment"}),
    "adaptive-k-batch": frozenset({"most", "fractions", "test"}),
}
"""The built-in policies, and the settings that each reads, those of a test apart."""
POLICY = Kind("policy", "pgczmq.policies", POLICIES)


def with_policy(scheme: Scheme, config: RunConfig) -> Scheme:
    """The scheme with the policy that the run asks for.

    Raises:
        ConfigError: the scheme takes none but fixed, or the settings contradict each other.
    """
    name = config.policy.name
    if name == "fixed":
        return scheme
    if config.scheme.k is not None:
        raise ConfigError(
            f'the policy sets k: got scheme.k={config.scheme.k} with policy.name="{name}". '
            "Leave scheme.k out; policy.start and policy.most are the first k and the last."
        )
    return scheme.following(_policy(scheme, config))


def _policy(scheme: Scheme, config: RunConfig) -> Policy:
    match config.policy.name:
        case "bound-optimal-k":
            ladder = k_ladder(config)
            made = stages(bound_of(config), response_of(config.policy), config.workers, ladder)
            return TimedPolicy(tuple(ladder), tuple(stage.ends for stage in made[:-1]))
        case "adaptive-k":
            return StationaryPolicy(tuple(k_ladder(config)), _test(scheme, config.policy))
        case "adaptive-k-batch":
            ladder = _without_detours(k_batch_ladder(config), response_of(config.policy), config.workers)
            return StationaryPolicy(tuple(ladder), _test(scheme, config.policy))
        case name:
            return own.policy(POLICY, name, config.policy.args, load=scheme.load, config=config)


def read_by(policy: PolicyConfig) -> frozenset[str]:
    """The settings of its section that the run's policy reads, parts with a section of their own apart."""
    read = POLICIES.get(policy.name, frozenset({"args"}))
    return read | _OF_TEST[policy.test] if "test" in read else read


def _test(scheme: Scheme, policy: PolicyConfig) -> StationarityTest:
    """Which test; its lag is the load where consecutive estimates share gradients, else 1: schemes.md section 5."""
    if policy.test == "distance":
        squared = policy.distance == "squared"
        return DistanceTest(_or(policy.threshold, 0.6), policy.skip, policy.min_steps, squared)
    lag = scheme.load if isinstance(scheme.schedule, EvaluateOne) else 1
    return SignTest(_or(policy.threshold, 10.0), policy.burn_in, policy.lag or lag)


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def _without_detours(ladder: Sequence[Plan], times: ResponseTimes, workers: int) -> list[Plan]:
    """Without plans whose successor takes no longer a step: those are left the moment they are reached."""
    seconds = [times.order_statistic(workers, plan.k, plan.batch_fraction) for plan in ladder]
    following = [*seconds[1:], math.inf]
    return [plan for plan, mine, after in zip(ladder, seconds, following, strict=True) if after > mine]


def response_of(policy: PolicyConfig) -> ResponseTimes:
    """What the configuration believes of the response times: model 2 where both parts vary, else model 1."""
    asked = policy.response
    if asked.communication_rate is None:
        return ComputationVaries(asked.communication, asked.computation, asked.computation_rate)
    return BothVary(asked.communication, asked.computation, asked.communication_rate, asked.computation_rate)


def bound_of(config: RunConfig) -> Bound:
    """The error bound with the run's learning rate and minibatch."""
    return Bound(lr=config.optimizer.lr, samples=config.task.batch_size, **config.policy.bound.model_dump())


def k_ladder(config: RunConfig) -> list[Plan]:
    """The k that bound-optimal-k and adaptive-k go through."""
    return ladder_k(config.policy.start, _most(config), config.policy.increment)


def k_batch_ladder(config: RunConfig) -> list[Plan]:
    """The (k, b) that adaptive-k-batch goes through."""
    times, fractions = response_of(config.policy), fractions_of(config)
    return ladder_k_batch(times, config.workers, most=_most(config), fractions=fractions)


def fractions_of(config: RunConfig) -> Sequence[float]:
    """The batch fractions that adaptive-k-batch may choose from, ascending; 1 is always one of them."""
    samples = config.task.batch_size
    given = config.policy.fractions or [count / samples for count in range(1, samples + 1)]
    return sorted({*given, 1.0})


def _most(config: RunConfig) -> int:
    policy, workers = config.policy, config.workers
    most = workers if policy.most is None else policy.most
    if not policy.start <= most <= workers:
        raise ConfigError(
            f"policy.start cannot exceed policy.most, nor that workers: got policy.start={policy.start}, "
            f"policy.most={most}, workers={workers}."
        )
    return most
