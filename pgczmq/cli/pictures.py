"""``pgc plot``."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pgczmq.rundirs import look
from pgczmq.view.pictures import paper
from pgczmq.view.pictures.run_plots import figure_of, shown


def draw(paths: Sequence[Path], out: Path | None) -> int:
    """Write one picture of the runs, and say where.

    Raises:
        ConfigError: one is no run, or the picture cannot be written.
    """
    runs = [look(path) for path in paths]
    file = out or (paths[0] / "plot.png" if len(paths) == 1 else Path("runs-plot.png"))
    paper.check_picture(file)
    paper.write(figure_of(shown(runs)), file)
    Console().print(f"{file} is written", markup=False, highlight=False, soft_wrap=True)
    return 0
