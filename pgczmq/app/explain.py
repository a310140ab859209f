"""What a scheme does, for people and scripts: who holds what, who evaluates what, what an arrival is worth."""

import math
from collections.abc import Sequence
from typing import Any

from pgczmq.app.build import delay_of, scheme_of
from pgczmq.app.faults import faults_of
from pgczmq.app.policies import read_by
from pgczmq.app.stragglers import DELAYS, PARTS
from pgczmq.config import RunConfig, SchemeConfig, Section
from pgczmq.core import seeds
from pgczmq.core.closing import recovered, shares
from pgczmq.core.decoders import Weights
from pgczmq.core.schedule import EvaluateAll, EvaluateOne
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ConfigError

_OWN = frozenset({"args"})
"""Of its section, a delay model of the user's own reads nothing else."""
_OF_POLICIES = frozenset({"name", "response", "bound"})
"""What ``pgc theory`` reads too is not called ignored, where it has a section of its own."""
_OF_DELAYS = frozenset({"model", "workers", "communication", "computation", "failures"})
READ_BY_ALL = frozenset({"name", "shortfall", "deadline", "on_new_step"})
"""Settings that mean the same in every scheme; ``Scheme.reads`` leaves them out."""

REPLAYED_AT_MOST = 2_000_000
"""Calls of a schedule of the user's own that are worth waiting for: a few seconds."""


def explain(config: RunConfig, *, step: int | None = None, arrived: Sequence[int] | None = None) -> dict[str, Any]:
    """Everything that follows from a configuration alone, as plain JSON values.

    Always: ``scheme``, ``workers``, ``stragglers``, ``load``, ``k`` (at first, if ``policy`` is not fixed), ``wait``,
    ``placement`` (partitions at each worker's places), ``encode`` (n x n), ``code``, ``max_alpha_code`` (None when the
    code was not scored), ``ignored`` (settings given that scheme, policy and delay do not read), ``faults`` (in words),
    ``step``, ``evaluates`` and ``ages``.

    ``evaluates`` are the partitions each worker evaluates at ``step`` when everybody was on time until then, and
    ``ages`` the age of each of its places after that; both None without a step.

    With ``arrived``: ``arrived``, ``usable`` (a step closes with exactly these), ``closes_after`` (how many of them,
    in this order, it takes; None when they do not do), ``weights`` (n), ``share`` (n), ``recovered`` (fraction of
    the partitions) and ``max_alpha``; all zero when not usable. Decoders that break ties by chance use the
    origin of ``step``, or of step 0.

    Args:
        config: the run.
        step: at least 0; may lie beyond the end of the run.
        arrived: worker numbers in order of arrival.

    Raises:
        ConfigError: the scheme, the faults, the step or the arrivals cannot be.
    """
    scheme = scheme_of(config)
    delay_of(config)  # for its complaints
    explanation = _static(scheme, config)
    explanation |= {"step": step, "evaluates": None, "ages": None}
    if step is not None:
        explanation |= _at_step(scheme, step)
    if arrived is not None:
        explanation |= _with_arrivals(scheme, config, step=step or 0, arrived=_checked(arrived, scheme.workers))
    return explanation


def _static(scheme: Scheme, config: RunConfig) -> dict[str, Any]:
    return {
        "scheme": scheme.name,
        "workers": scheme.workers,
        "stragglers": config.scheme.stragglers,
        "load": scheme.load,
        "k": scheme.policy.first().plan.k,
        "policy": config.policy.name,
        "wait": scheme.wait,
        "placement": [list(held) for held in scheme.placement.held],
        "encode": scheme.encode_NN().tolist(),
        "code": scheme.code,
        "max_alpha_code": scheme.max_alpha if math.isfinite(scheme.max_alpha) else None,
        "ignored": _ignored(scheme, config),
        "faults": [str(rule) for rule in faults_of(config).rules],
    }


def _ignored(scheme: Scheme, config: RunConfig) -> list[str]:
    """Keys, as in the file, that differ from their defaults without any effect, as far as a scheme says."""
    reads = frozenset(SchemeConfig.model_fields) if scheme.reads is None else READ_BY_ALL | scheme.reads
    found = _unread("scheme", config.scheme, reads)
    found += _unread("policy", config.policy, read_by(config.policy) | _OF_POLICIES)
    delay = config.delay
    found += _unread("delay", delay, DELAYS.get(delay.model, _OWN) | _OF_DELAYS)
    for name, part in (("communication", delay.communication), ("computation", delay.computation)):
        if part is not None:
            found += _unread(f"delay.{name}", part, PARTS.get(part.model, _OWN) | {"model"})
    return found


