"""How long the arithmetic of a run takes here, on one thread: what a simulation of it needs to know.

Twelve processes that share two cores measure how they wait for each other; one process alone measures the work.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from pgczmq.app import build, simulate
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError

_TERMS = 4  # of a sum, over which its norm is spread


@dataclass(frozen=True)
class ComputeTimes:
    """Medians, seconds.

    Args:
        evaluation: of the gradient of one partition's minibatch.
        low, high: the least and largest of it.
        addition: of one vector times a number, added to another: encoding takes one for each partition, combining one
            for each message.
    """

    evaluation: float
    low: float
    high: float
    addition: float

    def for_run(self, config: RunConfig) -> dict[str, float]:
        """The ``[sim]`` section: the encoding worker's and the combining master's additions are its communication."""
        scheme = build.scheme_of(config)
        weights = scheme.decoder.weights(tuple(range(scheme.workers)), 0.0)
        if weights is None:
            raise ConfigError(f"{scheme.name} cannot combine all its workers' answers.")
        # With everybody there; of those that combine any k answers, k.
        messages = min(scheme.k, sum(value != 0.0 for value in weights.values))
        additions = scheme.load + messages
        return {"evaluation": self.evaluation, "communication": additions * self.addition}


def measure(config: RunConfig, repeats: int) -> ComputeTimes:
    """Evaluate ``repeats`` gradients of a run, after one to warm up, and add as many vectors.

    Raises:
        ConfigError: something about the task does not work.
    """
    from pgczmq.train import blocks

    gradient = simulate.model_of(config).gradient
    out = gradient.empty()
    evaluations = _seconds(lambda step: gradient.evaluate(step, step % config.workers, out=out), repeats)
    one = out.cpu().numpy()
    total, terms = one.copy(), [one.copy() for _ in range(_TERMS)]
    additions = _seconds(lambda step: blocks.weighted_sum([0.5] * _TERMS, terms, out=total), repeats)
    addition = statistics.median(additions) / _TERMS
    return ComputeTimes(statistics.median(evaluations), min(evaluations), max(evaluations), addition)


def _seconds(work: Callable[[int], object], repeats: int) -> list[float]:
    """CPU seconds of each, so that other processes do not count; the first is left out."""
    taken = []
    for step in range(repeats + 1):
        begun = time.process_time()
        work(step)
        taken.append(time.process_time() - begun)
    return taken[1:]
