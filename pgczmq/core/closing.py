"""The account of a step at the moment it closes; every sum here is O(workers * load)."""

import math

import numpy as np

from pgczmq.core.codes import Floats
from pgczmq.core.decoders import Weights
from pgczmq.core.events import Arrived, ClosedStep
from pgczmq.core.open_step import OpenStep
from pgczmq.core.schemes import Scheme


def close(scheme: Scheme, opened: OpenStep, weights: Weights, at: float) -> ClosedStep:
    """Who was used, spare and missing, and what the estimate consists of."""
    answers = opened.answers
    by_worker = sorted([(w, a) for w, a in zip(weights.workers, weights.values, strict=True) if a != 0.0])
    used = tuple([worker for worker, _ in by_worker])
    share, max_alpha = shares(scheme, weights)
    losses = fresh_losses(answers)
    finite = [loss for loss in losses.values() if math.isfinite(loss)]
    return ClosedStep(
        step=opened.step,
        published_at=opened.opened_at,
        closed_at=at,
        k=opened.plan.k,
        batch_fraction=opened.plan.batch_fraction,
        loss=sum(finite) / len(finite) if finite else math.nan,
        arrived=tuple(answers),
        arrived_at=tuple([answer.at for answer in answers.values()]),
        used=used,
        spare=tuple(sorted(answers.keys() - set(used))),
        missing=tuple([worker for worker in range(scheme.workers) if worker not in answers]),
        weights=tuple([value for _, value in by_worker]),
        ages=tuple([answers[worker].ages for worker in used]),
        recovered=recovered(share),
        max_alpha=max_alpha,
        fresh=len(losses),
    )


def shares(scheme: Scheme, weights: Weights) -> tuple[Floats, float]:
    """The share of each partition in the estimate, (N,), and the largest |alpha| of one copy.

    alpha_{j,k} = n a_j B_{j,k}; a partition's share is the sum of its column, 1 where decoding is exact.
    """
    workers = np.array(weights.workers, dtype=np.intp)
    alphas = scheme.coefficients_NC.take(workers, axis=0)
    alphas *= np.array(weights.values)[:, None]
    alphas *= scheme.workers
    held = scheme.held_NC.take(workers, axis=0)
    share: Floats = np.bincount(held.ravel(), alphas.ravel(), minlength=scheme.workers).astype(np.float64, copy=False)
    return share, float(np.abs(alphas).max(initial=0.0))


def recovered(share_N: Floats) -> float:
    """Fraction of the partitions that are in the estimate: those whose share is not 0, whatever else it is."""
    return int(np.count_nonzero(np.abs(share_N) > 1e-9)) / len(share_N)


def fresh_losses(answers: dict[int, Arrived]) -> dict[int, float]:
    """Mean loss of each distinct partition evaluated at this step; replicas agree, so any one counts."""
    losses: dict[int, float] = {}
    for answer in answers.values():
        for partition, loss in answer.losses:
            losses.setdefault(partition, loss)
    return dict(sorted(losses.items()))
