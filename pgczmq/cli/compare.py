"""``pgc compare``: a study on the command line, with its progress, table, figures and file."""

import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from pgczmq.api.comparison import Comparison, part_of, warnings_of
from pgczmq.bench import compare, study
from pgczmq.bench.study import Case, Engine
from pgczmq.bench.tally import Goal, Row
from pgczmq.cli.common import RUNS, check_writable
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.view.place import WIDTH
from pgczmq.view.progress import Steps


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
    for line in warnings_of(grid.left_out, grid.ignored):
        console.print(line, markup=False, highlight=False)
    rows = tuple(run_all(grid.cases, json_file, console))
    found = Comparison(grid.base, engine, goal.level, rows, grid.left_out, grid.ignored)
    shown = Console() if Console().is_terminal else Console(width=WIDTH)
    shown.print(found.title, markup=False, highlight=False)
    for table in found.tables(shown.width):
        shown.print(table)
    if json_file is not None:
        found.save(json_file)
    if plot is not None:
        found.plot(plot)
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


def _check_files(json_file: Path | None, plot: Path | None) -> None:
    if json_file is not None:
        if json_file.is_dir() or not json_file.name:
            raise ConfigError(f"--json names a file: {json_file} is a directory.")
        if json_file == plot:
            raise ConfigError(f"--json and --plot name two files: got {plot} for both.")
        check_writable(part_of(json_file))
    if plot is not None:
        from pgczmq.view.pictures.plots import check_picture

        check_picture(plot)
