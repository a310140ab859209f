"""Vertical axes that several pictures have. Importing this file imports matplotlib."""

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter


def loss_axis(axes: Axes, low: float, high: float) -> None:
    """Logarithmic where that helps and can be."""
    if low > 0 and high > 10 * low:
        log_axis(axes, low, high)
    else:
        margin = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)


def log_axis(axes: Axes, low: float, high: float) -> None:
    """A logarithmic one, with 1, 2 and 5 written out unless there are many decades."""
    axes.set_yscale("log")
    margin = (high / low) ** 0.04
    axes.set_ylim(low / margin, high * margin)
    if high < 5e3 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
