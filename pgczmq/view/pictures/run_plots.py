"""Pictures of runs that have been, from what they left in their directories.

Importing this file imports matplotlib: do so where a picture is wanted, not at start-up.
"""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from pgczmq.rundirs import RunDirectory
from pgczmq.view import words
from pgczmq.view.pictures import heat
from pgczmq.view.pictures.labels import labels, looks_of
from pgczmq.view.pictures.paper import GREY, style
from pgczmq.view.pictures.past import read_past
from pgczmq.view.pictures.run_panels import Panel, Shown, panels

COLUMN_INCHES, ROW_INCHES = 5.2, 3.3
HEAT_INCHES = (2.4, 6.5)  # at least, at most
WORKER_INCHES = 0.16
LEGEND_LETTERS = 150


def shown(runs: Sequence[RunDirectory]) -> list[Shown]:
    """The runs with their records, told apart.

    Raises:
        ConfigError: one holds no step, or something that is no record.
    """
    names = labels(runs)
    return [
        Shown(run, read_past(run.path), name, look)
        for run, name, look in zip(runs, names, looks_of(names), strict=True)
    ]


def figure_of(runs: Sequence[Shown]) -> Figure:
    """All panels; of a single run also who answered when."""
    parts = panels(runs)
    columns = min(len(parts), 2 if len(parts) <= 4 else 3)
    rows = math.ceil(len(parts) / columns)
    heights = [ROW_INCHES * rows]
    if len(runs) == 1 and has_map(runs[0]):
        heights.append(heat_inches(runs[0]))
    width = COLUMN_INCHES * max(2, columns)
    with style():
        figure = Figure(figsize=(width, sum(heights) + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        title = textwrap.fill(words.clean(_title(runs)), int(8 * width))
        figure.suptitle(title, x=0.008, ha="left", weight="bold", size=13, parse_math=False)
        above, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _draw_panels(above, parts, runs, rows, columns)
        for part in below:
            heat.draw(part, runs[0].past, kind_of_time(runs[0]))
    return figure


def panel_figure(panel: Panel, runs: Sequence[Shown]) -> Figure:
    """One panel as a picture of its own."""
    with style():
        figure = Figure(figsize=(COLUMN_INCHES, ROW_INCHES), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        panel.draw(axes, runs)
        axes.set_title(panel.title, parse_math=False)
    return figure


def heat_figure(one: Shown) -> Figure:
    """Who answered when, as a picture of its own."""
    with style():
        figure = Figure(figsize=(2 * COLUMN_INCHES, heat_inches(one)), layout="constrained")
        FigureCanvasAgg(figure)
        heat.draw(figure, one.past, kind_of_time(one))
    return figure


def has_map(one: Shown) -> bool:
    """Whether all workers are asked at every step, as in everything but asynchronous SGD."""
    return str(one.run.setting("scheme", "name")) != "async"


def heat_inches(one: Shown) -> float:
    """How high a map of its workers is."""
    least, most = HEAT_INCHES
    return min(most, max(least, 1.0 + WORKER_INCHES * one.past.workers))


def kind_of_time(one: Shown) -> str:
    """Simulated seconds pass for nobody."""
    return "virtual time" if one.run.simulated else "time"


def _draw_panels(part: SubFigure, parts: Sequence[Panel], runs: Sequence[Shown], rows: int, columns: int) -> None:
    grid = part.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, parts, strict=False):
        panel.draw(axes, runs)
        axes.set_title(panel.title, parse_math=False)
    for axes in grid.flat[len(parts) :]:
        axes.set_axis_off()
    if len(runs) > 1:
        _legend(part, runs)


def _legend(part: SubFigure, runs: Sequence[Shown]) -> None:
    names = [words.clean(one.label) + (" (diverged)" if one.run.state == "diverged" else "") for one in runs]
    handles = [Line2D([], [], color=one.look[0], linestyle=one.look[1], linewidth=2.0) for one in runs]
    if any(one.past.eval_loss_E.size for one in runs):
        handles.append(Line2D([], [], color=GREY, linestyle="", marker="o"))
        names.append("held out")
    columns = max(1, min(len(names), LEGEND_LETTERS // (max(map(len, names)) + 8)))
    legend = part.legend(handles, names, loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _title(runs: Sequence[Shown]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs"
    [one] = runs
    facts = [one.label, words.count(one.past.workers, "worker"), words.count(one.past.step_S.size, "step")]
    task = one.run.setting("task", "name")
    before = [] if task is None else [str(task)]
    after: list[str] = [] if one.run.state == "done" else [one.run.state]
    if not np.isfinite(one.past.loss_S).any():
        after.append("no losses")
    return f"{one.run.name}: {', '.join([*before, *facts, *after])}"
