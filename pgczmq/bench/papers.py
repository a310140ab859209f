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

import hashlib
import itertools
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgczmq.app import simulate
from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import theory_study
from pgczmq.bench.figures import Figure, figure, values
from pgczmq.bench.figures import check as check_figure
from pgczmq.bench.study import Case
from pgczmq.bench.tally import Goal, Row
from pgczmq.config import RunConfig, parse
from pgczmq.errors import ConfigError


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GoalTable(_Table):
    """As ``tally.Goal``."""

    level: float | None = None
    also: tuple[float, ...] = ()
    of: Literal["loss", "metric"] = "loss"
    horizons: tuple[float, ...] = ()
    until: Literal["end", "goal"] = "end"

    @property
    def plain(self) -> Goal:
        """The same as a value of the tally's own."""
        return Goal(**self.model_dump())


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
    engine: Literal["sim", "timing"] | None = None


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
    goal: GoalTable = GoalTable()
    run: dict[str, Any] = {}
    measure: MeasureTable | None = None
    cases: tuple[Cases, ...] = ()
    figures: tuple[FigureTable, ...] = ()
    full: FullTable = FullTable()


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
        "cases": full.cases or tuple(_without_seeds(block, full.seeds) for block in paper.cases),
    }
    return paper.model_copy(update=changed)


def _without_seeds(block: Cases, seeds: int | None) -> Cases:
    """The paper's number of runs is that of all cases."""
    return block if seeds is None else block.model_copy(update={"seeds": None})


# ---------------------------------------------------------------- runs


def cases(paper: Paper, times: ComputeTimes | None = None) -> list[Case]:
    """All runs.

    Args:
        times: measured, where the paper has ``[measure]``.

    Raises:
        ConfigError: a run cannot be.
    """
    made: list[Case] = []
    for block in paper.cases:
        for label, changes in _combinations(block):
            table = merged(paper.run, changes)
            if times is not None:
                table = merged(table, {"sim": times.for_run(parse(table))})
            engine = block.engine or ("timing" if paper.engine == "timing" else "sim")
            for seed in range(1, (block.seeds or paper.seeds) + 1):
                made.append(Case(label, parse(table | {"seed": seed}), engine, paper.goal.plain))
    return made


def measured_config(table: MeasureTable) -> RunConfig:
    """The run whose gradients are measured."""
    task = {"name": table.task, "batch_size": table.batch_size, "args": table.args}
    return parse({"workers": 4, "steps": 1, "task": task, "scheme": {"name": "dgd"}, "eval": {"every": 0}})


def _combinations(block: Cases) -> Iterator[tuple[str, dict[str, Any]]]:
    axes = {key: value if isinstance(value, list) else [value] for key, value in block.set.items()}
    for point in itertools.product(*axes.values()):
        chosen = dict(zip(axes, point, strict=True))
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


def key(paper: Paper) -> str:
    """What the runs follow from, in short: results of another key are those of an earlier version of the claim."""
    runs = paper.model_dump(mode="json", include={"seeds", "engine", "goal", "run", "measure", "cases"})
    return hashlib.sha256(json.dumps(runs).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- figures


def figures(paper: Paper, rows: Mapping[str, Sequence[Row]]) -> list[Figure]:
    """Each figure, measured; ``check`` says beforehand whether all can be.

    Args:
        rows: the runs of each case.
    """
    return [
        figure(
            line.says,
            line.paper,
            line.holds,
            values(line.measure, paper.goal.plain, rows[line.case], rows[line.over] if line.over else None),
        )
        for line in lines(paper)
    ]


def theory_figures(paper: Paper) -> list[Figure]:
    """The same for a claim about formulas: values of a figure are those of all points of a grid."""
    settings = {block.label: theory_study.Setting(**block.set) for block in paper.cases}
    grids = {label: list(theory_study.cells(setting)) for label, setting in settings.items()}
    return [figure(line.says, line.paper, line.holds, ratios(grids[line.case], line.measure)) for line in lines(paper)]


def ratios(cells: Sequence[theory_study.Cell], measure: str) -> list[float | None]:
    """One ratio at every point, or at those only where communication costs least or most beside computation.

    Raises:
        ConfigError: there is no such measure.
    """
    ratio, _, where = measure.partition(" where communication is ")
    weights = [cell.rate * cell.communication_time for cell in cells]
    chosen = {"": weights, "cheapest": [min(weights)], "dearest": [max(weights)]}.get(where)
    if chosen is None or ratio not in ("seconds", "computation", "communication"):
        raise ConfigError(
            "a ratio is of seconds, computation or communication, and may be that "
            f'"where communication is cheapest" or "dearest": got {measure!r}.'
        )
    return [getattr(cell, ratio) for cell, weight in zip(cells, weights, strict=True) if weight in chosen]


def lines(paper: Paper) -> Iterator[FigureTable]:
    """Every figure with its placeholders filled in."""
    for line in paper.figures:
        for chosen in itertools.product(*line.each.values()):
            filled = dict(zip(line.each, chosen, strict=True))
            texts = {key: getattr(line, key).format(**filled) for key in ("says", "paper", "case", "over")}
            yield line.model_copy(update=texts)


def check(paper: Paper, made: Sequence[Case]) -> None:
    """That every run and every figure can be, before anything runs.

    Raises:
        ConfigError: a run cannot be, two have one name, or a figure's case, measure or condition does not exist.
    """
    first = {case.label: case.config for case in reversed(made)}
    for config in first.values():
        simulate.check(config)
    ((name, count),) = Counter((case.label, case.config.seed) for case in made).most_common(1)
    if count > 1:
        raise ConfigError(f"{paper.name}: {count} runs are called {name[0]!r} with seed {name[1]}.")
    for line in lines(paper):
        for label in filter(None, (line.case, line.over)):
            if label not in first:
                raise ConfigError(f"{paper.name}: no runs are called {label!r}. There are: {', '.join(sorted(first))}.")
        check_figure(line.measure, line.holds, paper.goal.plain)
