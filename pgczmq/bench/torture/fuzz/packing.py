"""MessagePack as a stranger writes it: any value in its longest form, and bytes that are none in between."""

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias


class Raw(bytes):
    """Bytes that stand where a packed value should."""


Value: TypeAlias = "bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None"


def packed(value: Value) -> bytes:
    """The value's bytes; an integer that has not 64 bits becomes a float."""
    match value:
        case Raw():
            return bytes(value)
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _whole(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            text = value.encode(errors="replace")
            return b"\xdb" + len(text).to_bytes(4) + text
        case bytes():
            return b"\xc6" + len(value).to_bytes(4) + value
        case Mapping():
            items = [packed(key) + packed(inner) for key, inner in value.items()]
            return b"\xdf" + len(items).to_bytes(4) + b"".join(items)
        case _:
            return b"\xdd" + len(value).to_bytes(4) + b"".join(map(packed, value))


def _whole(value: int) -> bytes:
    if -(2**63) <= value < 2**63:
        return b"\xd3" + value.to_bytes(8, signed=True)
    return b"\xcf" + value.to_bytes(8) if 0 <= value < 2**64 else packed(float(value))
