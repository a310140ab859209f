"""What all commands share: options, the last word on errors, and leaving the process."""

import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand

from pgczmq.cli import completion

if TYPE_CHECKING:
    from rich.console import Console

    from pgczmq.config import RunConfig
    from pgczmq.runlog import Result, Sink

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="TOML file that describes the run.",
        show_default="the defaults",
        autocompletion=completion.toml_files,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the file, e.g. scheme.name=dgd. May be repeated.",
        autocompletion=completion.settings,
    ),
]
JsonOption = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result there as JSON.")]
ResumeOption = Annotated[
    str,
    typer.Option(
        "--resume",
        metavar="auto|PATH|never",
        help="Go on with a run directory or a checkpoint; auto: with what was interrupted, else begin.",
    ),
]
UiOption = Annotated[
    Literal["auto", "live", "plain", "none"] | None,
    typer.Option("--ui", help="What to show meanwhile: a dashboard, lines, or nothing.", show_default="ui.mode"),
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pgczmq {version('pgczmq')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version, show_default=False)
]

RUNS = Path("runs")


class Command(TyperCommand):
    """A command that says how a configuration is named where a file stands by itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # a context of click's, or of typer's copy of it
        """As click does, with a hint in what it complains of."""
        files = [word for word in args if word.endswith(".toml")]
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            said = getattr(error, "message", "")
            if files and "unexpected extra argument" in said:
                error.message = f"{said}. A configuration is named with --config {files[0]}"  # type: ignore[attr-defined]
            raise


def guarded(command: Callable[[], int]) -> NoReturn:
    """Run a command to its exit code; an error of this program is a sentence, not a traceback.

    From here on the first Ctrl+C lets the command put things in order, and the second ends it at once.
    Leaves the process at once at its end, since a compute thread may still be busy.
    """
    from pgczmq.errors import PgcError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that this terminal cannot show is no reason to end
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, _interrupt)
        code = command()
    except PgcError as error:
        say_error(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        say_error("interrupted")
        code = 130
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        code = 141  # nobody reads what is printed; rich says so with an exit of its own
    except Exception as error:
        code = _failed(error)
    leave(code)


def _failed(error: Exception) -> int:
    """Say what no part of the program expected; returns the exit code."""
    if isinstance(error, ModuleNotFoundError) and not (error.name or "pgczmq").startswith("pgczmq"):
        say_error(f"a package is not installed: {error}. Run pip install pgczmq; pgc doctor looks for all it needs.")
        return 2
    logging.getLogger("pgczmq").exception("this is a defect of pgczmq; please report it with what follows")
    return 70


def nothing_to_put_in_order() -> None:
    """For a command that hears signals itself once there is something: until then Ctrl+C ends it at once."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _leave_at_once)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _leave_at_once)
    raise KeyboardInterrupt


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    _tidy()
    os._exit(128 + number)


def _tidy() -> None:
    """Give the terminal back and end the helper process, if the program has come that far."""
    processes = sys.modules.get("pgczmq.app.processes")
    for name in ("give_terminal_back", "end_helper"):
        getattr(processes, name, bool)()  # it may be loaded in part only


def leave(code: int) -> NoReturn:
    """End the process without waiting for threads."""
    _tidy()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.close(stream.fileno())
    logging.shutdown()
    os._exit(code)


def say_error(text: str) -> None:
    """The sentence that tells why the exit code is what it is."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def load_config(
    path: Path | None, settings: list[str] | None, extra: list[str] | None = None, ui: str | None = None
) -> "RunConfig":
    """The run that the options describe; ``ui`` is said last and counts."""
    from pgczmq import config

    return config.load(path, [*(extra or []), *(settings or []), *([f"ui.mode={ui}"] if ui else [])])


def log_to(console: "Console") -> None:
    """Send the program's log to the console that also shows the run, so that neither tears the other."""
    from rich.logging import RichHandler

    from pgczmq.errors import ConfigError

    level = os.environ.get("PGC_LOG_LEVEL", "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise ConfigError(f"PGC_LOG_LEVEL is one of DEBUG, INFO, WARNING, ERROR: got {level}.")
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, markup=False)
        logging.basicConfig(level=level, format="%(message)s", datefmt="%X", handlers=[handler], force=True)
    else:
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", force=True)


def check_writable(file: Path, option: str = "--json") -> None:
    """Better before the run than after it."""
    from pgczmq.errors import ConfigError

    try:
        file.open("a", encoding="utf-8").close()
    except OSError as error:
        raise ConfigError(f"{option} needs a file that can be written: {file}: {error.strerror}.") from None


def watch(mode: str, run: Callable[["Sink"], "Result"], json_file: Path | None) -> int:
    """Run something with a view of it on the terminal; print and write its result; returns its exit code."""
    from rich.console import Console

    from pgczmq.app.processes import before_leaving
    from pgczmq.rundirs import look
    from pgczmq.runlog import to_json
    from pgczmq.view.live.screen import open_view
    from pgczmq.view.live.terminal import give_back
    from pgczmq.view.tables import go_on_with, result_table

    console = Console(stderr=True)
    log_to(console)
    if json_file is not None:
        check_writable(json_file)
    before_leaving.append(give_back)
    with open_view(mode, console) as sink:
        result = run(sink)
    if json_file is not None:
        json_file.write_text(to_json(result) + "\n", encoding="utf-8")
    if mode != "none":
        Console().print(result_table(result))
        if result.exit and (further := go_on_with(look(Path(result.run)))):
            Console().print(further, markup=False, highlight=False, soft_wrap=True)
    if result.exit not in (0, 75):
        say_error(result.reason)
    return result.exit
