"""Settings given in Python: the keys of the TOML file as keywords, with functions where the file names code."""

import datetime
import numbers
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypedDict

from pgczmq import config
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError

MAIN = "__main__"
Table = Mapping[str, object]


class Settings(TypedDict, total=False):
    """The keys of a configuration file; ``pgczmq.config.RunConfig`` says what each means and may be.

    A table is a mapping of its own keys, and changes only those that it has. Where the file names code as
    ``"module:function"`` (``task.name``, ``scheme.name``, ``delay.model``, ``policy.name``), the function itself does.
    """

    name: str
    workers: int
    steps: int
    seed: int
    deterministic: bool
    device: Literal["auto", "cpu", "cuda"]
    threads: Literal["auto"] | int
    task: Table
    scheme: Table
    policy: Table
    optimizer: Table
    eval: Table
    delay: Table
    faults: Sequence[Table]
    sim: Table
    net: Table
    checkpoint: Table
    ui: Table


def resolved(file: str | Path | None, settings: Mapping[str, object], where: Literal["here", "apart"]) -> RunConfig:
    """The run that a file, the environment and settings describe; each goes over what stands before it.

    Args:
        file: TOML.
        settings: keys of its top level.
        where: "here" runs functions of this very process, "apart" those that another process can import.

    Raises:
        ConfigError: the file cannot be read, a key does not exist, a value does not fit, or a function cannot be found
            from where it is to run.
    """
    if not isinstance(file, str | Path | None):
        raise ConfigError(
            f"what stands first is the TOML file of a run, and settings are keywords: got {type(file).__name__}. Write "
            "steps=3, or ** before a mapping of them."
        )
    _check_tables(settings)
    table = config.table_of(None if file is None else Path(file))
    _merge(table, _plain(settings, "", where))
    return config.parse(table)


def _check_tables(settings: Mapping[str, object]) -> None:
    """Whether a table is given as one, and not by its name alone."""
    for key, value in settings.items():
        section = RunConfig.model_fields[key].annotation if key in RunConfig.model_fields else None
        if not (isinstance(section, type) and issubclass(section, config.Section)) or isinstance(value, Mapping):
            continue
        first, given = next(iter(section.model_fields)), getattr(value, "__name__", repr(value))
        raise ConfigError(f"{key} is a table with keys of its own: got {given}. Write {key}={{'{first}': {given}}}.")


def _merge(table: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = value


def _plain(value: object, key: str, where: Literal["here", "apart"]) -> Any:
    """What a TOML file can hold of it; ``key`` is where it stands, dotted."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{key}.{name}".lstrip("."), where) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, key, where) for inner in value]
    if value is None or isinstance(value, bool | str | datetime.date | datetime.time):
        return value
    if isinstance(value, numbers.Integral):  # NumPy's too
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    if callable(value):
        return name_of(value, key, where)
    raise ConfigError(
        f"a setting is what a TOML file can hold, or a function where that names code: got {key} = "
        f"{type(value).__name__}. Give it as numbers, texts, lists and mappings, or make it in the task's function."
    )


def name_of(function: object, key: str, where: Literal["here", "apart"]) -> str:
    """``module:function`` by which this process, or another one, finds a function or a class.

    Raises:
        ConfigError: it has no name that leads there; says what would have one.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found = getattr(sys.modules.get(module or ""), name or "", None)
    if not isinstance(module, str) or not isinstance(name, str) or found is not function:
        raise ConfigError(
            f"code is found by its name, so a function stands at the top level of its module, under its own name: got "
            f"{key} = {name or repr(function)} of {module}. Move it there; what it is called with goes into args."
        )
    if module == MAIN and where == "apart":
        module = _importable(sys.modules[MAIN], name, key)
    return f"{module}:{name}"


def _importable(main: ModuleType, name: str, key: str) -> str:
    """By what name other processes import the program that this one runs."""
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    module = Path(file).stem if file and file != "<stdin>" else MAIN
    if spec is not None and spec.name != MAIN:  # begun with python -m
        module = spec.name
    if module == MAIN:
        raise ConfigError(
            f"workers are processes of their own and import what they run: {key} = {name} is of a notebook or a "
            f"prompt, where they cannot find it. Put its cell into a file, with %%writefile my_{name}.py as the first "
            f'line, and say "my_{name}:{name}"; pgczmq.simulate takes it as it is.'
        )
    return module
