"""Pictures of a comparison: loss over steps, loss over time, time per step.

Numbers come in, a ``Figure`` goes out; pyplot is never touched, so there is no window and nothing is left behind.
Importing this file imports matplotlib: do so where a picture is wanted, not at start-up.
"""

import math
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pgczmq.view import words
from pgczmq.view.pictures.axes import loss_axis
from pgczmq.view.pictures.curves import Curve, Group, Spread, loss_range, spread, time_unit
from pgczmq.view.pictures.looks import Look, looks, natural, scheme_and_rest
from pgczmq.view.pictures.paper import GREY, TITLE_POINTS, check_picture, style, write

__all__ = ["Curve", "Group", "check_picture", "comparison", "comparison_figure"]

MANY = 6
"""From so many lines on they are thinner, and their bands paler."""

LEGEND_LETTERS = 135  # side by side below the two pictures of the loss
TITLE_LETTERS = 8  # an inch
NAME_LETTERS = 32  # longer labels leave no room for the bars
BAR_INCHES = 0.42  # the thickest bar
VALUE_POINTS, SHARE_POINTS = 52, 92  # where the columns beside the bars end, to the right of them


def comparison(groups: Sequence[Group], file: Path, *, target: float | None = None, title: str = "") -> None:
    """Write one picture, of the kind that the suffix says: loss over steps, loss over time, time per step.

    The same arguments give the same bytes.

    Raises:
        ConfigError: the file cannot be written, see ``check_picture``.
    """
    check_picture(file)
    write(comparison_figure(groups, target=target, title=title), file)


def comparison_figure(groups: Sequence[Group], *, target: float | None = None, title: str = "") -> Figure:
    """The picture before it is a file; its axes are loss over steps, loss over time (unless timing only), bars.

    Args:
        groups: the cases, at least one, in the order of the bars.
        target: the loss that the runs are to reach.
        title: above everything; nothing when empty.
    """
    learning = [group for group in groups if group.curves]
    height = 1.3 + 0.27 * len(groups)
    with style():
        size = (15.5, max(5.0, height)) if learning else (8.5, max(2.4, height))
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        if title:
            lines = textwrap.fill(words.clean(title), int(TITLE_LETTERS * size[0]))
            figure.suptitle(lines, x=0.008, ha="left", weight="bold", size=13, parse_math=False)
        if learning:
            left, right = figure.subfigures(1, 2, width_ratios=[2.05, 1], squeeze=False)[0]
            _losses(left, groups, target)
            _bars(right.subplots(), groups, size[1])
        else:
            _bars(figure.subplots(), groups, size[1])
    return figure


# ---------------------------------------------------------------- loss


def _losses(part: SubFigure, groups: Sequence[Group], target: float | None) -> None:
    """Both pictures of the loss on one scale, and the legend below them."""
    by_step, by_time = part.subplots(1, 2, sharey=True)
    styles = looks([group.label for group in groups])
    learning = [(group, look) for group, look in zip(groups, styles, strict=True) if group.curves]
    over_steps = [spread([(curve.steps, curve.loss) for curve in group.curves]) for group, _ in learning]
    over_time = [spread([(curve.seconds, curve.loss) for curve in group.curves]) for group, _ in learning]
    low, high = loss_range([*over_steps, *over_time], target)
    unit, seconds = time_unit(max((float(one.x[-1]) for one in over_time if one.x.size), default=1.0))
    over_time = [replace(one, x=one.x / seconds) for one in over_time]
    loss_axis(by_step, low, high)
    for axes, spreads in ((by_step, over_steps), (by_time, over_time)):
        for (group, look), one in zip(learning, spreads, strict=True):
            _line(axes, one, group, look, crowd=len(learning))
        if target is not None:
            _target(axes, target)
        axes.grid(True)
        axes.set_xlim(left=0)
    by_step.set(title="loss over steps", xlabel="steps", ylabel="loss, mean of the latest steps")
    by_step.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    by_step.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    by_time.set(title="loss over time", xlabel=f"time, {unit}")
    _legend(part, learning)


def _line(axes: Axes, one: Spread, group: Group, look: Look, *, crowd: int) -> None:
    """A group's median, the band from its least to its largest, and a cross where it is lost."""
    colour, dashes = look
    x = one.x
    width = 2.0 if crowd < MANY else 1.5
    axes.plot(x, one.median, color=colour, linestyle=dashes, linewidth=width, label=_name(group))
    if len(group.curves) > 1:
        alpha = 0.18 if crowd < MANY else 0.06
        axes.fill_between(x, one.low, one.high, color=colour, alpha=alpha, linewidth=0)
    if one.diverged and x.size:
        place = min(float(one.median[-1]), axes.get_ylim()[1])
        axes.scatter([x[-1]], [place], s=70, color=colour, marker="x", linewidth=2.2, zorder=4, clip_on=False)


