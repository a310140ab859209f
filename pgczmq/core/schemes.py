"""The named schemes: who holds what, what they send, what the master does with it.

A scheme is a value. A new one is one function from ``Settings`` to ``Scheme``: a line in SCHEMES here, or
``scheme.name = "module:function"`` in a configuration.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgczmq.core import codes, independent, placement
from pgczmq.core.codes import Code, Floats
from pgczmq.core.decoders import (
    Decoder,
    FirstOfGroupDecoder,
    Folds,
    GroupMeanDecoder,
    LinearDecoder,
    UniformDecoder,
    Weights,
    never,
)
from pgczmq.core.placement import Placement
from pgczmq.core.policies import FixedPolicy, Plan, Policy
from pgczmq.core.schedule import EvaluateAll, EvaluateOne, Schedule
from pgczmq.core.settings import Settings
from pgczmq.errors import ConfigError

__all__ = ["SCHEMES", "Builder", "Scheme", "Settings", "build", "finish"]


@dataclass(frozen=True, eq=False)
class Scheme:
    """Everything the master and the workers need to know about a scheme.

    Args:
        name: as in the configuration.
        placement: who holds which partitions.
        coefficients_NC: row j multiplies the gradients of worker j's places.
        schedule: what a worker evaluates at a step.
        decoder: how arrivals are combined.
        k: arrivals that close a step, unless a policy changes it.
        takes_any_k: the decoder is usable at any number of arrivals, so that k alone decides when to close.
        wait: "k" or "usable": whether to wait for k arrivals when fewer are usable already.
        shortfall: "wait" or "partial": what to do when no usable set can come.
        deadline: with "partial", a step closes with what there is so many median deviations after the median answer;
            None while anybody may still answer.
        on_new_step: "skip", "abandon" or "queue": what a worker does that is behind.
        code: how the coefficients were made, for people.
        max_alpha: largest |alpha| the code was accepted with; NaN when not scored.
        reads: the settings that this scheme reads, beside those of all schemes; None when it does not say.
        folds: which arrivals can be added up before the step closes, see ``decoders.Folds``.
        adaptive: sets k and the batch fraction of every step; None for k arrivals of whole minibatches, always.
    """

    name: str
    placement: Placement
    coefficients_NC: Floats
    schedule: Schedule
    decoder: Decoder
    k: int
    takes_any_k: bool = False
    wait: str = "k"
    shortfall: str = "wait"
    deadline: float | None = None
    on_new_step: str = "skip"
    code: str = "ones"
    max_alpha: float = float("nan")
    reads: frozenset[str] | None = None
    adaptive: Policy | None = None
    folds: Folds = never

    @property
    def workers(self) -> int:
        """Number of workers and of partitions."""
        return self.placement.workers

    @property
    def load(self) -> int:
        """Partitions a worker holds."""
        return self.placement.load

    @cached_property
    def held_NC(self) -> NDArray[np.intp]:
        """Partitions at the places of each worker."""
        return np.array(self.placement.held, dtype=np.intp)

    @property
    def policy(self) -> Policy:
        """What every step asks for."""
        return FixedPolicy(Plan(self.k)) if self.adaptive is None else self.adaptive

    def following(self, policy: Policy) -> "Scheme":
        """The same scheme with a policy of its own.

        Raises:
            ConfigError: the code fixes how many arrivals close a step.
        """
        if not self.takes_any_k:
            raise ConfigError(
                f"the code of {self.name} fixes how many arrivals close a step, so that it takes no policy but fixed. "
                f"Schemes that take any: {', '.join(ANY_K)}."
            )
        return replace(self, adaptive=policy)

    def encode_NN(self) -> Floats:
        """The encoding matrix: row j holds worker j's coefficients at the partitions it holds."""
        return codes.encoding_matrix(self.coefficients_NC, self.placement)

    def usable(self, arrived: Collection[int], *, k: int, origin: float) -> Weights | None:
        """The weights with which a step closes: k arrivals where k counts, and decodable. None when it stays open.

        Args:
            arrived: worker numbers in order of arrival.
            k: arrivals that this step asks for.
            origin: of the step, in [0, 1).
        """
        if (self.wait == "k" or self.takes_any_k) and len(arrived) < k:
            return None
        return self.decoder.weights(tuple(arrived), origin)

    def suffices(self, workers: Collection[int], *, k: int, origin: float) -> bool:
        """Whether answers of these workers would close a step; decodes only where their number does not tell."""
        return len(workers) >= k if self.takes_any_k else self.usable(workers, k=k, origin=origin) is not None


