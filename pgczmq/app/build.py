"""From a configuration to the parts of a run."""

from pgczmq.config import DelayConfig, RunConfig, load_function
from pgczmq.core import schemes
from pgczmq.core.delays import ConstantDelay, DelayModel, ExponentialDelay, NoDelay, SomeWorkers
from pgczmq.core.engine import Rules
from pgczmq.core.schemes import Scheme, Settings
from pgczmq.errors import ConfigError


def scheme_of(config: RunConfig) -> Scheme:
    """The scheme that the run uses, built in or the user's own.

    Raises:
        ConfigError: it does not exist or cannot be with these settings.
    """
    asked = config.scheme.model_dump()
    settings = Settings(workers=config.workers, seed=config.seed, **asked)
    if ":" not in settings.name:
        return schemes.build(settings)
    scheme = load_function(settings.name, "scheme.name")(settings)
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"{settings.name} must return a pgczmq.core.schemes.Scheme: got {type(scheme).__name__}.")
    return schemes.finish(scheme, settings)


def rules_of(config: RunConfig) -> Rules:
    """What the engine obeys."""
    return Rules(
        steps=config.steps,
        seed=config.seed,
        deterministic=config.deterministic,
        step_timeout=config.net.step_timeout,
        start_timeout=config.net.start_timeout,
        heartbeat=config.net.heartbeat,
        eval_every=config.eval.every,
        checkpoint_every=config.checkpoint.every,
        nonfinite=config.net.nonfinite,
    )


def delay_of(config: RunConfig) -> DelayModel:
    """The straggler model of the run.

    Raises:
        ConfigError: it names workers that the run does not have.
    """
    model = _delay_for_all(config.delay, config.seed)
    if config.delay.workers is None:
        return model
    strangers = [worker for worker in config.delay.workers if not 0 <= worker < config.workers]
    if strangers:
        raise ConfigError(
            f"delay.workers names workers of this run, 0 to {config.workers - 1}: got {', '.join(map(str, strangers))}."
        )
    return SomeWorkers(model, frozenset(config.delay.workers))


def _delay_for_all(delay: DelayConfig, seed: int) -> DelayModel:
    match delay.model:
        case "none":
            return NoDelay()
        case "constant":
            return ConstantDelay(delay.mean)
        case "exponential":
            return ExponentialDelay(seed, delay.mean)
        case "shifted-exponential":
            return ExponentialDelay(seed, delay.mean, delay.shift)


def run_name(config: RunConfig, stamp: str) -> str:
    """The run directory's name: the user's, or task, scheme and time."""
    if config.name:
        return config.name
    task = config.task.name.rpartition(":")[2]
    scheme = config.scheme.name.rpartition(":")[2]
    return f"{task}-{scheme}-{stamp}"
