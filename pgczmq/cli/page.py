"""``pgc report``."""

import contextlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from rich.console import Console

from pgczmq.cli.common import check_writable
from pgczmq.errors import ConfigError
from pgczmq.rundirs import RunDirectory, look
from pgczmq.view.page.document import Page, written
from pgczmq.view.pictures.run_plots import shown

PROGRAMS = ("pgczmq", "numpy", "matplotlib")
DECIDE = ("workers", "seed", "deterministic", "scheme", "policy")
"""What the scheme depends on. The rest is left out: a delay model may be code, or a file that is not here."""


def write(paths: Sequence[Path], out: Path | None) -> int:
    """Write one page about the runs, and say where.

    Raises:
        ConfigError: one is no run, or the page cannot be written.
    """
    runs = [look(path) for path in paths]
    file = out or (paths[0] / "report.html" if len(paths) == 1 else Path("runs-report.html"))
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report is a file that ends in .html: got {file}. {file}.html would work.")
    made_with = {"Python": python_version()} | {name: version(name) for name in PROGRAMS}
    page = Page(shown(runs), [_explanation(run) for run in runs], made_with)
    check_writable(file, "--out")  # which leaves an empty file, so not before the runs have been read
    _put(file, written(page))
    Console().print(f"{file} is written", markup=False, highlight=False, soft_wrap=True)
    return 0


def _put(file: Path, text: str) -> None:
    """Write the page, whole or not at all: an older one stays as it is."""
    temporary = file.with_name(f".partial-{file.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"cannot write {file}: {error.strerror}. Free space there, or give --out.") from None


def _explanation(run: RunDirectory) -> Mapping[str, Any] | None:
    """What the scheme does; None where its code would be somebody's own: looking at a run runs nothing of it."""
    from pgczmq.app.explain import explain
    from pgczmq.config import parse

    named = [run.setting(section, "name") for section in ("scheme", "policy")]
    if any(":" in str(name) for name in named):
        return None
    try:
        return explain(parse({key: run.settings[key] for key in DECIDE if key in run.settings}), step=1)
    except ConfigError:
        return None  # of another version, or of a scheme that is not here
