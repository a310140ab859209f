"""What a task's parameters cost in memory and evaluations, for each scheme."""

from dataclasses import dataclass

from pgczmq.app.build import coded_scheme_of
from pgczmq.config import OptimizerConfig, RunConfig
from pgczmq.core.schedule import EvaluateAll
from pgczmq.core.schemes import SCHEMES
from pgczmq.errors import ConfigError

BYTES = 4
"""Of a parameter, and of its gradient."""
MINIBATCHES = 3
"""That a worker may have at a time: the one it computes with, and those read ahead."""


@dataclass(frozen=True)
class Cost:
    """Of one scheme, with the run's workers and stragglers.

    Args:
        scheme: its name.
        load: partitions that a worker holds; 0 where the scheme cannot be.
        evaluations: minibatches that a worker evaluates in a step.
        retained: bytes of the gradients that a worker keeps beside the one that it sends.
        worker: bytes of a worker on a machine of its own: parameters, the gradient that it sends, those retained, and
            minibatches. Without what the model needs while it computes, and without the process itself.
        why_not: it cannot be; empty where it can.
    """

    scheme: str
    load: int = 0
    evaluations: int = 0
    retained: int = 0
    worker: int = 0
    why_not: str = ""


def costs(config: RunConfig, *, parameters: int, minibatch: int) -> list[Cost]:
    """A row a scheme, the run's own first.

    Args:
        parameters: P.
        minibatch: bytes.
    """
    names = dict.fromkeys([config.scheme.name, *(name for name in SCHEMES if name != "fastest-k")])
    return [_cost(config, name, parameters=parameters, minibatch=minibatch) for name in names]


def _cost(config: RunConfig, name: str, *, parameters: int, minibatch: int) -> Cost:
    asked = config.scheme if name == config.scheme.name else type(config.scheme)(stragglers=config.scheme.stragglers)
    try:
        scheme = coded_scheme_of(config.model_copy(update={"scheme": asked.model_copy(update={"name": name})}))
    except ConfigError as error:
        return Cost(name, why_not=str(error))
    size = BYTES * parameters
    # A worker of one partition, in a scheme without a code, computes its gradient where it sends it from.
    retained = 0 if scheme.load == 1 and scheme.code == "ones" else scheme.load * size
    evaluations = scheme.load if isinstance(scheme.schedule, EvaluateAll) else 1
    return Cost(name, scheme.load, evaluations, retained, 2 * size + retained + MINIBATCHES * minibatch)


def master_bytes(config: RunConfig, *, parameters: int) -> int:
    """The master's, with workers on other machines: parameters and the version that is sent, an estimate, what the
    optimizer keeps, and a gradient of every worker."""
    return BYTES * parameters * (3 + _kept_by(config.optimizer) + config.workers)


def _kept_by(optimizer: OptimizerConfig) -> int:
    """Vectors as long as the parameters."""
    return int(optimizer.momentum > 0) if optimizer.name == "sgd" else 2
