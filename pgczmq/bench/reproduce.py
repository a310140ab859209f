"""``pgc reproduce``: where the papers' claims are, what is saved of each, and RESULTS.md made of that alone."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import papers, study, summary
from pgczmq.bench.figures import Figure
from pgczmq.bench.papers import FullTable, Paper
from pgczmq.bench.study import Spread
from pgczmq.bench.tally import Curve, Row
from pgczmq.errors import ConfigError

HOME = Path("configs/papers")
RESULTS = "RESULTS.md"
SHOWN = ("seconds_per_step", "relative", "target_step", "target_seconds", "loss", "metric", "mean_age", "max_alpha")
HEADINGS = {
    "seconds_per_step": "s/step",
    "relative": "over dgd",
    "target_step": "steps to target",
    "target_seconds": "s to target",
    "loss": "final loss",
    "metric": "metric",
    "mean_age": "mean age",
    "max_alpha": "largest weight",
}


def home() -> Path:
    """The directory of the claims, in the clone that is the current directory.

    Raises:
        ConfigError: it is none.
    """
    if not HOME.is_dir():
        raise ConfigError(f"pgc reproduce works in a clone of the project: there is no {HOME} in {Path.cwd()}.")
    return HOME


def names(directory: Path) -> list[str]:
    """What there is to reproduce."""
    return sorted(file.stem for file in directory.glob("*.toml"))


def find(directory: Path, name: str) -> Path:
    """The file of a claim.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in names(directory):
        raise ConfigError(f"there is nothing called {name!r} to reproduce. There are: {', '.join(names(directory))}.")
    return directory / f"{name}.toml"


def check_needs(full: FullTable) -> None:
    """That what the paper's own scale needs is there.

    Raises:
        ConfigError: names the first missing file, and how to get it.
    """
    if full.needs and not Path(full.needs).exists():
        raise ConfigError(f"the paper's own scale needs {full.needs}, which is not in {Path.cwd()}. {full.get}")


def machine() -> str:
    """What the figures were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}"


def result(
    paper: Paper,
    figures: Sequence[Figure],
    rows: Sequence[Row],
    *,
    times: ComputeTimes | None,
    about: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that is saved of a reproduction; the curves of single runs are left out.

    Args:
        about: command, date, machine and scale.
    """
    return {
        "name": paper.name,
        **about,
        "claim": papers.key(paper),
        "times": None if times is None else asdict(times),
        "figures": [asdict(figure) for figure in figures],
        "summary": [asdict(one) for one in summary.summaries(rows)],
        "runs": [asdict(row) | {"curve": asdict(Curve())} for row in rows],
    }


