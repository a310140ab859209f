"""``pgc init``: a configuration to begin with, in words, for a built-in task or one of the user's own."""

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pgczmq.app.skeleton import skeleton
from pgczmq.core.schemes import SCHEMES
from pgczmq.described import Key, described
from pgczmq.errors import ConfigError
from pgczmq.extensions import find, load_function
from pgczmq.train import plain

FIRST_CHANGED = (
    "workers",
    "steps",
    "seed",
    "task.name",
    "task.batch_size",
    "task.args",
    "scheme.name",
    "scheme.stragglers",
    "optimizer.name",
    "optimizer.lr",
    "optimizer.schedule",
    "eval.every",
    "checkpoint.every",
    "delay.model",
    "delay.mean",
)
"""What a configuration to begin with shows, of everything that may be set."""
_VALUES: Mapping[str, Any] = {"workers": 3, "steps": 200, "task.batch_size": 16, "eval.every": 50}
_OWN: Mapping[str, Any] = {"optimizer.name": "adam", "optimizer.lr": 0.003}
"""More forgiving than plain SGD with a model that nobody has tried yet."""
_OUT = {"delay.mean"}
"""Stands there as a comment: nothing reads it until another key is changed."""
_WRITTEN = bool | int | float | str
_WIDTH = 100


@dataclass(frozen=True)
class Begun:
    """What was written.

    Args:
        config: the configuration.
        module: the file with the task's function, if there was none yet.
        task: its name.
    """

    config: Path
    module: Path | None
    task: str

    @property
    def next(self) -> dict[str, str]:
        """Commands to go on with, and what each is for."""
        check = {f"pgc task check {self.task} --config {self.config}": "does it do what a task must?"}
        return {
            **(check if ":" in self.task else {}),
            f"pgc local --config {self.config}": "train on this machine, a process for every worker",
            f"pgc explain --config {self.config}": "what the scheme does, without running it",
            f"pgc doctor --config {self.config}": "is this machine fit for that run?",
        }


def begin(task: str, out: Path | None) -> Begun:
    """Write a configuration for a task, and a file with the task's function if there is none; never over another.

    Args:
        task: a built-in one, or ``module:function``.
        out: the configuration's file; named for the task unless given.

    Raises:
        ConfigError: there is no such task, or a file is there already or cannot be written.
    """
    module, _, function = task.partition(":")
    new = Path(f"{module}.py") if function.isidentifier() and _is_missing(module) else None
    file = out or Path(f"{module.rpartition('.')[2]}.toml")
    for there in (file, new):
        if there is not None and there.exists():
            raise ConfigError(f"pgc init writes over nothing: {there} is there already. Name another file with --out.")
    code = "" if new is None else skeleton(module, function, str(file))
    arguments = {"hidden": 32} if new is not None else _arguments(task)
    text = configuration(task, arguments, str(file))
    for path, content in ((new, code), (file, text)):
        if path is not None:
            _write(path, content)
    return Begun(file, new, task)


def configuration(task: str, arguments: Mapping[str, Any], file: str) -> str:
    """The configuration as TOML, every key with its meaning and what it may be.

    Args:
        task: its name.
        arguments: of its function, by name; what has no default is None.
        file: what the configuration will be called.
    """
    values = {**_VALUES, **(_OWN if ":" in task else {}), "task.name": task}
    lines = [f"# A run of task {task}, begun by pgc init: the settings that people change first."]
    lines += _comment("All others, with their defaults, are in examples/configuration.md of pgczmq.")
    lines += [f"# Try it: pgc local --config {file}"]
    for table in described():
        chosen = [key for key in table.keys if key.name in FIRST_CHANGED]
        if chosen:
            lines += ["", *([f"[{table.name}]"] if table.name else [])]
        for key in chosen:
            lines += _entry(key, values, arguments)
    return "\n".join(lines) + "\n"


def _entry(key: Key, values: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    name = key.name.rpartition(".")[2]
    if key.name == "task.args":
        return _arguments_entry(arguments)
    value = json.dumps(values[key.name]) if key.name in values else key.default
    choices = f"one of {', '.join(SCHEMES)}" if key.name == "scheme.name" else key.kind
    meaning = key.meaning if key.kind == "text" and key.name != "scheme.name" else f"{key.meaning}: {choices}"
    return [*_comment(meaning), f"{'# ' * (key.name in _OUT)}{name} = {value}"]


def _arguments_entry(arguments: Mapping[str, Any]) -> list[str]:
    """Those with a default that TOML can write; the others have to be filled in."""
    needed = [name for name, default in arguments.items() if default is inspect.Parameter.empty]
    written = {name: json.dumps(default) for name, default in arguments.items() if isinstance(default, _WRITTEN)}
    lines = _comment("what the task's function is called with, beside the seed")
    lines += _comment(f"it also needs {', '.join(needed)}") if needed else []
    return [*lines, f"args = {{ {', '.join(f'{name} = {value}' for name, value in written.items())} }}"]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _arguments(task: str) -> dict[str, Any]:
    """The arguments of a task's function and their defaults, without the seed; imports torch.

    Raises:
        ConfigError: there is no such task.
    """
    function: Callable[..., Any] = plain.Arguments
    if task != plain.NAME:
        from pgczmq.train.task import TASK, TASKS

        function = load_function(TASKS[task], "task.name") if task in TASKS else find(TASK, task, "task.name")
    parameters = inspect.signature(function).parameters.values()
    named = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: p.default for p in named if p.name != "seed"}


def _is_missing(module: str) -> bool:
    """Whether nobody has written that module, here or in an installed package."""
    return module.isidentifier() and PathFinder.find_spec(module, [str(Path.cwd()), *sys.path]) is None


def _write(path: Path, content: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        mend = "Go to a directory where you may write" if path.parent == Path() else "Name another file with --out"
        raise ConfigError(f"cannot write {path} in {Path.cwd()}: {error.strerror}. {mend}.") from None
