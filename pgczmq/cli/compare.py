"""``pgc compare``: a study on the command line, with its progress, table, figures and file."""

import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from pgczmq.bench import compare, study, summary
from pgczmq.bench.study import Case, Engine
from pgczmq.bench.tally import Goal, Row
from pgczmq.cli.common import RUNS, check_writable
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.view import study as view
from pgczmq.view.progress import Steps

COLUMNS = (
    view.Column("seconds_per_step", "s/step"),
    view.Column("relative", "over dgd"),
    view.Column("target_step", "steps to target"),
    view.Column("target_seconds", "s to target"),
    view.Column("target_samples", "samples to target"),
    view.Column("loss", "final loss"),
    view.Column("held_out", "held-out loss"),
    view.Column("metric", "metric"),
    view.Column("recovered", "recovered"),
    view.Column("mean_age", "mean age"),
    view.Column("target_computation", "samples each evaluated to target"),
    view.Column("target_communication", "vectors to target"),
    view.Column("computation", "samples each evaluated"),
    view.Column("communication", "vectors"),
)


def names(text: str) -> list[str]:
    """``a,b,c`` as a list.

    Raises:
        ConfigError: nothing is named.
    """
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise ConfigError(f"--schemes is a list such as dgd,is-sgd,pgc-cr: got {text!r}.")
    return found


def numbers(text: str) -> list[int]:
    """``1,2,3`` as a list.

    Raises:
        ConfigError: something is not a whole number, or nothing is there.
    """
    with suppress(ValueError):
        found = [int(part) for part in text.split(",") if part.strip()]
        if found and min(found) >= 0:
            return found
    raise ConfigError(f"--stragglers is a list of whole numbers such as 1,2,3: got {text!r}.")


def show(
    base: RunConfig,
    *,
    schemes: Sequence[str],
    stragglers: Sequence[int],
    seeds: int,
    engine: Engine,
    target: float,
    json_file: Path | None,
    plot: Path | None,
) -> int:
    """Run the study, print its table, save what is wanted."""
    if not math.isfinite(target):
        raise ConfigError(f"--target is a loss that can be reached, a number: got {target:g}.")
    goal = Goal(None if engine == "timing" else target)
    _check_files(json_file, plot)
    console = Console(stderr=True)
    with console.status("looking at the schemes"):
        grid = compare.grid(base, schemes, stragglers, seeds=seeds, engine=engine, goal=goal)
    if grid.ignored:
        keys = ", ".join(grid.ignored)
        console.print(f"not taken over, as each scheme has its own: {keys}", markup=False, highlight=False)
    for label, reason in grid.left_out:
        console.print(f"left out: {label}: {reason}", markup=False, highlight=False)
    rows = run_all(grid.cases, json_file, console)
    made = summary.summaries(rows)
    title = _title(base, engine, seeds, target)
    shown = Console() if Console().is_terminal else Console(width=160)
    shown.print(title, markup=False, highlight=False)
    for table in view.tables(lines(made), COLUMNS, width=shown.width):
        shown.print(table)
    if json_file is not None:
        about = {"engine": engine, "target": goal.level, "config": grid.base.to_toml(), "left_out": dict(grid.left_out)}
        save(json_file, about, rows, made)
    if plot is not None:
        draw(rows, plot, target=goal.level, title=title)
    return 0


def run_all(cases: Sequence[Case], json_file: Path | None, console: Console) -> list[Row]:
    """All figures in the order of the cases; shows how far it is. Without a file nothing is kept on interruption."""
    done: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as nowhere, Steps(console, "runs", len(cases)) as steps:
        part = part_of(json_file) if json_file is not None else Path(nowhere) / "study.part"
        try:
            for case, row in study.run(cases, part=part, root=RUNS):
                done[case.key] = row
                steps.advance(f"{case.label}, seed {case.config.seed}")
        except KeyboardInterrupt:
            kept = (
                f"The same command goes on from {part}." if json_file is not None else "Nothing is kept without --json."
            )
            console.print(f"{len(done)} of {len(cases)} runs were finished. {kept}", markup=False, soft_wrap=True)
            raise
    return [done[case.key] for case in cases]


def part_of(json_file: Path) -> Path:
    """Where finished runs are kept until the study is complete."""
    return json_file.with_name(json_file.name + ".part")


def save(json_file: Path, about: dict[str, Any], rows: Sequence[Row], made: Sequence[summary.Summary]) -> None:
    """Write the whole study, and remove what was kept for the case that it would be interrupted."""
    whole = about | {"summary": [asdict(one) for one in made], "runs": study.plain(rows)}
    study.write_whole(json_file, json.dumps(whole, indent=1, allow_nan=False) + "\n")
    part_of(json_file).unlink(missing_ok=True)


def lines(made: Sequence[summary.Summary]) -> list[view.Line]:
    """As the view wants them."""
    return [
        view.Line(one.label, one.runs, {**one.figures, **({"relative": one.relative} if one.relative else {})})
        for one in made
    ]


def draw(rows: Sequence[Row], plot: Path, *, target: float | None, title: str) -> None:
    """Write the figures."""
    from pgczmq.view import plots

    def curve(row: Row) -> plots.Curve:
        losses = [math.nan if loss is None else loss for loss in row.curve.loss]
        if row.diverged and losses:
            losses[-1] = math.nan  # where the picture marks it, also when the last losses are only huge
        return plots.Curve(row.curve.steps, row.curve.seconds, losses)

    groups = [
        plots.Group(
            label,
            [curve(row) for row in group if row.curve.steps],
            [row.seconds_per_step for row in group if row.seconds_per_step is not None],
        )
        for label, group in study.by_label(rows).items()
    ]
    plots.comparison(groups, plot, target=target, title=title)


def _check_files(json_file: Path | None, plot: Path | None) -> None:
    if json_file is not None:
        if json_file.is_dir() or not json_file.name:
            raise ConfigError(f"--json names a file: {json_file} is a directory.")
        if json_file == plot:
            raise ConfigError(f"--json and --plot name two files: got {plot} for both.")
        check_writable(part_of(json_file))
    if plot is not None:
        from pgczmq.view.plots import check_picture

        check_picture(plot)


def _title(base: RunConfig, engine: str, seeds: int, target: float) -> str:
    how = {"sim": "simulated", "timing": "simulated, timing only", "local": "real processes"}[engine]
    what = f"delay {base.delay.model}" if engine == "timing" else f"{base.task.name}, target loss {target:g}"
    return f"{what}, {base.workers} workers, {base.steps} steps, {how}; median and range of {seeds} seeds"