def _unread(prefix: str, section: Section, reads: frozenset[str]) -> list[str]:
    fields = type(section).model_fields.items()
    return [
        f"{prefix}.{name}"
        for name, field in fields
        if name not in reads and getattr(section, name) != field.get_default(call_default_factory=True)
    ]


# ---------------------------------------------------------------- the schedule


def _at_step(scheme: Scheme, step: int) -> dict[str, Any]:
    if step < 0:
        raise ConfigError(f"steps are numbered from 0: got step {step}.")
    evaluated = [_evaluated_at(scheme, worker, step) for worker in range(scheme.workers)]
    held = scheme.placement.held
    return {
        "evaluates": [
            [partition for partition, at in zip(held[worker], places, strict=True) if at == step]
            for worker, places in enumerate(evaluated)
        ],
        "ages": [[step - at for at in places] for places in evaluated],
    }


def _evaluated_at(scheme: Scheme, worker: int, step: int) -> list[int]:
    """The step at which each place's gradient was evaluated, for a worker that has always been on time.

    The rotation visits every place once in ``load`` steps, so max_age (at least load - 1) never interferes, and
    the last visit follows from the step number alone; before the first one there is step 0, which evaluates all.
    """
    schedule, load = scheme.schedule, scheme.load
    if type(schedule) is EvaluateAll:
        return [step] * load
    if type(schedule) is EvaluateOne:
        turn = step - 1 + schedule.stagger * (worker % load)
        return [max(0, step - (turn - place) % load) for place in range(load)]
    return _replayed(scheme, worker, step)


def _replayed(scheme: Scheme, worker: int, step: int) -> list[int]:
    """The same for a schedule that nothing is known about: step by step from the beginning."""
    if (step + 1) * scheme.workers > REPLAYED_AT_MOST:
        raise ConfigError(
            f"a schedule of your own is replayed from step 0, which takes steps * workers up to {REPLAYED_AT_MOST:,}: "
            f"got step {step}, workers={scheme.workers}. The last step that can be shown is "
            f"{REPLAYED_AT_MOST // scheme.workers - 1}."
        )
    evaluated: list[int | None] = [None] * scheme.load
    for now in range(step + 1):
        for place in scheme.schedule.places(worker, now, evaluated):
            evaluated[place] = now
    if None in evaluated:
        raise ConfigError(
            f"a schedule evaluates every place at a worker's first step: {type(scheme.schedule).__name__} left out "
            f"place {evaluated.index(None)} of worker {worker}."
        )
    return [at for at in evaluated if at is not None]


# ---------------------------------------------------------------- arrivals


def _checked(arrived: Sequence[int], workers: int) -> list[int]:
    given = ",".join(map(str, arrived))
    strangers = [worker for worker in arrived if not 0 <= worker < workers]
    if strangers:
        raise ConfigError(f"arrivals are worker numbers from 0 to {workers - 1}: got {strangers[0]} in {given}.")
    twice = [worker for place, worker in enumerate(arrived) if worker in arrived[:place]]
    if twice:
        raise ConfigError(f"a worker arrives once in a step: got {twice[0]} twice in {given}.")
    return list(arrived)


def _with_arrivals(scheme: Scheme, config: RunConfig, *, step: int, arrived: Sequence[int]) -> dict[str, Any]:
    origin = seeds.origin(config.seed, step)
    # In deterministic mode the engine decodes by worker number, so that "first" does not depend on the real order.
    order = sorted if config.deterministic else list

    def usable(count: int) -> Weights | None:
        return scheme.usable(order(arrived[:count]), k=scheme.policy.first().plan.k, origin=origin)

    weights = usable(len(arrived))
    closes = next((count for count in range(1, len(arrived) + 1) if usable(count) is not None), None)
    share_N, max_alpha = shares(scheme, weights or Weights((), ()))
    values = [0.0] * scheme.workers
    if weights is not None:
        for worker, value in zip(weights.workers, weights.values, strict=True):
            values[worker] = value
    return {
        "arrived": list(arrived),
        "usable": weights is not None,
        "closes_after": closes if weights is not None else None,
        "weights": values,
        "share": share_N.tolist(),
        "recovered": recovered(share_N),
        "max_alpha": max_alpha,
    }
