"""``pgc task``: its commands, each imported when it is asked for."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pgczmq.cli.common import ConfigOption, SetOption, guarded, load_config

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pgczmq.app.task_check import Examination
    from pgczmq.config import RunConfig

task = typer.Typer(help="Your own model and data.", no_args_is_help=True)


@task.callback()
def _root() -> None:
    """Your own model and data."""


@task.command("check")
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="MODULE:FUNCTION", help="The task.", show_default="task.name of the run")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Try a task for two steps as two workers would; say in words what is wrong, and what it costs.

    Its arguments: --set task.args.width=64. Ends with 1 if something is wrong, else with 0.
    """

    def command() -> int:
        return _check(load_config(config, settings, [f"task.name={name}"] if name else None))

    guarded(command)


def _check(config: "RunConfig") -> int:
    """Print all checks as they are made, then what the task costs; 1 if one found a problem."""
    from rich.console import Console

    from pgczmq.app.task_check import Examination, examine
    from pgczmq.view.task_view import paragraph, summary

    console, begun = Console(), time.monotonic()
    examination, verdicts = Examination(config), []
    with console.status(f"{config.task.name}: two steps of two workers, and another process"):  # on a terminal alone
        for found in examine(examination):
            console.print(paragraph(found.name, found.verdict, found.text))
            verdicts.append(found.verdict)
    if examination.seconds:
        console.print(_costs(examination))
    console.print(summary(verdicts, seconds=time.monotonic() - begun))
    return int("problem" in verdicts)


def _costs(examination: "Examination") -> "RenderableType":
    from statistics import median

    from pgczmq.app import task_memory
    from pgczmq.view.task_view import costs

    config, parameters = examination.config, examination.parameter_count
    rows = task_memory.costs(config, parameters=parameters, minibatch=examination.minibatch_bytes)
    return costs(
        [asdict(row) for row in rows],
        seconds=median(examination.seconds),
        workers=config.workers,
        stragglers=config.scheme.stragglers,
        master=task_memory.master_bytes(config, parameters=parameters),
    )
