"""How long each worker took at each step, as a map in colours, and what became of its answers, as bars beside it."""

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from pgczmq.view.pictures.curves import Array, time_unit
from pgczmq.view.pictures.past import LATE, MISSING, SPARE, USED, Past
from pgczmq.view.pictures.smooth import stretches

COLUMNS, CELLS = 400, 40_000  # at most: more are not seen, and make the file large
FAST_TO_SLOW = ("#dcebf7", "#6baed6", "#2171b5", "#08306b", "#02122e")
SHADES = 48  # more are not told apart, and make the file large
COLOURS = {USED: "#2171b5", SPARE: "#9ecae1", LATE: "#f0801a", MISSING: "#d9d4cc"}
NAMES = {USED: "used", SPARE: "spare", LATE: "late", MISSING: "missing"}


def draw(part: Figure | SubFigure, past: Past, kind_of_time: str) -> None:
    """Map, colour bar and bars.

    Args:
        kind_of_time: ``time`` or ``virtual time``.
    """
    map_axes, scale, bars = part.subplots(1, 3, width_ratios=[60, 1, 10])
    edges = stretches(past.step_S.size, min(COLUMNS, CELLS // past.workers + 1))
    latency_CN, fate_CN = _cells(past, edges)
    in_time = latency_CN[fate_CN >= SPARE]
    low, high = _scale(in_time[in_time > 0])
    unit, size = time_unit(high)
    norm, colours = LogNorm(low / size, high / size, clip=True), _colours()
    image = colours(norm(np.where(latency_CN > 0, latency_CN / size, low / size)))[..., :3]
    for fate in (LATE, MISSING):
        image[fate_CN == fate] = to_rgb(COLOURS[fate])
    first, last = float(past.step_S[0]), float(past.step_S[-1])
    extent = (first - 0.5, last + 0.5, past.workers - 0.5, -0.5)
    map_axes.imshow(image.swapaxes(0, 1), aspect="auto", interpolation="none", extent=extent)
    bar = part.colorbar(ScalarMappable(norm, colours), cax=scale)
    bar.set_label(f"{kind_of_time}, {unit}")
    bar.ax.yaxis.set_major_locator(FixedLocator(_ticks(low / size, high / size)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    _describe(map_axes, edges[1] - edges[0])
    _shares(bars, past)


def shares(past: Past) -> Array:
    """[N, 4]: of each worker the parts of the steps at which it was MISSING, LATE, SPARE and USED."""
    return np.stack([(past.fate_SN == fate).mean(0) for fate in range(4)], axis=1)


def _cells(past: Past, edges: list[int]) -> tuple[Array, NDArray[np.uint8]]:
    """Of C stretches of steps, and each worker: the median latency in time, and what happened in most of the steps."""
    columns = list(pairwise(edges))
    latency_CN = np.full((len(columns), past.workers), np.nan)
    fate_CN = np.empty((len(columns), past.workers), np.uint8)
    for column, (begin, end) in enumerate(columns):
        fate = past.fate_SN[begin:end]
        in_time = fate >= SPARE
        counts = np.stack([(fate == MISSING).sum(0), (fate == LATE).sum(0), in_time.sum(0)])
        fate_CN[column] = counts.argmax(0)
        some = in_time.any(0)
        latency = np.where(in_time, past.latency_SN[begin:end], np.nan)
        latency_CN[column, some] = np.nanmedian(latency[:, some], axis=0)
    return latency_CN, fate_CN


def _scale(seconds: Array) -> tuple[float, float]:
    """All but what lies far out; at least a factor of two."""
    if not seconds.size:
        return 1.0, 2.0
    low, high = (float(value) for value in np.quantile(seconds, [0.01, 0.99]))
    return low, max(high, 2 * low)


def _ticks(low: float, high: float) -> list[float]:
    return [float(f"{value:.2g}") for value in np.geomspace(low, high, 5)[1:-1]]


def _colours() -> Colormap:
    return LinearSegmentedColormap.from_list("fast to slow", FAST_TO_SLOW, N=SHADES)


def _describe(axes: Axes, steps_a_cell: int) -> None:
    axes.set(title="who answered when", xlabel="steps", ylabel="worker")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.grid(False)
    if steps_a_cell > 1:
        text = f"a cell is {steps_a_cell} steps: their median, or what most of them were"
        axes.set_title(text, loc="right", fontsize=9, color="#555555", weight="normal")


def _shares(axes: Axes, past: Past) -> None:
    borders = np.repeat(np.arange(past.workers + 1) - 0.5, 2)[1:-1]
    shares_N4, left = shares(past), np.zeros(borders.size)
    for fate in (USED, SPARE, LATE, MISSING):
        right = left + np.repeat(shares_N4[:, fate], 2)
        axes.fill_betweenx(borders, left, right, color=COLOURS[fate], linewidth=0)
        left = right
    axes.set_xlim(0, 1)
    axes.set_ylim(past.workers - 0.5, -0.5)
    axes.set_xticks([0, 0.5, 1], ["0", "50", "100 %"])
    axes.set_yticks([])
    axes.set(title="what came", xlabel="of the steps")
    patches = [Patch(color=COLOURS[fate], label=NAMES[fate]) for fate in (USED, SPARE, LATE, MISSING)]
    axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
