"""The commands around a run: keys and the machine before it, its replay after it."""

from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli import completion
from pgczmq.cli.common import ConfigOption, JsonOption, SetOption, check_writable, guarded, load_config


def init(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="A built-in task, or MODULE:FUNCTION of your own; its file is begun if there is none.",
        ),
    ] = "digits-cnn",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write.", show_default="TASK.toml")
    ] = None,
) -> None:
    """Begin a run: write a configuration for a task, with what people change first explained."""

    def command() -> int:
        from pgczmq.app.starter import begin

        begun = begin(task, out)
        for path in filter(None, (begun.module, begun.config)):
            typer.echo(f"wrote {path}")
        typer.echo("\nNext:")
        for line, purpose in begun.next.items():
            typer.echo(f"  {line:{max(map(len, begun.next))}}  # {purpose}")
        return 0

    guarded(command)


def make_keys(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the key files are; net.keys of a run.")
    ] = Path("pgc-keys"),
    master: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Make a master's keys; this is where its workers reach it."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Make a key for one worker alone, to be shut out alone; may be repeated."),
    ] = None,
) -> None:
    """Make the keys of a master and its workers, and the list of who may join (SECURITY.md)."""

    def command() -> int:
        from pgczmq.cli import keygen

        keygen.make(directory, master, worker or [])
        return 0

    guarded(command)


def doctor(
    config: ConfigOption = None,
    settings: SetOption = None,
    master: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Also check the way to this master.")
    ] = None,
) -> None:
    """Check the installation, this machine, and the way to a master."""

    def command() -> int:
        from pgczmq.cli.doctor import show

        return show(load_config(config, settings), master)

    guarded(command)


def replay(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Directory of a finished run.", autocompletion=completion.run_directories),
    ],
    json: JsonOption = None,
) -> None:
    """Simulate a run from its records: does the simulator decide as the run did?

    Once with the recorded arrivals, which must come out exactly, and once with the recorded durations alone.
    """

    def command() -> int:
        from pgczmq.cli.replay import show

        if json is not None:
            check_writable(json)
        return show(run, json)

    guarded(command)
