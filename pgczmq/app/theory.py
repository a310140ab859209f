"""What theory says of a configuration: order statistics, bounds, switching times, and whether the formulas hold."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pgczmq.app.policies import bound_of, fractions_of, k_batch_ladder, k_ladder, response_of
from pgczmq.config import RunConfig
from pgczmq.core.order_statistics import ResponseTimes
from pgczmq.core.theory import Bound, Stage, cost_to, stages
from pgczmq.core.theory_check import checks
from pgczmq.errors import ConfigError


def theory(config: RunConfig, *, error: float | None = None) -> dict[str, Any]:
    """Everything that ``pgc theory`` prints, as plain JSON values; times in seconds.

    ``orders``: for every k the expected time of the k-th arrival at each allowed batch fraction, and the error floor
    at a whole minibatch. ``bound-optimal-k`` and ``adaptive-k-batch``: the stages, and with ``error`` the cost until
    the bound is there (None when it never is). ``checks``: the fixtures of schemes.md section 5.

    Args:
        error: of the bound, to be reached.

    Raises:
        ConfigError: k, lr or the error cannot be.
    """
    if error is not None and not 0 < error < math.inf:
        raise ConfigError(f"--error is a loss above the least possible, above 0: got {error:g}.")
    times, bound, workers = response_of(config.policy), bound_of(config), config.workers
    fractions = fractions_of(config)
    table: dict[str, Any] = {
        "workers": workers,
        "lr": config.optimizer.lr,
        "samples": config.task.batch_size,
        "fractions": fractions,
        "orders": [_order(times, bound, workers, k, fractions) for k in range(1, workers + 1)],
        "error": error,
    }
    for name, ladder in (("bound-optimal-k", k_ladder(config)), ("adaptive-k-batch", k_batch_ladder(config))):
        made = stages(bound, times, workers, ladder)
        cost = None if error is None else cost_to(error, bound, workers, made)
        table[name] = {"stages": [_plain(stage) for stage in made], "cost": None if cost is None else asdict(cost)}
    table["checks"] = [asdict(check) | {"holds": check.holds} for check in checks()]
    return table


def _order(times: ResponseTimes, bound: Bound, workers: int, k: int, fractions: Sequence[float]) -> dict[str, Any]:
    at = [times.order_statistic(workers, k, fraction) for fraction in fractions]
    return {"k": k, "seconds": at, "floor": bound.floor(k)}


def _plain(stage: Stage) -> dict[str, Any]:
    return {
        "k": stage.plan.k,
        "batch_fraction": stage.plan.batch_fraction,
        "seconds_per_step": stage.mu,
        "begins": stage.begins,
        "ends": stage.ends if math.isfinite(stage.ends) else None,
        "error": stage.error,
    }
