"""Code of a user's own: found by the name that a configuration has for it, and called with that section's ``args``.

A name that is not built in is ``module:function``, or what an installed package calls one of its functions: its entry
points of the groups ``pgczmq.tasks``, ``pgczmq.schemes``, ``pgczmq.delays`` and ``pgczmq.policies``.
"""

import importlib
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pgczmq.errors import ConfigError

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_NO_NAME = re.compile(r"[^\w.]|^(?=\d)")
_NOT_THE_USERS = (*_LIBRARIES, str(Path(__file__).parent), "<")


@dataclass(frozen=True)
class Kind:
    """A sort of thing that a user may bring.

    Args:
        word: for people.
        group: of entry points.
        builtin: names that need no looking up. No installed package can take one of them: what a configuration with
            built-in names means does not depend on what else is installed.
    """

    word: str
    group: str
    builtin: Collection[str]

    def is_own(self, name: str) -> bool:
        """Whether it is written as code of a user's own: ``module:function``."""
        return ":" in name and name not in self.builtin


def find(kind: Kind, name: str, setting: str) -> Callable[..., Any]:
    """The function that a name stands for which is not built in.

    Args:
        name: as the user wrote it.
        setting: the key it was given for, for the error's sentence.

    Raises:
        ConfigError: there is none; names the nearest. Two packages call something so. It fails to import.
    """
    module, colon, function = name.partition(":")
    if module and colon and function:
        return load_function(name, setting)
    found = {point.value: point for point in entry_points(group=kind.group, name=name)}
    if not found:
        raise ConfigError(_unknown(kind, name))
    if len(found) > 1:
        raise ConfigError(
            f"{setting} = {name!r} has to be one {kind.word}: {' and '.join(map(_origin, found.values()))} both have "
            "this name. Write module:function instead."
        )
    return _load(next(iter(found.values())), setting)


def installed(kind: Kind) -> list[str]:
    """The names that installed packages add to the built-in ones."""
    return sorted({point.name for point in entry_points(group=kind.group)} - set(kind.builtin))


def _unknown(kind: Kind, name: str) -> str:
    names = [*kind.builtin, *installed(kind)]
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    nearest = f" The nearest is {close[0]}." if close else ""
    offered = f"what a package installed here offers as {kind.group}"
    one_of = f'It is one of {", ".join(names)}, {offered}, or "module:function" for one of your own.'
    return f"there is no {kind.word} {name}.{nearest} {one_of}"


def _origin(point: EntryPoint) -> str:
    return f"{point.value} of package {point.dist.name}" if point.dist else point.value


def _load(point: EntryPoint, setting: str) -> Callable[..., Any]:
    try:
        function = point.load()
    except Exception as error:  # whatever the package does while it is imported
        raise ConfigError(f"{setting} = {point.name!r}: cannot import {_origin(point)}: {reason(error)}.") from error
    if not callable(function):
        raise ConfigError(f"{setting} = {point.name!r}: {_origin(point)} is not a function.")
    loaded: Callable[..., Any] = function
    return loaded


def load_function(name: str, setting: str) -> Callable[..., Any]:
    """The function that a ``module:function`` in the configuration names, the current directory included.

    Args:
        name: as the user wrote it.
        setting: the key it was given for, for the error's sentence.

    Raises:
        ConfigError: no such module or function, or the module fails to import.
    """
    module_name, _, function_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that a file of the user's called random.py breaks nothing
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does while it is imported
        is_not_there = isinstance(error, ModuleNotFoundError) and error.name == module_name
        mend = _way_to(module_name, function_name, setting, is_not_there=is_not_there)
        raise ConfigError(
            f"{setting} = {name!r}: cannot import {module_name}, looked for in {here} and among the installed "
            f"packages{mend or f': {reason(error)}'}."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"{setting} = {name!r}: {_has_none(module_name, function_name, vars(module))}")
    loaded: Callable[..., Any] = function
    return loaded


def _way_to(module: str, function: str, setting: str, *, is_not_there: bool) -> str:
    """What to do where a module cannot be imported; empty when it is there and fails."""
    if module != (as_module := Path(module).name.removesuffix(".py")):
        return f". A file is named as a module, from its own directory: {as_module}:{function}"
    if not is_not_there:
        return ""
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        names = f"{_NO_NAME.sub('_', module)}:{_NO_NAME.sub('_', function)}"
        return f". Modules and functions have names of letters, digits and _, with no digit first: {names}, perhaps"
    begin = f"; pgc init {module}:{function} begins one" if setting == "task.name" else ""
    return f". Start from the directory where {module}.py is, and have a copy of it on each worker's machine{begin}"


def _has_none(module: str, function: str, names: Mapping[str, object]) -> str:
    own = [name for name, value in names.items() if getattr(value, "__module__", None) == module]
    close = get_close_matches(function, own, n=1, cutoff=0.5)
    # A module that nobody meant may have the name, one of Python's own for example.
    hint = (
        f"The nearest is {close[0]}." if close else f"It is {names.get('__file__', 'built in')}: is that the one meant?"
    )
    return f"module {module} has no function {function}. {hint}"


def call(function: Callable[..., Any], args: Mapping[str, Any], *, name: str, setting: str, **context: object) -> Any:
    """What the user's function returns for a section's ``args``.

    Args:
        args: its keywords, as the user wrote them.
        name: of the function, as the user wrote it.
        setting: the key of ``args``, for the error's sentence.
        context: given as well where the function has an argument of that name; what the user wrote goes before.

    Raises:
        ConfigError: it does not take these arguments, or fails.
    """
    keywords = _keywords(function, args, name=name, setting=setting, context=context)
    try:
        return function(**keywords)
    except ConfigError:
        raise
    except Exception as error:  # the user's code
        raise ConfigError(f"{name} failed: {reason(error)}.") from error


def _keywords(
    function: Callable[..., Any], args: Mapping[str, Any], *, name: str, setting: str, context: Mapping[str, object]
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have none
        raise ConfigError(f"{name} does not say which arguments it takes: write a function of your own.") from None
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    needed = [p.name for p in parameters if p.name in accepted and p.default is p.empty]
    keywords = {key: value for key, value in context.items() if key in accepted} | dict(args)
    unknown = [key for key in keywords if key not in accepted and not takes_any]
    missing = [key for key in needed if key not in keywords]
    if unknown or missing:
        problem = f"does not take {', '.join(unknown)}" if unknown else f"also needs {', '.join(missing)}"
        names = ", ".join(key for key in accepted if key not in context) or "none"
        raise ConfigError(f"{setting}: {name} {problem}. It takes: {names}.")
    return keywords


def _counts(filename: str) -> bool:
    return "importlib" not in filename and filename != __file__


def reason(error: Exception) -> str:
    """The error in a line, with the place in the user's own code that it came from, or else the very last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _counts(frame.filename)]
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    where = "".join(f" ({last.filename}:{last.lineno})" for last in (own or frames)[-1:])
    return f"{type(error).__name__}: {error}{where}"
