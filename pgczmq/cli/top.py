"""``pgc top``: a run on this terminal, whoever runs it."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgczmq.cli.common import RUNS, guarded
from pgczmq.cli.completion import run_directories

if TYPE_CHECKING:
    from pgczmq.app.top import Watched
    from pgczmq.picture import Source

FIRST_SECONDS = 2.0
"""So long the terminal is left as it is while there is nothing to show; a mistake is seen by then."""
PLAIN_SECONDS = 1.0
WAIT_SECONDS = 10.0
"""A run that was begun a moment ago leaves no trace before its program is loaded."""
LOOK_SECONDS = 0.25


def top(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDR|RUN]",
            autocompletion=run_directories,
            help="A master's address, tcp://HOST:PORT, or a run directory.",
            show_default="PGC_MASTER, pgc-connect.json or this host, else the newest run that goes on in runs/",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="TIMES",
            min=0.001,
            max=1e6,
            help="Play a recorded run from its beginning, so many times as fast as it went.",
            show_default="as it is now, or was in the end",
        ),
    ] = None,
) -> None:
    """Watch a run from another terminal or machine; any number of viewers cost it nothing.

    Without a terminal the same is told in lines, until the run is over.
    """

    def command() -> int:
        from rich.console import Console

        from pgczmq.view.live.screen import can_draw, show

        console = Console()
        try:
            with _found(run, speed) as looking:
                looking.news.wait(FIRST_SECONDS)
                if looking.failure is not None:
                    raise looking.failure
                if can_draw(console):
                    show(looking.seen, console)
                else:
                    _tell(looking.seen)
        except KeyboardInterrupt:  # a way to leave, as good as any
            return 130
        return 0

    guarded(command)


def _found(run: str | None, speed: float | None) -> "Watched":
    """The run that is meant; one that nobody named may take a moment to begin."""
    from pgczmq.app.top import NothingGoesOn, watched

    until: float | None = None
    while True:
        try:
            return watched(run, speed, environment=os.environ, directory=Path.cwd(), root=RUNS)
        except NothingGoesOn:
            if until is None:
                typer.echo(f"no run goes on here yet; waiting {WAIT_SECONDS:g} s for one to begin", err=True)
                until = time.monotonic() + WAIT_SECONDS
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_SECONDS)


def _tell(source: "Source") -> None:
    """Print what is new, until the run is over."""
    from pgczmq.view.live.plain import news

    before = None
    while before is None or not before.is_over:
        if before is not None:
            time.sleep(PLAIN_SECONDS)
        seen = source()
        for line in news(before, seen):
            print(line, flush=True)
        before = seen
