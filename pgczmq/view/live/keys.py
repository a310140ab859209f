"""What keys change in a view: a small value, and a pure function from it and a key to the next.

Keys never reach the run: whoever watches it may look at it differently, and leave.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Sort = Literal["worst", "number", "latency", "late"]
SORTS: tuple[Sort, ...] = ("worst", "number", "latency", "late")
Key = Literal["up", "down", "escape", "suspend", "redraw"] | str
"""A printable character, or the name of a key that is none."""

_SEQUENCES: dict[bytes, Key] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[D": "up",
    b"\x1bOD": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "down",
    b"\x1bOC": "down",
    b"\x1b": "escape",
    b"\x1a": "suspend",
    b"\x0c": "redraw",
    b"\r": "w",
    b"\n": "w",
}


@dataclass(frozen=True)
class Look:
    """How a person wants to see a run.

    Args:
        sort: the order of the workers.
        chosen: the worker whose detail is shown.
        last: the worker that was chosen last, where the next look at one begins.
        help: whether the explanation of keys and words is shown.
        paused: whether the view stands still while the run goes on.
        left: whether the view is over; the run is not.
    """

    sort: Sort = "worst"
    chosen: int | None = None
    last: int | None = None
    help: bool = False
    paused: bool = False
    left: bool = False


def keys_in(typed: bytes) -> list[Key]:
    """The keys that a terminal has sent; unknown sequences are left out whole."""
    keys: list[Key] = []
    while typed:
        length = _length(typed)
        one, typed = typed[:length], typed[length:]
        if one in _SEQUENCES:
            keys.append(_SEQUENCES[one])
        elif len(one) == 1 and one.isascii() and one.decode().isprintable():
            keys.append(one.decode())
    return keys


def _length(typed: bytes) -> int:
    """Of the first key: an escape sequence ends with a letter or ~."""
    if typed[:1] != b"\x1b" or typed[1:2] not in {b"[", b"O"}:
        return 1
    for place in range(2, len(typed)):
        if 0x40 <= typed[place] <= 0x7E:
            return place + 1
    return len(typed)


def pressed(look: Look, key: Key, order: Sequence[int]) -> Look:
    """The look after a key; one that means nothing changes nothing.

    Args:
        look: the look before it.
        key: as ``keys_in`` names it.
        order: the workers in the order in which they are shown.
    """
    press = _PRESSES.get(key.lower() if len(key) == 1 else key)
    return look if press is None else press(look, order)


def _quit(look: Look, order: Sequence[int]) -> Look:
    """Leaves what lies on top first, as people expect of it."""
    return replace(look, help=False) if look.help else replace(look, left=True)


def _back(look: Look, order: Sequence[int]) -> Look:
    return replace(look, help=False) if look.help else replace(look, chosen=None)


def _sorted_next(look: Look, order: Sequence[int]) -> Look:
    return replace(look, sort=SORTS[(SORTS.index(look.sort) + 1) % len(SORTS)])


def _detail(look: Look, order: Sequence[int]) -> Look:
    if look.chosen is not None or not order:
        return replace(look, chosen=None)
    chosen = look.last if look.last in order else order[0]
    return replace(look, chosen=chosen, last=chosen, help=False)


def _moved(by: int) -> Callable[[Look, Sequence[int]], Look]:
    def move(look: Look, order: Sequence[int]) -> Look:
        if look.chosen not in order:
            return _detail(replace(look, chosen=None), order)
        chosen = order[(order.index(look.chosen) + by) % len(order)]
        return replace(look, chosen=chosen, last=chosen)

    return move


_PRESSES: dict[str, Callable[[Look, Sequence[int]], Look]] = {
    "q": _quit,
    "escape": _back,
    "s": _sorted_next,
    "w": _detail,
    "j": _moved(1),
    "down": _moved(1),
    "k": _moved(-1),
    "up": _moved(-1),
    "p": lambda look, order: replace(look, paused=not look.paused),
    "?": lambda look, order: replace(look, help=not look.help),
    "h": lambda look, order: replace(look, help=not look.help),
}
