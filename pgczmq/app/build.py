"""From a configuration to the parts of a run."""

from functools import partial
from typing import TYPE_CHECKING

from pgczmq.app.policies import with_policy
from pgczmq.app.stragglers import delay_of, failures_of
from pgczmq.config import RunConfig
from pgczmq.core import schemes
from pgczmq.core.engine import Rules
from pgczmq.core.policies import Needs
from pgczmq.core.schemes import Scheme, Settings
from pgczmq.errors import ConfigError
from pgczmq.extensions import Kind, call, find

__all__ = [
    "ASYNC",
    "check_lockstep",
    "check_wire",
    "coded_scheme_of",
    "delay_of",
    "failures_of",
    "partitions_of",
    "rules_of",
    "run_name",
    "scheme_of",
    "task_and_learner",
]

if TYPE_CHECKING:
    from pgczmq.train.data import Partitions
    from pgczmq.train.optimizer import Learner
    from pgczmq.train.task import Task

ALPHA_FOR_BFLOAT16 = 2.56
"""Times 2^-8, what rounding to bfloat16 changes at most, that is one percent."""
ASYNC = "async"
"""A name of ``scheme.name`` that is no scheme: asynchronous SGD, in simulation only."""


SCHEME = Kind("scheme", "pgczmq.schemes", schemes.SCHEMES)


def scheme_of(config: RunConfig) -> Scheme:
    """The scheme that the run uses, built in or the user's own, with the policy that it follows.

    Raises:
        ConfigError: one of them does not exist or cannot be with these settings.
    """
    return with_policy(coded_scheme_of(config), config)


def coded_scheme_of(config: RunConfig) -> Scheme:
    """The scheme without a policy: all that a worker needs of it, so that nobody's policy is code that a worker runs.

    Raises:
        ConfigError: it does not exist or cannot be with these settings.
    """
    if config.scheme.name == ASYNC:
        raise ConfigError(
            'asynchronous SGD is a baseline in simulation only: got scheme.name="async". Run it with pgc sim.'
        )
    asked = config.scheme.model_dump()
    settings = Settings(workers=config.workers, seed=config.seed, **asked)
    if settings.name in schemes.SCHEMES:
        return schemes.build(settings)
    function = find(SCHEME, settings.name, "scheme.name")
    scheme = call(partial(function, settings), {}, name=f"scheme {settings.name}", setting="scheme.name")
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"{settings.name} must return a pgczmq.core.schemes.Scheme: got {type(scheme).__name__}.")
    return schemes.finish(scheme, settings)


def check_lockstep(config: RunConfig) -> None:
    """Whether a deterministic run is asked for what it cannot do.

    Raises:
        ConfigError: workers would have to be behind.
    """
    if config.deterministic and (config.device == "cuda" or config.threads not in ("auto", 1)):
        raise ConfigError(
            "a deterministic run computes on the CPU with one torch thread a worker, so that its bits are the same "
            f"everywhere: got device={config.device}, threads={config.threads}. Leave both out."
        )
    if config.deterministic and config.scheme.deadline is not None:
        raise ConfigError(
            "a deterministic run waits for every answer and then goes by the planned times: got deterministic=true "
            f"with scheme.deadline={config.scheme.deadline:g}. Leave scheme.deadline out."
        )
    if config.deterministic and config.scheme.on_new_step != "skip":
        raise ConfigError(
            "a deterministic run goes in lockstep, so that no worker is ever behind: got deterministic=true with "
            f'scheme.on_new_step="{config.scheme.on_new_step}". Leave scheme.on_new_step out.'
        )


def check_wire(config: RunConfig, scheme: Scheme) -> None:
    """Whether gradients may be rounded on their way.

    Raises:
        ConfigError: what is lost would be multiplied, or the same bits are asked for.
    """
    if config.net.wire_dtype == "float32":
        return
    if config.deterministic:
        raise ConfigError(
            'a deterministic run has the bits of its simulation, and those are float32: got net.wire_dtype="bfloat16". '
            "Leave net.wire_dtype out."
        )
    if scheme.code != "ones" and not scheme.max_alpha <= ALPHA_FOR_BFLOAT16:
        raise ConfigError(
            "bfloat16 keeps 8 bits, and decoding multiplies what is lost by the largest |alpha|, which may be "
            f'{ALPHA_FOR_BFLOAT16:g} at most: got net.wire_dtype="bfloat16" with {config.scheme.name}, whose largest '
            f"is {scheme.max_alpha:.3g}. Use float32, or a scheme without a code such as gc-fr or pgc-cr."
        )


def partitions_of(config: RunConfig, task: "Task") -> "Partitions":
    """How the training set is cut; imports torch.

    Raises:
        ConfigError: a minibatch does not fit.
    """
    from pgczmq.train.data import Partitions

    cut = config.task
    return Partitions(len(task.train), config.workers, batch_size=cut.batch_size, sampler=cut.sampler, seed=config.seed)


def task_and_learner(config: RunConfig, needs: Needs | None = None, *, threads: int = 1) -> tuple["Task", "Learner"]:
    """What is trained and the parameters; imports torch.

    Args:
        needs: the statistics that the scheme's policy reads.
        threads: that combine gradients; simulations run side by side, one a core.

    Raises:
        ConfigError: the task does not exist, or its data cannot be cut that way.
    """
    from pgczmq.train.optimizer import Learner
    from pgczmq.train.task import load_task

    task = load_task(config.task.name, config.task.args, config.seed)
    partitions_of(config, task)  # built for its complaints: the master itself needs no minibatches
    learner = Learner(task, config=config.optimizer, steps=config.steps, seed=config.seed, needs=needs, threads=threads)
    return task, learner


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


def run_name(config: RunConfig, stamp: str) -> str:
    """The run directory's name: the user's, or task, scheme and time."""
    if config.name:
        return config.name
    task = config.task.name.rpartition(":")[2]
    scheme = config.scheme.name.rpartition(":")[2]
    return f"{task}-{scheme}-{stamp}"
