"""``pgc export``."""

from pathlib import Path

from rich.console import Console

from pgczmq.errors import ConfigError
from pgczmq.rundirs import RunDirectory, look
from pgczmq.view import export

NAMES = {"csv": "csv", "tensorboard": "tensorboard", "trace": "trace.json"}
"""Of what is made in the run directory when no place is named."""


def write(path: Path, kind: str, out: Path | None) -> int:
    """Write files of one kind, and say where.

    Raises:
        ConfigError: it is no run, or the files cannot be written.
    """
    run = look(path)
    place = out or path / NAMES[kind]
    try:
        said = _write(run, kind, place)
    except OSError as error:
        raise ConfigError(
            f"cannot write {error.filename or place}: {error.strerror}. Name another place: --out."
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the records in {path} cannot be those of a run: {error}.") from None
    Console().print(said, markup=False, highlight=False, soft_wrap=True)
    return 0


def _write(run: RunDirectory, kind: str, place: Path) -> str:
    if kind == "csv":
        return f"{', '.join(map(str, export.write_csv(run, place)))} are written"
    if kind == "tensorboard":
        return f"{export.write_tensorboard(run, place)} is written; tensorboard --logdir {place} shows it"
    steps = export.write_trace(run, place)
    part = "" if steps >= run.steps else f", with the first {steps:,} of {run.steps:,} steps"
    return f"{place} is written{part}; open it at ui.perfetto.dev"
