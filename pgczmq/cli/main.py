"""``pgc``, ``pgc-master`` and ``pgc-worker``. Imports of the program itself are late, so that help is quick."""

from collections.abc import Callable

import typer

from pgczmq.cli import around, runs, studies
from pgczmq.cli.bench import bench
from pgczmq.cli.common import VersionOption
from pgczmq.cli.torture import soak_run, torture

pgc = typer.Typer(
    help="Train PyTorch models on workers that are late or vanish.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
pgc.add_typer(bench, name="bench")
pgc.add_typer(torture, name="torture")
COMMANDS: dict[str, Callable[..., None]] = {
    "local": runs.local,
    "sim": runs.sim,
    "reproduce": studies.reproduce_claim,
    "compare": studies.compare_schemes,
    "explain": studies.explain,
    "theory": studies.theory,
    "keygen": around.make_keys,
    "doctor": around.doctor,
    "replay": around.replay,
    "soak": soak_run,
    "report": around.report,
}
for _name, _command in COMMANDS.items():
    pgc.command(_name)(_command)


def main() -> None:
    """Entry point of ``pgc``."""
    pgc()


def master_main() -> None:
    """Entry point of ``pgc-master``."""
    _single(runs.master, "pgc-master")


def worker_main() -> None:
    """Entry point of ``pgc-worker``."""
    _single(runs.worker, "pgc-worker")


def _single(command: object, name: str) -> None:
    app = typer.Typer(pretty_exceptions_show_locals=False, add_completion=False)
    app.command()(command)  # type: ignore[type-var]
    app(prog_name=name)


@pgc.callback()
def _root(version: VersionOption = False) -> None:
    """Train PyTorch models on workers that are late or vanish."""
