"""``pgc compare``: schemes x stragglers x seeds, on one configuration."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgczmq.app import build, simulate
from pgczmq.bench.study import Case, Engine
from pgczmq.bench.tally import Goal
from pgczmq.config import RunConfig, parse
from pgczmq.core.schemes import SCHEMES
from pgczmq.errors import ConfigError
from pgczmq.extensions import find

COMMON = ("wait", "shortfall", "deadline", "max_age", "on_new_step")
"""Keys of ``[scheme]`` that a comparison takes over; the others belong to one scheme and one number of stragglers."""


@dataclass(frozen=True)
class Grid:
    """All runs of a comparison.

    Args:
        base: what all have in common.
        left_out: the combinations that cannot be, each with the reason.
        ignored: keys of ``[scheme]`` in the configuration that a comparison does not take over.
    """

    cases: tuple[Case, ...]
    base: RunConfig
    left_out: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]


def grid(
    base: RunConfig, schemes: Sequence[str], stragglers: Sequence[int], *, seeds: int, engine: Engine, goal: Goal
) -> Grid:
    """One case for each scheme, number of stragglers and seed; schemes that tolerate nobody have one for each seed.

    Args:
        base: what all runs have in common; seeds count up from its own.
        schemes: names as in ``scheme.name``.
        stragglers: values of ``scheme.stragglers``.

    Raises:
        ConfigError: a scheme does not exist, or nothing is left.
    """
    cases: list[Case] = []
    left_out: list[tuple[str, str]] = []
    base, ignored = _common(base)
    for label, config in _combinations(base, dict.fromkeys(schemes), dict.fromkeys(stragglers)):
        try:
            _check(config, engine)
        except ConfigError as error:
            left_out.append((label, str(error)))
            continue
        cases += [Case(label, reseeded(config, base.seed + place), engine, goal) for place in range(seeds)]
    if not cases:
        reasons = " ".join(f"{label}: {reason}" for label, reason in left_out)
        raise ConfigError(f"none of these runs can be. {reasons}")
    return Grid(tuple(cases), base, tuple(left_out), ignored)


def reseeded(config: RunConfig, seed: int) -> RunConfig:
    """The same run from another seed."""
    return config.model_copy(update={"seed": seed})


def _common(base: RunConfig) -> tuple[RunConfig, tuple[str, ...]]:
    """The configuration without what belongs to one scheme, and the names of that."""
    table = base.model_dump(exclude_unset=True)
    asked = table.pop("scheme", {})
    kept = {key: value for key, value in asked.items() if key in COMMON}
    ignored = [key for key in asked if key not in (*COMMON, "name", "stragglers")]
    return parse(table | {"scheme": kept}), tuple(f"scheme.{key}" for key in ignored)


def _combinations(
    base: RunConfig, schemes: Iterable[str], stragglers: Iterable[int]
) -> Iterator[tuple[str, RunConfig]]:
    for name in schemes:
        if ":" not in name and name not in {*SCHEMES, build.ASYNC}:
            find(build.SCHEME, name, "--schemes")
        if name in ("dgd", build.ASYNC):
            yield name, _with(base, name, 0)
        else:
            yield from ((f"{name} s={count}", _with(base, name, count)) for count in stragglers)


def _with(base: RunConfig, name: str, stragglers: int) -> RunConfig:
    table = base.model_dump(exclude_unset=True)
    table["scheme"] = table.get("scheme", {}) | {"name": name, "stragglers": stragglers}
    return parse(table)


def _check(config: RunConfig, engine: Engine) -> None:
    if engine == "local":
        from pgczmq.app import master

        master.check(config)
    else:
        simulate.check(config)
