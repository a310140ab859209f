"""From the ``[[faults]]`` sections to a plan, and where such a plan can be carried out."""

from pgczmq.config import FaultConfig, RunConfig
from pgczmq.core.faults import HARMLESS, FaultPlan, FaultRule
from pgczmq.errors import ConfigError


def faults_of(config: RunConfig) -> FaultPlan:
    """What is to go wrong in the run.

    Raises:
        ConfigError: a fault contradicts itself, or is for a worker that the run does not have, or a deterministic run
            would lose an answer by it.
    """
    strangers = [worker for fault in config.faults for worker in fault.workers or () if worker not in _numbers(config)]
    if strangers:
        raise ConfigError(
            f"faults.workers names workers of this run, 0 to {config.workers - 1}: got "
            f"{', '.join(map(str, strangers))}."
        )
    harmful = sorted({fault.kind for fault in config.faults} - HARMLESS)
    if config.deterministic and harmful:
        raise ConfigError(
            "a deterministic run needs every answer of every worker: got deterministic=true with faults of kind "
            f"{', '.join(harmful)}. Leave them out; those that it gets over are {', '.join(sorted(HARMLESS))}."
        )
    return FaultPlan(config.seed, tuple(map(_rule, config.faults)))


def check_simulated(config: RunConfig) -> None:
    """Whether a simulation is asked for faults.

    Raises:
        ConfigError: it is.
    """
    if config.faults:
        raise ConfigError(
            "a simulation has no processes and no messages that faults could befall: got [[faults]]. Leave them out "
            "(--set faults=[]), or say in [[delay.failures]] who is gone when; pgc local and pgc-worker make faults."
        )


def _numbers(config: RunConfig) -> range:
    return range(config.workers)


def _rule(fault: FaultConfig) -> FaultRule:
    def chosen(numbers: tuple[int, ...] | None) -> frozenset[int] | None:
        return None if numbers is None else frozenset(numbers)

    given = fault.model_dump(exclude={"workers", "steps"})
    return FaultRule(workers=chosen(fault.workers), steps=chosen(fault.steps), **given)
