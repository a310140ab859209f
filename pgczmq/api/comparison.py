"""A comparison of schemes: made in a process of its own, then a table, a picture, a file."""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgczmq import config
from pgczmq.bench import compare, study, summary
from pgczmq.bench.study import Engine
from pgczmq.bench.tally import Goal, Row
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.view import study as view
from pgczmq.view.place import WIDTH, Shown, as_text, console
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


@dataclass(frozen=True)
class Comparison:
    """What each scheme came to, seed by seed and over its seeds; ``print`` shows the table of ``pgc compare``.

    Args:
        base: what all runs have in common.
        engine: what they ran on.
        target: the loss whose cost was counted; None without gradients.
        rows: the figures of each run: ``pandas.DataFrame(comparison.rows)``.
        left_out: the combinations that cannot be, each with the reason.
        ignored: keys of the scheme that a comparison does not take over, as each scheme has its own.
    """

    base: RunConfig
    engine: Engine
    target: float | None
    rows: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]

    @property
    def summaries(self) -> list[summary.Summary]:
        """Medians and ranges over the seeds, one for each scheme and number of stragglers."""
        return summary.summaries(self.rows)

    @property
    def title(self) -> str:
        """What was compared, in a line."""
        base = self.base
        how = {"sim": "simulated", "timing": "simulated, timing only", "local": "real processes"}[self.engine]
        target = "" if self.target is None else f", target loss {self.target:g}"
        what = f"delay {base.delay.model}" if self.engine == "timing" else f"{base.task.name}{target}"
        seeds = max(len(group) for group in study.by_label(self.rows).values())
        return (
            f"{what}, {base.workers} workers, {base.steps} steps, {how}; median and range of {seeds} seed"
            f"{'s' if seeds != 1 else ''}"
        )

    def tables(self, width: int) -> list[Shown]:
        """The table, in as many parts as fit into so many characters."""
        lines = [
            view.Line(one.label, one.runs, {**one.figures, **({"relative": one.relative} if one.relative else {})})
            for one in self.summaries
        ]
        return list(view.tables(lines, COLUMNS, width=width))

    def __str__(self) -> str:
        """Title and table."""
        warnings = warnings_of(self.left_out, self.ignored)
        return "\n".join([*warnings, self.title, *map(as_text, self.tables(WIDTH))])

    def plot(self, file: str | Path) -> None:
        """Draw losses over steps and time, and step times.

        Args:
            file: .png, .svg or .pdf.

        Raises:
            ConfigError: it is none of these, or cannot be written.
        """
        from pgczmq.view.pictures import plots

        plots.check_picture(Path(file))
        groups = [
            plots.Group(
                label,
                [_curve(row) for row in group if row.curve.steps],
                [row.seconds_per_step for row in group if row.seconds_per_step is not None],
            )
            for label, group in study.by_label(self.rows).items()
        ]
        plots.comparison(groups, Path(file), target=self.target, title=self.title)

    def save(self, file: Path) -> None:
        """Write everything as JSON, and remove what was kept for the case that the study would be interrupted."""
        whole = {
            "engine": self.engine,
            "target": self.target,
            "config": self.base.to_toml(),
            "left_out": dict(self.left_out),
            "summary": [asdict(one) for one in self.summaries],
            "runs": study.plain(self.rows),
        }
        study.write_whole(file, json.dumps(whole, indent=1, allow_nan=False) + "\n")
        part_of(file).unlink(missing_ok=True)


def _curve(row: Row) -> Any:
    from pgczmq.view.pictures import plots

    losses = [math.nan if loss is None else loss for loss in row.curve.loss]
    if row.diverged and losses:
        losses[-1] = math.nan  # where the picture marks it, also when the last losses are only huge
    return plots.Curve(row.curve.steps, row.curve.seconds, losses)


def part_of(json_file: Path) -> Path:
    """Where finished runs are kept until the study is complete.

    Raises:
        ConfigError: a directory is there already.
    """
    if json_file.is_dir():
        raise ConfigError(f"a study is written to a file: {json_file} is a directory.")
    return json_file.with_name(json_file.name + ".part")


def study_of(
    tell: Callable[[str, tuple[Any, ...]], None],
    *,
    table: Mapping[str, Any],
    schemes: Sequence[str],
    stragglers: Sequence[int],
    seeds: int,
    engine: Engine,
    target: float,
    part: Path | None,
    root: Path,
) -> Comparison:
    """Run a whole study, in this process and others.

    Args:
        tell: hears once what is "planned", and with every run that is "done" which it was: see ``Watch``.
        table: the configuration that all runs have in common, as keys and values that were set.
        schemes, stragglers, seeds, engine: as ``bench.compare.grid`` takes them.
        target: a loss.
        part: where finished runs are kept meanwhile; nowhere if None.
        root: where real runs make their directories.

    Raises:
        ConfigError: a scheme does not exist, or nothing is left to run.
        PgcError: a real run failed.
        KeyboardInterrupt: Ctrl+C; what was finished is kept in ``part``.
    """
    goal = Goal(None if engine == "timing" else target)
    grid = compare.grid(config.parse(table), schemes, stragglers, seeds=seeds, engine=engine, goal=goal)
    tell("planned", (len(grid.cases), grid.left_out, grid.ignored))
    done: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as nowhere:
        for case, row in study.run(grid.cases, part=part or Path(nowhere) / "study.part", root=root):
            done[case.key] = row
            tell("done", (f"{case.label}, seed {case.config.seed}",))
    rows = tuple(done[case.key] for case in grid.cases)
    return Comparison(grid.base, engine, goal.level, rows, grid.left_out, grid.ignored)


class Watch(ExitStack):
    """Shows how far a study is, from what it tells; a context manager.

    Args:
        mode: "none" shows nothing.
    """

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._console = None if mode == "none" else console()
        self._shown: Steps | None = None
        self.total = self.finished = 0

    def see(self, kind: str, what: tuple[Any, ...]) -> None:
        """Take in what a study tells."""
        if kind == "done":
            self.finished += 1
            if self._shown is not None:
                self._shown.advance(*what)
            return
        self.total, left_out, ignored = what
        if self._console is not None:
            for line in warnings_of(left_out, ignored):
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._shown = self.enter_context(Steps(self._console, "runs", self.total))


def warnings_of(left_out: Sequence[tuple[str, str]], ignored: Sequence[str]) -> list[str]:
    """What a study does not do although somebody may expect it, a line each."""
    lines = [f"left out: {label}: {reason}" for label, reason in left_out]
    if ignored:
        lines.insert(0, f"not taken over, as each scheme has its own: {', '.join(ignored)}")
    return lines
