"""A paper's claim as a file: the runs that test it, the figures they come to, and what the paper says of each.

    title, source, claim     what is reproduced, and where it is said
    differs, chosen          what is other than in the paper, and what the paper does not give
    reading                  what to make of the figures, written after they were seen; holds none itself
    seeds, engine, [goal]    of every run; engine is "sim" or "timing"
    [run]                    what all runs have in common
    [measure]                the task whose times are measured here, single-threaded, and then simulated
    [[cases]]                set = {key = [values]}: all combinations
    [[figures]]              a figure of a case, perhaps over that of another case: medians over seeds, paired
    [full]                   what changes at the paper's own scale

In the text of a figure ``{name}`` stands for each of the values that ``each`` lists for it.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import theory_study
from pgczmq.bench.study import Case, Spread, spread
from pgczmq.bench.summary import FIGURES
from pgczmq.bench.tally import Goal, Row
from pgczmq.config import RunConfig, parse
from pgczmq.errors import ConfigError

Wanted = tuple[Literal["<", ">", "~"], float, float]
"""What a value should be: below or above a level, or within a tolerance of it."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GoalTable(_Table):
    """As ``tally.Goal``."""

    level: float | None = None
    also: tuple[float, ...] = ()
    of: Literal["loss", "metric"] = "loss"
    horizons: tuple[float, ...] = ()
    until: Literal["end", "goal"] = "end"


class MeasureTable(_Table):
    """Whose gradients are measured."""

    task: str
    batch_size: int
    args: dict[str, Any] = {}
    repeats: int = 15


class Cases(_Table):
    """Runs: all combinations of the values of each key; ``label`` stands before them instead of the scheme's name."""

    set: dict[str, Any]
    label: str = ""
    seeds: int | None = None


class FigureTable(_Table):
    """One line of the comparison with the paper."""

    says: str
    paper: str
    case: str
    measure: str
    over: str = ""
    holds: str = ""
    each: dict[str, list[Any]] = {}


class FullTable(_Table):
    """The paper's own scale."""

    seeds: int | None = None
    needs: str = ""
    get: str = ""
    run: dict[str, Any] = {}
    goal: GoalTable | None = None
    measure: MeasureTable | None = None
    cases: tuple[Cases, ...] = ()


class Paper(_Table):
    """One row of the table in schemes.md section 6."""

    name: str
    title: str
    source: str
    claim: str
    scale: str
    differs: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    reading: str = ""
    seeds: int = Field(5, ge=1)
    engine: Literal["sim", "timing", "theory"] = "sim"
    plot: str = ""
    goal: GoalTable = GoalTable()
    run: dict[str, Any] = {}
    measure: MeasureTable | None = None
    cases: tuple[Cases, ...] = ()
    figures: tuple[FigureTable, ...] = ()
    full: FullTable = FullTable()


@dataclass(frozen=True)
class Figure:
    """A measured figure beside the paper's.

    Args:
        verdict: how often what the paper says holds: "yes", "no", "n of m"; empty where it says nothing that a number
            could break.
    """

    says: str
    paper: str
    measured: Spread | None
    verdict: str


# ---------------------------------------------------------------- reading


def read(file: Path) -> Paper:
    """The claim in a file.

    Raises:
        ConfigError: it cannot be read, or does not have this form.
    """
    try:
        with file.open("rb") as open_file:
            return Paper.model_validate({"name": file.stem, **tomllib.load(open_file)})
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"{file} is not a paper's claim: {error}") from None


def at_full_scale(paper: Paper) -> Paper:
    """The paper's own scale instead of that for two cores."""
    full = paper.full
    changed = {
        "run": merged(paper.run, full.run),
        "seeds": full.seeds or paper.seeds,
        "goal": full.goal or paper.goal,
        "measure": full.measure or paper.measure,
        "cases": full.cases or paper.cases,
    }
    return paper.model_copy(update=changed)


# ---------------------------------------------------------------- runs


def cases(paper: Paper, times: ComputeTimes | None = None) -> list[Case]:
    """All runs.

    Args:
        times: measured, where the paper has ``[measure]``.

    Raises:
        ConfigError: a run cannot be.
    """
    goal = Goal(**paper.goal.model_dump())
    made: list[Case] = []
    for block in paper.cases:
        for label, changes in _combinations(block):
            table = merged(paper.run, changes)
            if times is not None:
                table = merged(table, {"sim": times.for_run(parse(table))})
            for seed in range(1, (block.seeds or paper.seeds) + 1):
                made.append(Case(label, parse(table | {"seed": seed}), _engine(paper), goal))
    return made


def measured_config(table: MeasureTable) -> RunConfig:
    """The run whose gradients are measured."""
    task = {"name": table.task, "batch_size": table.batch_size, "args": table.args}
    return parse({"workers": 4, "steps": 1, "task": task, "scheme": {"name": "dgd"}, "eval": {"every": 0}})


def _engine(paper: Paper) -> Literal["sim", "timing"]:
    return "timing" if paper.engine == "timing" else "sim"


def _combinations(block: Cases) -> Iterator[tuple[str, dict[str, Any]]]:
    axes = {key: value if isinstance(value, list) else [value] for key, value in block.set.items()}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        parts = [] if block.label else [str(chosen.get("scheme.name", ""))]
        parts += [f"{_short(key)}={value}" for key, value in chosen.items() if len(axes[key]) > 1 and not _is_name(key)]
        yield " ".join(filter(None, [block.label, *parts])), nested(chosen)


