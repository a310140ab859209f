"""Where whoever calls this program from Python sees something: a terminal, a notebook's cell, a string."""

import sys
import threading
from typing import TypeAlias

from rich.console import Console, RenderableType

WIDTH = 160
Shown: TypeAlias = RenderableType
"""What can be shown on a console."""


def console() -> Console:
    """Where a call shows how far it is: standard error, or in a notebook, where that is red, the cell's output.

    A notebook asks programs for colours, which Rich takes for a terminal.
    """
    if Console().is_jupyter:
        return Console(file=sys.stdout, force_jupyter=False, force_terminal=False)
    return Console(stderr=True)


def mode_here(mode: str) -> str:
    """The mode of a view that was asked for: beside the main thread others may draw, so nothing but lines there."""
    return mode if mode == "none" or threading.current_thread() is threading.main_thread() else "plain"


def as_text(shown: Shown) -> str:
    """What a wide terminal without colours would show."""
    console = Console(width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get().rstrip("\n")
