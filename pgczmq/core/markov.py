"""Workers that turn slow for a while and recover: the Gilbert-Elliott model, without a chain to be remembered."""

from dataclasses import dataclass
from functools import lru_cache

from pgczmq.core.draws import BLOCK, exponential, uniform
from pgczmq.errors import ConfigError


@dataclass(frozen=True)
class MarkovDelay:
    """Every worker is good or slow; from step to step it changes with fixed probabilities. Nothing scales.

    The chain begins in its stationary state. It is driven by one uniform number a step: most of these decide the state
    alone, whatever it was before, and the others keep it. So the state at a step follows from the last deciding one,
    at any step, in any order of asking.

    Args:
        seed: of the run.
        mean: of the exponential delay while good, seconds.
        factor: by which it is longer while slow.
        turns_slow: probability that a good worker is slow at the next step.
        recovers: probability that a slow worker is good at the next step.
        stream: names the random numbers.

    Raises:
        ConfigError: the two probabilities would make workers alternate: their sum is above 1.

    Source: Gilbert, Bell System Technical Journal 39 (1960), Elliott, ibid. 42 (1963), with delays for errors.
    """

    seed: int
    mean: float
    factor: float
    turns_slow: float
    recovers: float
    stream: str = "delay"

    def __post_init__(self) -> None:
        """Check the probabilities."""
        if not (self.turns_slow > 0 and self.recovers > 0 and self.turns_slow + self.recovers <= 1):
            raise ConfigError(
                "a worker must be able to turn slow and to recover, with probabilities that add up to at most 1: got "
                f"turns_slow={self.turns_slow:g}, recovers={self.recovers:g}."
            )

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Exponential with the mean of the worker's state."""
        mean = self.mean * self.factor if self.is_slow(worker, step) else self.mean
        return mean * exponential(self.seed, self.stream, worker, step)

    def is_slow(self, worker: int, step: int) -> bool:
        """The worker's state at a step."""
        number, place = divmod(step, BLOCK)
        states = _states(self, worker, number)
        while (state := states[place]) is None:  # undecided since the block began: as the block before ended
            number, place = number - 1, BLOCK - 1
            states = _states(self, worker, number)
        return state


@lru_cache(maxsize=16_384)
def _states(model: MarkovDelay, worker: int, number: int) -> tuple[bool | None, ...]:
    """The states at a block's steps; None where they are still that of the step before the block.

    Below ``turns_slow`` a number makes any worker slow, above 1 - ``recovers`` any worker good; it keeps the others.
    """
    states: list[bool | None] = []
    state: bool | None = None
    for step in range(number * BLOCK, (number + 1) * BLOCK):
        drawn = uniform(model.seed, model.stream + ".state", worker, step)
        if step == 0:
            state = drawn <= model.turns_slow / (model.turns_slow + model.recovers)
        elif drawn <= model.turns_slow:
            state = True
        elif drawn > 1 - model.recovers:
            state = False
        states.append(state)
    return tuple(states)