def _target(axes: Axes, target: float) -> None:
    axes.axhline(target, color=GREY, linestyle="--", linewidth=1.0, zorder=1, label="target")
    axes.annotate(
        f"target {words.number(target, 3)}",
        (0.0, target),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4, 3),
        textcoords="offset points",
        color=GREY,
        fontsize=9,
    )


def _legend(part: SubFigure, learning: Sequence[tuple[Group, Look]]) -> None:
    """Sorted, down the columns; when every scheme has the same cases, no scheme is torn apart."""
    entries = sorted(learning, key=lambda entry: natural(entry[0].label))
    labels = [_name(group) + _lost(group) for group, _ in entries]
    schemes = len({scheme_and_rest(group.label)[0] for group, _ in entries})
    cases = len(entries) // schemes if len(entries) % schemes == 0 else 1
    columns = max(1, min(len(entries), LEGEND_LETTERS // (max(map(len, labels)) + 8)))
    rows = math.ceil(math.ceil(len(entries) / columns) / cases) * cases
    columns = math.ceil(len(entries) / rows)
    handles = [Line2D([], [], color=colour, linestyle=dashes, linewidth=2.0) for _, (colour, dashes) in entries]
    nothing = rows * columns - len(entries)
    handles += [Line2D([], [], alpha=0) for _ in range(nothing)]
    legend = part.legend(
        handles, labels + [" "] * nothing, loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _lost(group: Group) -> str:
    lost = sum(not all(map(math.isfinite, curve.loss)) for curve in group.curves)
    if not lost:
        return ""
    return " (diverged)" if lost == len(group.curves) else f" ({lost} of {len(group.curves)} diverged)"


# ---------------------------------------------------------------- time per step


def _bars(axes: Axes, groups: Sequence[Group], height: float) -> None:
    """A bar a group, the first on top; beside it the median as text, and as a share of the reference's."""
    times = [sorted(filter(math.isfinite, group.seconds_per_step)) for group in groups]
    unit, size = time_unit(max((seconds[-1] for seconds in times if seconds), default=1.0))
    thickness = min(0.66, BAR_INCHES * len(groups) / height)
    styles = looks([group.label for group in groups])
    for place, (seconds, (colour, _)) in enumerate(zip(times, styles, strict=True)):
        axes.barh(place, _median(seconds) / size, height=thickness, color=colour)
        if len(seconds) > 1:
            for stroke, width in (("white", 4.0), (GREY, 1.6)):
                axes.hlines(place, seconds[0] / size, seconds[-1] / size, color=stroke, linewidth=width)
    axes.set_yticks(range(len(groups)), [_name(group) for group in groups], parse_math=False)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set(title="time per step", xlabel=f"time per step, {unit}")
    _columns(axes, groups, [_median(seconds) for seconds in times])


def _columns(axes: Axes, groups: Sequence[Group], medians: Sequence[float]) -> None:
    """To the right of the bars, what they say in figures."""
    reference = min(groups, key=lambda group: (group.label != "dgd", not group.label.startswith("dgd")))
    whole = medians[groups.index(reference)]
    _text(axes, (1.0, 1.0), f"100 % = {_name(reference)}", SHARE_POINTS)
    for place, median in enumerate(medians):
        _text(axes, (1.0, 1 - (place + 0.5) / len(medians)), words.duration(median), VALUE_POINTS)
        share = words.percent(median / whole if whole else None)
        _text(axes, (1.0, 1 - (place + 0.5) / len(medians)), share, SHARE_POINTS)


def _text(axes: Axes, place: tuple[float, float], text: str, points: float) -> None:
    """Text that ends so many points to the right of a place in the axes; above them when the place is their top."""
    above = place[1] == 1.0
    axes.annotate(
        text,
        place,
        xycoords="axes fraction",
        xytext=(points, TITLE_POINTS if above else 0),
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment="baseline" if above else "center_baseline",
        color=GREY if above else "#333333",
        fontsize=9,
        parse_math=False,
        annotation_clip=False,
    )


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) if seconds else math.nan


def _name(group: Group) -> str:
    name = words.clean(group.label)
    return name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"