ANY_K = ("is-sgd", "fastest-k", "is-gc-fr", "is-gc-cr", "is-gc-hr", "pgc-cr")
"""Schemes that are usable at any number of arrivals."""

Builder = Callable[[Settings], Scheme]


def build(settings: Settings) -> Scheme:
    """The scheme that the settings name.

    Raises:
        ConfigError: no such scheme, or a combination that cannot be; names the nearest that can.
    """
    builder = SCHEMES.get(settings.name)
    if builder is None:
        close = get_close_matches(settings.name, SCHEMES, n=1)
        nearest = f"The nearest is {close[0]}. " if close else ""
        raise ConfigError(
            f"there is no scheme {settings.name}. {nearest}Schemes: {', '.join(SCHEMES)}, "
            'or "module:function" for one of your own.'
        )
    return finish(builder(settings), settings)


def finish(scheme: Scheme, settings: Settings) -> Scheme:
    """Fill in what all schemes share."""
    return replace(
        scheme,
        name=settings.name,
        shortfall=settings.shortfall,
        deadline=settings.patience(),
        on_new_step=settings.on_new_step,
    )


def _rotation(settings: Settings, load: int, stagger: int = 0) -> EvaluateOne:
    return EvaluateOne(settings.oldest(load), stagger)


def _dgd(settings: Settings) -> Scheme:
    workers = settings.workers
    decoder = UniformDecoder(load=1, least=workers)
    return Scheme(
        settings.name,
        placement.identity(workers),
        codes.ones(workers, 1),
        EvaluateAll(),
        decoder,
        workers,
        reads=frozenset(),
        folds=decoder.folds,
    )


def _is_sgd(settings: Settings) -> Scheme:
    workers = settings.workers
    decoder = UniformDecoder(load=1)
    return Scheme(
        settings.name,
        placement.identity(workers),
        codes.ones(workers, 1),
        EvaluateAll(),
        decoder,
        settings.any_k(),
        takes_any_k=True,
        reads=frozenset({"stragglers", "k"}),
        folds=decoder.folds,
    )


def _fractional(settings: Settings, schedule: Schedule, decoder: Decoder, reads: set[str]) -> Scheme:
    load = settings.fractional_load()
    held = placement.fractional(settings.workers, load)
    return Scheme(
        settings.name,
        held,
        codes.ones(settings.workers, load),
        schedule,
        decoder,
        settings.fixed_k(),
        wait=settings.wait,
        reads=frozenset({"stragglers", "load", "wait", "k"} | reads),
    )


def _gc_fr(settings: Settings) -> Scheme:
    decoder = FirstOfGroupDecoder(settings.workers, settings.fractional_load())
    return replace(_fractional(settings, EvaluateAll(), decoder, set()), folds=decoder.folds)


def _pgc_fr(settings: Settings) -> Scheme:
    load = settings.fractional_load()
    decoder = FirstOfGroupDecoder(settings.workers, load)
    return replace(_fractional(settings, _rotation(settings, load), decoder, {"max_age"}), folds=decoder.folds)


def _pgc_fr_staggered(settings: Settings) -> Scheme:
    load = settings.fractional_load()
    decoder = GroupMeanDecoder(settings.workers, load)
    return _fractional(settings, _rotation(settings, load, stagger=1), decoder, {"max_age"})


