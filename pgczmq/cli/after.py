"""The commands for runs that have been: what there is, pictures, a page, and files for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli.common import RUNS, guarded
from pgczmq.cli.completion import run_directories

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run directories.", autocompletion=run_directories)
]


class Kind(StrEnum):
    """What ``pgc export`` makes."""

    CSV = "csv"
    TENSORBOARD = "tensorboard"
    TRACE = "trace"


def list_runs(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Run directories, or files written by --json.",
            show_default="all in ./runs",
            autocompletion=run_directories,
        ),
    ] = None,
) -> None:
    """List runs, the newest last: how it is with each, and what came of it.

    A run is "running" as long as a process holds the lock of its directory. Without that and without a result it has
    "died"; "interrupted" and "failed" are what it said itself.
    """

    def command() -> int:
        from pgczmq.cli.listing import show

        return show(runs or [], RUNS)

    guarded(command)


def plot(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png|.svg|.pdf",
            help="Where the picture goes.",
            show_default="plot.png in the run directory; of several runs, runs-plot.png here",
        ),
    ] = None,
) -> None:
    """Draw what runs did: losses, time per step, ages, k, and who answered when."""

    def command() -> int:
        from pgczmq.cli.pictures import draw

        return draw(runs, out)

    guarded(command)


def report(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Where the page goes.",
            show_default="report.html in the run directory; of several runs, runs-report.html here",
        ),
    ] = None,
) -> None:
    """Write one HTML page about runs, for any browser: results, pictures, workers, events, configuration."""

    def command() -> int:
        from pgczmq.cli.page import write

        return write(runs, out)

    guarded(command)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", autocompletion=run_directories)],
    to: Annotated[Kind, typer.Option(help="Tables, TensorBoard's events, or a trace for ui.perfetto.dev.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Folder for csv and tensorboard, file for trace.",
            show_default="csv, tensorboard or trace.json in the run directory",
        ),
    ] = None,
) -> None:
    """Write a run's records for other programs."""

    def command() -> int:
        from pgczmq.cli.export import write

        return write(run, to.value, out)

    guarded(command)
