"""The programs' own parsers, asked whether a documented command line means something to them."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from pgczmq.cli import main, runs

PROGRAMS = ("pgc", "pgc-master", "pgc-worker")
BETWEEN = {"", "&&", "||", "&", "|", ">", ">>", "2>"}
"""Words of the shell behind which another command, or none, begins."""


class NoSuchThing(Exception):
    """The parser's own words for what is wrong with a command line."""


def program(name: str) -> Any:
    """The parser of one of PROGRAMS."""
    if name == "pgc":
        return get_command(main.pgc)
    app = typer.Typer()
    app.command()(runs.master if name == "pgc-master" else runs.worker)
    return get_command(app)


def command_named(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the words after these.

    Raises:
        NoSuchThing: there is no such command.
    """
    command, rest = program(words[0]), words[1:]
    while (inside := _inside(command)) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        if rest[0] not in inside:
            raise NoSuchThing(f"there is no command {rest[0]}; there are {', '.join(inside)}")
        command, rest = inside[rest[0]], rest[1:]
    return command, rest


def _inside(command: Any) -> dict[str, Any]:
    """The commands of a group; Typer may carry a copy of click, so that classes do not tell."""
    found: dict[str, Any] = getattr(command, "commands", {})
    return found


def check(words: list[str]) -> None:
    """Parse a whole command line as the program would, without running it.

    Raises:
        NoSuchThing: an option or a command that is not there, or something is missing.
    """
    command, rest = command_named(words)
    if {"--help", "--version"} & set(rest):
        return
    try:
        command.make_context(words[0], rest)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise NoSuchThing(error.format_message()) from None


def options(command: Any) -> set[str]:
    """Every option of a command, long and short."""
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"--help"}


def all_options() -> set[str]:
    """Every option of every command there is."""
    found: set[str] = set()
    waiting = [program(name) for name in PROGRAMS]
    while waiting:
        command = waiting.pop()
        found |= options(command)
        waiting += _inside(command).values()
    return found


def calls(shell: str) -> Iterator[list[str]]:
    """The calls of PROGRAMS in a line of shell, as words; what comes before and behind them is the shell's."""
    try:
        words = shlex.split(shell, comments=True)
    except ValueError:
        return
    call: list[str] | None = None
    for word in [*words, "&&"]:
        bare = word.removesuffix(";")
        if call is None and bare in PROGRAMS:
            call = [bare]
        elif call is not None and bare not in BETWEEN:
            call.append(bare)
        if call is not None and (bare in BETWEEN or bare != word):
            yield call
            call = None
