"""``pgc report``."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from rich.console import Console

from pgczmq.errors import ConfigError
from pgczmq.rundirs import RunDirectory, look
from pgczmq.runlog import write_whole
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
    try:
        write_whole(file, written(page))
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}. Name another place: --out.") from None
    Console().print(f"{file} is written", markup=False, highlight=False, soft_wrap=True)
    return 0


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