def _is_name(key: str) -> bool:
    return key == "scheme.name"


def _short(key: str) -> str:
    return {"scheme.stragglers": "s"}.get(key, key.rpartition(".")[2])


def nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    table: dict[str, Any] = {}
    for key, value in dotted.items():
        *sections, last = key.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return table


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The first table with what the second one changes, tables inside tables too."""
    table = dict(one)
    for key, value in other.items():
        inner = table.get(key)
        table[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return table


# ---------------------------------------------------------------- figures


def figures(paper: Paper, rows: Mapping[str, Sequence[Row]]) -> list[Figure]:
    """Each figure, measured; ``check`` says beforehand whether all can be.

    Args:
        rows: the runs of each case.
    """
    return [figure(line, values(paper, line, rows)) for line in lines(paper)]


def theory_figures(paper: Paper) -> list[Figure]:
    """The same for a claim about formulas: values of a figure are those of all points of a grid."""
    settings = {block.label: theory_study.Setting(**block.set) for block in paper.cases}
    grids = {label: list(theory_study.cells(setting)) for label, setting in settings.items()}
    return [figure(line, ratios(paper, grids[line.case], line.measure)) for line in lines(paper)]


def ratios(paper: Paper, cells: Sequence[theory_study.Cell], measure: str) -> list[float | None]:
    """One ratio at every point, or at those only where communication costs least or most beside computation."""
    ratio, _, where = measure.partition(" where communication is ")
    weights = [cell.rate * cell.communication_time for cell in cells]
    chosen = {"": weights, "cheapest": [min(weights)], "dearest": [max(weights)]}.get(where)
    if chosen is None or ratio not in ("seconds", "computation", "communication"):
        raise ConfigError(
            f"{paper.name}: a ratio is of seconds, computation or communication, and may be that "
            f'"where communication is cheapest" or "dearest": got {measure!r}.'
        )
    return [getattr(cell, ratio) for cell, weight in zip(cells, weights, strict=True) if weight in chosen]


def lines(paper: Paper) -> Iterator[FigureTable]:
    """Every figure with its placeholders filled in."""
    for line in paper.figures:
        for chosen in itertools.product(*line.each.values()):
            filled = dict(zip(line.each, chosen, strict=True))
            texts = {key: getattr(line, key).format(**filled) for key in ("says", "paper", "case", "over", "holds")}
            yield line.model_copy(update=texts)


def figure(line: FigureTable, found: Sequence[float | None]) -> Figure:
    """A figure from its values, one a seed or a cell."""
    return Figure(line.says, line.paper, spread(found), _verdict(line.holds, found))


def values(paper: Paper, line: FigureTable, rows: Mapping[str, Sequence[Row]]) -> list[float | None]:
    """The figure's value for each seed, over the other case's of the same seed where there is one."""
    found = _measured(paper, line.measure, _rows(paper, line.case, rows))
    if not line.over:
        return list(found.values())
    others = _measured(paper, line.measure, _rows(paper, line.over, rows))
    return [_ratio(found[seed], others[seed]) for seed in found if seed in others]


def _measured(paper: Paper, measure: str, rows: Sequence[Row]) -> dict[int, float | None]:
    if measure.startswith("metric at "):
        place = _place(paper, "horizons", float(measure.removeprefix("metric at ")))
        return {row.seed: row.at[place] for row in rows}
    if match := re.fullmatch(r"(seconds|computation|communication) to (\S+)", measure):
        return {row.seed: _spent(row, match[1], _place(paper, "also", float(match[2]))) for row in rows}
    if measure not in FIGURES:
        raise ConfigError(f"{paper.name}: there is no figure {measure!r}: there are {', '.join(FIGURES)}.")
    return {row.seed: FIGURES[measure](row) for row in rows}


def _place(paper: Paper, name: str, value: float) -> int:
    there: tuple[float, ...] = getattr(paper.goal, name)
    if value not in there:
        raise ConfigError(f"{paper.name}: goal.{name} lacks {value:g}, which a figure reads.")
    return there.index(value)


def _spent(row: Row, what: str, place: int) -> float | None:
    spent = row.also[place]
    return None if spent is None else float(getattr(spent, what))


def _rows(paper: Paper, label: str, rows: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    if label not in rows:
        raise ConfigError(f"{paper.name}: a figure is of the case {label!r}. Cases: {', '.join(rows)}.")
    return rows[label]


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _verdict(holds: str, found: Sequence[float | None]) -> str:
    if not holds:
        return ""
    kind, level, tolerance = wanted(holds)
    there = [value for value in found if value is not None]
    met = {
        "<": [value < level for value in there],
        ">": [value > level for value in there],
        "~": [abs(value - level) <= tolerance for value in there],
    }[kind]
    if there and len(there) == len(found) and all(met):
        return "yes"
    return "no" if not any(met) else f"{sum(met)} of {len(found)}"


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


def check(paper: Paper, made: Sequence[Case]) -> None:
    """That every figure can be had, before anything runs.

    Raises:
        ConfigError: a figure's case, measure or condition does not exist.
    """
    labels = {case.label for case in made}
    for line in lines(paper):
        for label in filter(None, (line.case, line.over)):
            if label not in labels:
                raise ConfigError(
                    f"{paper.name}: no runs are called {label!r}. There are: {', '.join(sorted(labels))}."
                )
        _measured(paper, line.measure, ())
        if line.holds:
            wanted(line.holds)
