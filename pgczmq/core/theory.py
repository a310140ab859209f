"""What can be computed before a run: error bounds, when to wait for more workers, and with how much of a minibatch.

Letters as in schemes.md section 5: n workers, k arrivals, b batch fraction, phi = k b, mu_{k:n} = the expected time of
the k-th of n arrivals (``order_statistics``). Times are seconds, rates per second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgczmq.core.order_statistics import ResponseTimes
from pgczmq.core.policies import Plan
from pgczmq.errors import ConfigError

# ---------------------------------------------------------------- the error bound


@dataclass(frozen=True)
class Bound:
    """Constants of the bound on the expected excess loss of SGD on a strongly convex loss.

    Args:
        lr: learning rate.
        lipschitz: L, of the gradient.
        convexity: C, of strong convexity.
        variance: sigma^2, of one sample's gradient.
        samples: S, a worker's minibatch at b = 1.
        initial_error: F(w_0) - F*.

    Raises:
        ConfigError: lr C >= 1, where the bound says nothing.

    Source: Adaptive-k, Theorem 1; Adaptive-k-and-batch, eq. (1).
    """

    lr: float
    lipschitz: float
    convexity: float
    variance: float
    samples: int
    initial_error: float

    def __post_init__(self) -> None:
        """Check what the formulas need."""
        if not self.lr * self.convexity < 1:
            raise ConfigError(
                f"the bound needs lr * convexity below 1: got optimizer.lr={self.lr:g}, convexity={self.convexity:g}. "
                f"The largest lr is below {1 / self.convexity:g}."
            )

    @property
    def decay(self) -> float:
        """q = -ln(1 - lr C): what a step takes off the logarithm of the error above its floor."""
        return -math.log1p(-self.lr * self.convexity)

    def floor(self, phi: float) -> float:
        """lr L sigma^2 / (2 C S phi): the error that more steps do not remove."""
        return self.lr * self.lipschitz * self.variance / (2 * self.convexity * self.samples * phi)

    def error(self, phi: float, steps: float, start: float) -> float:
        """The bound after so many steps with phi = k b, from an error of ``start``."""
        floor = self.floor(phi)
        return floor + math.exp(-self.decay * steps) * (start - floor)

    def steps_to(self, error: float, phi: float, start: float) -> float:
        """Steps until the bound is ``error``; infinite at or below the floor, 0 from ``start`` on."""
        floor = self.floor(phi)
        if error >= start:
            return 0.0
        return math.log((start - floor) / (error - floor)) / self.decay if error > floor else math.inf


# ---------------------------------------------------------------- stages


@dataclass(frozen=True)
class Stage:
    """A plan, and for how long the bound says to keep it.

    Args:
        mu: expected seconds a step.
        begins: seconds since the run's start.
        ends: when to switch to the next; infinite for the last.
        error: the bound at the beginning.
    """

    plan: Plan
    mu: float
    begins: float
    ends: float
    error: float


def stages(bound: Bound, times: ResponseTimes, workers: int, ladder: Sequence[Plan]) -> list[Stage]:
    """When to go from each plan to the next so that the bound falls fastest at every moment.

    Args:
        ladder: plans of increasing phi.

    Source: schemes.md section 5: bound-optimal-k (where phi = k) and eq. (4) of Adaptive-k-and-batch.
    """
    mus = [times.order_statistic(workers, rung.k, rung.batch_fraction) for rung in ladder]
    made: list[Stage] = []
    at, error = 0.0, bound.initial_error
    for place, (rung, mu) in enumerate(zip(ladder, mus, strict=True)):
        last = place + 1 == len(ladder)
        seconds = math.inf if last else _stay(bound, rung.phi, ladder[place + 1].phi, mu, mus[place + 1], error)
        made.append(Stage(rung, mu, at, at + seconds, error))
        at, error = at + seconds, bound.error(rung.phi, seconds / mu, error)
    return made


def _stay(bound: Bound, phi: float, next_phi: float, mu: float, next_mu: float, error: float) -> float:
    """Seconds to stay with phi; 0 when the next plan is no slower or already the better one."""
    if next_mu <= mu:
        return 0.0
    noise = bound.lr * bound.lipschitz * bound.variance
    above = 2 * bound.convexity * phi * bound.samples * error - noise
    argument = (next_mu - mu) * next_phi * above / (mu * noise * (next_phi - phi)) if noise else math.inf
    return mu / bound.decay * math.log(argument) if argument > 1 else 0.0


def ladder_k(start: int, most: int, increment: int) -> list[Plan]:
    """start, start + increment, ... and at last ``most``, with whole minibatches."""
    return [Plan(k) for k in (*range(start, most, increment), most)]


def ladder_k_batch(times: ResponseTimes, workers: int, *, most: int, fractions: Sequence[float]) -> list[Plan]:
    """k = 1 with growing fractions, then one more worker with the best fraction, and so on.

    Args:
        most: the last k.
        fractions: the allowed ones; 1 is always among them.

    Source: Adaptive-k-and-batch, Algorithm 1 and Theorem 3.
    """
    grid = sorted({*fractions, 1.0})
    ladder = [Plan(1, fraction) for fraction in grid]
    for k in range(2, most + 1):
        best = best_fraction(times, workers, before=ladder[-1], k=k, fractions=grid)
        ladder += [Plan(k, fraction) for fraction in grid if fraction >= best]
    return ladder


def best_fraction(times: ResponseTimes, workers: int, *, before: Plan, k: int, fractions: Sequence[float]) -> float:
    """b_opt: argmin over b' with k b' > phi of phi'(mu'-mu)/(phi'-phi), ties to the smaller.

    Where some allowed b' has mu' <= mu, this is the smallest such, since the value grows with b' while it is below 0.

    Raises:
        ConfigError: no allowed fraction raises phi.

    Source: Adaptive-k-and-batch, Theorem 3.
    """
    mu, phi = times.order_statistic(workers, before.k, before.batch_fraction), before.phi
    allowed = [fraction for fraction in sorted(fractions) if k * fraction > phi * (1 + 1e-12)]
    if not allowed:
        raise ConfigError(
            f"no allowed batch fraction makes k={k} better than k={before.k} with {before.batch_fraction}."
        )
    mus = {fraction: times.order_statistic(workers, k, fraction) for fraction in allowed}
    return min(allowed, key=lambda fraction: k * fraction * (mus[fraction] - mu) / (k * fraction - phi))


def continuous_best_fraction(workers: int, *, before: Plan, k: int) -> float:
    """b_opt without a grid for model 1 with y = 0: (phi/k')(1 + sqrt(1 - k' m/(k m'))), m = H_n - H_{n-k}.

    Source: schemes.md section 5.
    """
    m, after = (sum(1 / i for i in range(workers - j + 1, workers + 1)) for j in (before.k, k))
    return before.phi / k * (1 + math.sqrt(1 - k * m / (before.k * after)))


@dataclass(frozen=True)
class Cost:
    """What it takes to bring the bound down to an error.

    Args:
        computation: samples evaluated by each worker.
        communication: vectors sent by anybody: n + k a step.
    """

    seconds: float
    steps: float
    computation: float
    communication: float


def cost_to(error: float, bound: Bound, workers: int, made: Sequence[Stage]) -> Cost | None:
    """What the stages cost until the bound is ``error``; None when even the last one's floor is above it.

    Source: schemes.md section 5, costs of adaptive-k-batch.
    """
    seconds = steps = computation = communication = 0.0
    for stage in made:
        rung = stage.plan
        wanted = bound.steps_to(error, rung.phi, stage.error)
        spent = min(wanted, (stage.ends - stage.begins) / stage.mu)
        if math.isinf(spent):
            return None
        seconds += spent * stage.mu
        steps += spent
        computation += spent * rung.batch_fraction * bound.samples
        communication += spent * (workers + rung.k)
        if wanted <= spent:
            return Cost(seconds, steps, computation, communication)
    return None