def refreshed(paper: Paper, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the figures that the claim asks for now; as it is if the claim's runs are others by now."""
    if whole.get("claim") != papers.key(paper):
        return dict(whole)
    rows = study.rows_from(whole["runs"])
    figures = papers.theory_figures(paper) if paper.engine == "theory" else papers.figures(paper, study.by_label(rows))
    made = [asdict(one) for one in summary.summaries(rows)]
    return {**whole, "figures": [asdict(figure) for figure in figures], "summary": made}


def save(file: Path, whole: Mapping[str, Any]) -> None:
    """As JSON, a run a line."""
    runs = ",\n".join(json.dumps(run, allow_nan=False) for run in whole["runs"])
    rest = json.dumps({key: value for key, value in whole.items() if key != "runs"}, indent=1, allow_nan=False)
    study.write_whole(file, rest.removesuffix("\n}") + ',\n "runs": [\n' + runs + "\n]}\n")


# ---------------------------------------------------------------- RESULTS.md


def results_page(papers: Sequence[Paper], saved: Mapping[str, Mapping[str, Any]]) -> str:
    """The page: every number that was measured comes from the saved results, the words from the claims.

    Args:
        papers: all claims.
        saved: result by name, of those that have been reproduced.
    """
    parts = [
        "# What the papers report, and what is measured here",
        "Written by `pgc reproduce`; the figures are those of `results/*.json`. Each is the median over seeds, with the"
        " least and the largest in brackets; a ratio is taken seed by seed, before the median. Where some runs have no"
        ' such figure, because they never reached the loss, "n of m" says how many have. *holds*: for how many seeds'
        " the paper's statement is true, runs that never got there counting as infinitely slow; it is empty where the"
        " paper states nothing to test. In `adaptive-theory` points of a grid take the place of seeds.",
    ]
    for paper in papers:
        parts += _section(paper, saved.get(paper.name))
    return "\n\n".join(parts) + "\n"


def _section(paper: Paper, whole: Mapping[str, Any] | None) -> list[str]:
    parts = [f"## {paper.name}: {paper.title}", f"{paper.claim} ({paper.source})"]
    if whole is None:
        return [*parts, f"Not reproduced yet: `pgc reproduce {paper.name}`."]
    parts.append(f"`{whole['command']}`, {whole['date']}, on {whole['machine']}. {whole['scale']}")
    if whole.get("claim") != papers.key(paper):
        parts.append(f"**These are runs of an earlier version of this claim:** `pgc reproduce {paper.name}` again.")
    if whole["times"]:
        parts.append(_times(ComputeTimes(**whole["times"])))
    parts += set_up(paper)
    parts.append(_figures(whole["figures"]))
    if paper.reading:
        parts.append(paper.reading.strip())
    if whole["summary"]:
        parts.append("<details><summary>All runs</summary>\n\n" + _summary(whole["summary"]) + "\n\n</details>")
    return parts


def set_up(paper: Paper) -> list[str]:
    """What is other than in the paper, and what the paper does not give."""
    differs = [f"Other than in the paper: {'; '.join(paper.differs)}."] if paper.differs else []
    chosen = [f"Not given in the paper, chosen here: {'; '.join(paper.chosen)}."] if paper.chosen else []
    return differs + chosen


def _times(times: ComputeTimes) -> str:
    return (
        f"Measured on one thread: a gradient {number(times.evaluation)} s [{number(times.low)}, {number(times.high)}], "
        f"an addition of two vectors {number(times.addition)} s."
    )


def _figures(figures: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| figure | paper | measured | holds |", "|---|---|---|---|"]
    for figure in figures:
        spread = figure["measured"] and Spread(**figure["measured"])
        text = measured(Figure(**{**figure, "measured": spread}))
        lines.append(f"| {figure['says']} | {figure['paper']} | {text} | {figure['verdict']} |")
    return "\n".join(lines)


def _summary(table: Sequence[Mapping[str, Any]]) -> str:
    flat = [dict(one["figures"]) | ({"relative": one["relative"]} if one["relative"] else {}) for one in table]
    shown = [name for name in SHOWN if any(name in figures for figures in flat)]
    lines = ["| case | runs | " + " | ".join(HEADINGS[name] for name in shown) + " |", "|---" * (len(shown) + 2) + "|"]
    for one, figures in zip(table, flat, strict=True):
        cells = [bracketed(Spread(**figures[name]), one["runs"]) if name in figures else "" for name in shown]
        lines.append(f"| {one['label']} | {one['runs']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measured(figure: Figure) -> str:
    """The figure's value, or that there is none."""
    spread = figure.measured
    if spread is None:
        return f"none of {figure.asked}"
    return bracketed(spread, figure.asked)


def bracketed(spread: Spread, asked: int) -> str:
    """``median [low, high]``, the brackets only where there is a spread, and of how many unless all are there."""
    text = number(spread.median)
    if spread.low != spread.high:
        text += f" [{number(spread.low)}, {number(spread.high)}]"
    return text if spread.count == asked else f"{text} ({spread.count} of {asked})"


def number(value: float) -> str:
    """With four significant digits."""
    return f"{value:.4g}"
