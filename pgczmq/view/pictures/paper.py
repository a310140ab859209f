"""What all pictures share: how they look, and how they become files or bytes. The same figure gives the same bytes.

Importing this file imports matplotlib: do so where a picture is wanted, not at start-up.
"""

import io
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

from pgczmq.errors import ConfigError

METADATA: Mapping[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""The kinds of pictures, by suffix, and what to leave out so that the same numbers give the same bytes."""

GREY = "#555555"
TITLE_POINTS = 9  # from the axes to what is above them
STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "pgczmq",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": TITLE_POINTS,
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
}


def check_picture(file: Path) -> None:
    """Ask before hours of work whether the picture can be written at their end.

    Raises:
        ConfigError: no kind of picture has this suffix, or there is no such folder, or no permission.
    """
    if file.suffix.lower() not in METADATA:
        kinds = ", ".join(METADATA)
        raise ConfigError(f"a picture's kind is its file's suffix, one of {kinds}: got {file}. {file}.png would work.")
    if not file.parent.is_dir():
        raise ConfigError(f"a picture goes into a folder that exists: got {file}. Make the folder {file.parent} first.")
    if file.is_dir():
        raise ConfigError(f"a picture is a file: got {file}, which is a folder. {file / 'compare.png'} would work.")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"a picture must be written: no permission to write {file}. Name another file or folder.")


def style() -> AbstractContextManager[None]:
    """Within it figures are made and written: whatever somebody set up for matplotlib does not count."""
    return matplotlib.style.context(["default", dict(STYLE)])


def content(figure: Figure, suffix: str) -> bytes:
    """The figure as a file of the kind that the suffix says."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format=suffix[1:], dpi=144, metadata=METADATA[suffix])
    return file.getvalue()


def write(figure: Figure, file: Path) -> None:
    """The figure as a file that ``check_picture`` has seen.

    Raises:
        ConfigError: it cannot be written.
    """
    drawn = content(figure, file.suffix.lower())
    try:
        file.write_bytes(drawn)
    except OSError as error:
        raise ConfigError(f"cannot write the picture {file}: {error.strerror}.") from None
