"""Figures of runs beside what a paper says of them: one value a seed, ratios seed by seed, and how often it holds."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgczmq.bench.study import Spread, spread
from pgczmq.bench.summary import FIGURES
from pgczmq.bench.tally import Goal, Row
from pgczmq.errors import ConfigError

Wanted = tuple[Literal["<", ">", "~"], float, float]
"""What a value should be: below or above a level, or within a tolerance of it."""

NEVER, NEVER_OTHER = math.inf, -math.inf
"""Ratios to the time of a run that did not get there: of the case itself, or of what it is compared with."""


@dataclass(frozen=True)
class Figure:
    """A measured figure beside the paper's.

    Args:
        measured: over the values that there are.
        asked: how many values there should be.
        verdict: for how many of them what the paper says holds, "4 of 5"; empty where nothing is to hold.
    """

    says: str
    paper: str
    measured: Spread | None
    asked: int
    verdict: str


def figure(says: str, paper: str, holds: str, values: Sequence[float | None]) -> Figure:
    """A figure from its values: one a seed, or one a point of a grid.

    Args:
        values: NEVER and NEVER_OTHER count for the verdict alone; None where neither run got there.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    return Figure(says, paper, spread(known), len(values), _verdict(holds, values))


def values(measure: str, goal: Goal, rows: Sequence[Row], others: Sequence[Row] | None) -> list[float | None]:
    """A measure of each run, over that of the other case's run of the same seed where there is another case."""
    found = _by_seed(measure, goal, rows)
    if others is None:
        return list(found.values())
    references = _by_seed(measure, goal, others)
    return [_ratio(found[seed], references[seed]) for seed in found if seed in references]


def check(measure: str, holds: str, goal: Goal) -> None:
    """That there is such a measure, and that ``holds`` says something.

    Raises:
        ConfigError: otherwise.
    """
    _by_seed(measure, goal, ())
    if holds:
        wanted(holds)


def _by_seed(measure: str, goal: Goal, rows: Sequence[Row]) -> dict[int, float | None]:
    if measure.startswith("metric at "):
        place = _place("horizons", goal.horizons, measure.removeprefix("metric at "))
        return {row.seed: row.at[place] for row in rows}
    if match := re.fullmatch(r"(seconds|computation|communication) to (\S+)", measure):
        place = _place("also", goal.also, match[2])
        return {row.seed: _spent(row, match[1], place) for row in rows}
    if measure not in FIGURES:
        raise ConfigError(f"there is no figure {measure!r}: there are {', '.join(FIGURES)}.")
    return {row.seed: FIGURES[measure](row) for row in rows}


def _place(name: str, there: Sequence[float], text: str) -> int:
    value = float(text)
    if value not in there:
        raise ConfigError(f"goal.{name} lacks {value:g}, which a figure reads.")
    return there.index(value)


def _spent(row: Row, what: str, place: int) -> float | None:
    spent = row.also[place]
    return None if spent is None else float(getattr(spent, what))


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None if one is other else NEVER if one is None else NEVER_OTHER
    return one / other if other else None


def _verdict(holds: str, found: Sequence[float | None]) -> str:
    if not holds:
        return ""
    kind, level, tolerance = wanted(holds)
    met = 0
    for value in found:
        if value is not None:
            below, above, near = value < level, value > level, abs(value - level) <= tolerance
            met += {"<": below, ">": above, "~": near}[kind]
    return f"{met} of {len(found)}"


def wanted(holds: str) -> Wanted:
    """``< 1``, ``> 1`` or ``1 +- 0.05``.

    Raises:
        ConfigError: it is none of these.
    """
    if match := re.fullmatch(r"([<>])\s*(\S+)", holds.strip()):
        return ("<" if match[1] == "<" else ">"), float(match[2]), 0.0
    if match := re.fullmatch(r"(\S+)\s*\+-\s*(\S+)", holds.strip()):
        return "~", float(match[1]), float(match[2])
    raise ConfigError(f'holds is written "< 1", "> 1" or "1 +- 0.05": got {holds!r}.')
