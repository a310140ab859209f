"""``pgc``, ``pgc-master`` and ``pgc-worker``. Imports of the program itself are late, so that help is quick."""

from collections.abc import Callable

import typer

from pgczmq.cli import after, around, runs, studies
from pgczmq.cli.bench import bench
from pgczmq.cli.common import Command, VersionOption
from pgczmq.cli.task import task
from pgczmq.cli.top import top
from pgczmq.cli.torture import soak_run, torture

pgc = typer.Typer(
    help="Train PyTorch models on workers that are late or vanish.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "init": around.init,
    "task": task,
    "doctor": around.doctor,
    "local": runs.local,
    "top": top,
    "runs": after.list_runs,
    "plot": after.plot,
    "report": after.report,
    "export": after.export,
    "sim": runs.sim,
    "explain": studies.explain,
    "compare": studies.compare_schemes,
    "theory": studies.theory,
    "reproduce": studies.reproduce_claim,
    "replay": around.replay,
    "keygen": around.make_keys,
    "soak": soak_run,
    "torture": torture,
    "bench": bench,
}
"""In the order in which a newcomer meets them; groups come last all the same."""
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        pgc.add_typer(_command, name=_name)
    else:
        pgc.command(_name, cls=Command)(_command)


def main() -> None:
    """Entry point of ``pgc``."""
    pgc()


def master_main() -> None:
    """Entry point of ``pgc-master``."""
    single(runs.master)(prog_name="pgc-master")


def worker_main() -> None:
    """Entry point of ``pgc-worker``."""
    single(runs.worker)(prog_name="pgc-worker")


def single(command: Callable[..., None]) -> typer.Typer:
    """A program of one command."""
    app = typer.Typer(pretty_exceptions_show_locals=False)
    app.command(cls=Command)(command)
    return app


@pgc.callback()
def _root(version: VersionOption = False) -> None:
    """Train PyTorch models on workers that are late or vanish."""
