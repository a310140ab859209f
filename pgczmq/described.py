"""Every key of the configuration in words: kind, default and meaning, from the models and their descriptions."""

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pgczmq.config import RunConfig, Section

_NUMBERS = {int: "whole number", float: "number"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Key:
    """What a person may set.

    Args:
        name: dotted, as ``--set`` takes it; of a table that may stand several times, with ``[]``.
        kind: what a value may be, in words: "whole number, at least 1".
        default: as TOML has it; empty where there is none.
        meaning: what it is for, with its unit.
    """

    name: str
    kind: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A section of the file: its name ("" for the top), what it is about, and its keys in the models' order."""

    name: str
    about: str
    keys: tuple[Key, ...]


def described(model: type[Section] = RunConfig, name: str = "") -> Iterator[Table]:
    """The tables of a configuration, those inside others after them.

    Args:
        model: of the table.
        name: dotted, of the table itself.
    """
    prefix = name + "." if name else ""
    inner = {field: _section(info.annotation) for field, info in model.model_fields.items()}
    plain = (field for field, section in inner.items() if section is None)
    about = (model.__doc__ or "").partition("\n")[0]
    yield Table(name, about, tuple(_key(prefix + field, model.model_fields[field]) for field in plain))
    for field, section in inner.items():
        if section is not None:
            several = "[]" if get_origin(model.model_fields[field].annotation) is tuple else ""
            yield from described(section, prefix + field + several)


def _key(name: str, info: FieldInfo) -> Key:
    bounds = [
        f"{words} {_written(getattr(part, sign))}"
        for part in info.metadata
        for sign, words in _BOUNDS.items()
        if getattr(part, sign, None) is not None
    ]
    return Key(name, ", ".join([_kind(info.annotation), *bounds]), _default(info), info.description or "")


def _written(bound: float) -> str:
    return "2^63" if bound == 2**63 else f"{bound:g}"


def _default(info: FieldInfo) -> str:
    value = info.default
    if value is None or value is PydanticUndefined:
        return ""
    return json.dumps(value) if value != {} else "{}"  # a string, a number, a truth value or an empty table


def _kind(annotation: Any) -> str:
    """A type in words, by what it is made of."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        *others, last = (json.dumps(value) for value in inside)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is Annotated:
        return _key("", FieldInfo.from_annotation(annotation)).kind
    if origin in (Union, types.UnionType):
        return ", or ".join(dict.fromkeys(_kind(part) for part in inside if part is not type(None)))
    if origin is tuple:
        return f"list: {_kind(inside[0])} each"
    if origin is dict:
        return "table"
    return {bool: "true or false", str: "text", **_NUMBERS}[annotation]


def _section(annotation: Any) -> type[Section] | None:
    """The table that a key holds, once or several times; None of a key with a value."""
    parts = [annotation, *get_args(annotation)]
    return next((part for part in parts if isinstance(part, type) and issubclass(part, Section)), None)