def _pgc_cr(settings: Settings) -> Scheme:
    load = settings.coded_load()
    decoder = UniformDecoder(load)
    return Scheme(
        settings.name,
        placement.cyclic(settings.workers, load),
        codes.ones(settings.workers, load),
        _rotation(settings, load),
        decoder,
        settings.any_k(),
        takes_any_k=True,
        reads=frozenset({"stragglers", "load", "k", "max_age"}),
        folds=decoder.folds,
    )


def _linear(settings: Settings, schedule: Schedule, code: Code, decoder: LinearDecoder, reads: set[str]) -> Scheme:
    return Scheme(
        settings.name,
        placement.cyclic(settings.workers, code.coefficients_NC.shape[1]),
        code.coefficients_NC,
        schedule,
        decoder,
        settings.fixed_k(),
        wait=settings.wait,
        code=code.name,
        max_alpha=code.max_alpha,
        reads=frozenset({"stragglers", "load", "wait", "code", "k"} | reads),
    )


def _gc_cr(settings: Settings) -> Scheme:
    load = settings.coded_load()
    placement.cyclic(settings.workers, load)
    stragglers, kind, seed = settings.stragglers, settings.code, settings.seed
    code = codes.choose(settings.workers, load, stragglers=stragglers, kind=kind, seed=seed)
    return _linear(settings, EvaluateAll(), code, LinearDecoder(code), set())


def _pgc_cr_naive(settings: Settings) -> Scheme:
    """One random draw unless "cyclic-mds" is spelt out, whatever its conditioning: kept to show that it diverges."""
    load = settings.coded_load()
    placement.cyclic(settings.workers, load)
    if settings.code == "cyclic-mds":
        stragglers, seed = settings.stragglers, settings.seed
        code = codes.choose(settings.workers, load, stragglers=stragglers, kind="cyclic-mds", seed=seed)
    else:
        code = codes.one_draw(settings.workers, load, seed=settings.seed)
    decoder = LinearDecoder(code, alpha_limit=float("inf"))
    return _linear(settings, _rotation(settings, load), code, decoder, {"max_age"})


def _ignore_straggler(settings: Settings, held: Placement, decoder: Decoder, reads: set[str]) -> Scheme:
    return Scheme(
        settings.name,
        held,
        codes.ones(settings.workers, held.load),
        EvaluateAll(),
        decoder,
        settings.any_k(),
        takes_any_k=True,
        reads=frozenset({"stragglers", "load", "k"} | reads),
    )


def _is_gc_fr(settings: Settings) -> Scheme:
    workers, load = settings.workers, settings.load or 2
    held = placement.fractional(workers, load)
    return _ignore_straggler(settings, held, independent.FractionalIndependentSet(workers, load), set())


def _is_gc_cr(settings: Settings) -> Scheme:
    workers, load = settings.workers, settings.load or 2
    held = placement.cyclic(workers, load)
    return _ignore_straggler(settings, held, independent.CyclicIndependentSet(workers, load), set())


def _is_gc_hr(settings: Settings) -> Scheme:
    workers, load = settings.workers, settings.load or 2
    groups = settings.groups or placement.largest_groups(workers, load)
    local_load = load - 1 if settings.local_load is None else settings.local_load
    held = placement.hybrid(workers, load, local_load=local_load, groups=groups)
    decoder = independent.hybrid_decoder(held, local_load=local_load, groups=groups)
    return _ignore_straggler(settings, held, decoder, {"groups", "local_load"})


SCHEMES: Mapping[str, Builder] = {
    "dgd": _dgd,
    "is-sgd": _is_sgd,
    "fastest-k": _is_sgd,
    "gc-fr": _gc_fr,
    "gc-cr": _gc_cr,
    "is-gc-fr": _is_gc_fr,
    "is-gc-cr": _is_gc_cr,
    "is-gc-hr": _is_gc_hr,
    "pgc-fr": _pgc_fr,
    "pgc-cr": _pgc_cr,
    "pgc-fr-staggered": _pgc_fr_staggered,
    "pgc-cr-naive": _pgc_cr_naive,
}
