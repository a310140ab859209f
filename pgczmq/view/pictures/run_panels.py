"""The parts of a picture of runs that have been: one ``Axes`` each, over steps or over time.

A single run shows every step, palely, behind a smoothed line; several runs show the smoothed lines alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter

from pgczmq.rundirs import RunDirectory
from pgczmq.view import words
from pgczmq.view.pictures.axes import log_axis, loss_axis
from pgczmq.view.pictures.curves import Array, Spread, loss_range, time_unit
from pgczmq.view.pictures.looks import Look
from pgczmq.view.pictures.past import Past
from pgczmq.view.pictures.smooth import binned, envelope, latest_mean

PALE = 0.28
POINTS = 300


@dataclass(frozen=True)
class Shown:
    """One run of a picture."""

    run: RunDirectory
    past: Past
    label: str
    look: Look


@dataclass(frozen=True)
class Panel:
    """One part.

    Args:
        title: says what it shows.
        draw: draws it.
    """

    title: str
    draw: Callable[[Axes, Sequence[Shown]], None]


def panels(shown: Sequence[Shown]) -> list[Panel]:
    """Those that have something to show, in their order."""
    pasts = [one.past for one in shown]
    found = []
    if any(np.isfinite(past.loss_S).any() for past in pasts):
        found += [Panel("loss over steps", _loss_over_steps), Panel("loss over time", _loss_over_time)]
    if any(np.isfinite(past.metric_E).any() for past in pasts):
        found.append(Panel(f"{metric_name(shown)}, held out", _metric))
    found.append(Panel("time per step", _step_time))
    if any((past.max_age_S > 0).any() for past in pasts):
        found.append(Panel("age of the gradients used", _ages))
    if any((past.recovered_S < 1 - 1e-9).any() for past in pasts):
        found.append(Panel("partitions recovered", partial(_shares, of=lambda past: past.recovered_S)))
    if any(_varies(past.k_S) for past in pasts):
        found.append(Panel("arrivals that close a step: k", _k))
    if any(_varies(past.batch_fraction_S) for past in pasts):
        found.append(Panel("part of a minibatch evaluated", partial(_shares, of=lambda past: past.batch_fraction_S)))
    return found


def metric_name(shown: Sequence[Shown]) -> str:
    """What the runs measured beside the loss, when their results agree on it."""
    names = {one.run.result.metric for one in shown if one.run.result and one.run.result.metric}
    return words.clean(names.pop()) if len(names) == 1 else "metric"


def time_label(shown: Sequence[Shown], unit: str) -> str:
    """Of an axis: what kind of seconds they are."""
    simulated = {one.run.simulated for one in shown}
    kind = "virtual time" if simulated == {True} else "time" if simulated == {False} else "time (virtual if simulated)"
    return f"{kind}, {unit}"


# ---------------------------------------------------------------- loss and metric


def _loss_over_steps(axes: Axes, shown: Sequence[Shown]) -> None:
    for one in shown:
        _loss_lines(
            axes, one, one.past.step_S.astype(float) + 1, one.past.eval_steps_E.astype(float), alone=len(shown) == 1
        )
    _loss_axis(axes, shown)
    _steps_axis(axes)
    if len(shown) == 1:
        _resumed(axes, shown[0].past)
        axes.legend(frameon=False, fontsize=9)


def _loss_over_time(axes: Axes, shown: Sequence[Shown]) -> None:
    unit, size = time_unit(max(float(one.past.applied_S[-1]) for one in shown))
    for one in shown:
        _loss_lines(axes, one, one.past.applied_S / size, one.past.eval_at_E / size, alone=len(shown) == 1)
    _loss_axis(axes, shown)
    axes.set_xlim(left=0)
    axes.set_xlabel(time_label(shown, unit))


def _loss_lines(axes: Axes, one: Shown, x_S: Array, x_E: Array, *, alone: bool) -> None:
    """The training loss, smoothed, and in front of it what was held out."""
    colour, dashes = one.look
    finite = np.isfinite(one.past.loss_S)
    x, loss = x_S[finite], one.past.loss_S[finite]
    if not loss.size:
        return
    if alone:
        axes.plot(*envelope(x, loss, POINTS), color=colour, alpha=PALE, linewidth=0.8)
    smooth, window = latest_mean(loss)
    name = "training" if window == 1 else f"training, mean of {window} steps"
    thin = np.unique(np.linspace(0, x.size - 1, POINTS).round().astype(int))
    axes.plot(x[thin], smooth[thin], color=colour, linestyle=dashes, linewidth=1.8, label=name)
    if one.past.eval_loss_E.size:
        axes.plot(x_E, one.past.eval_loss_E, "o", color=colour, label="held out", zorder=4, markeredgecolor="white")
    if one.run.state == "diverged":
        place = min(float(smooth[-1]), _top([one]))
        axes.scatter(x[-1:], [place], s=70, color=colour, marker="x", linewidth=2.2, zorder=5, label="diverged")


def _loss_axis(axes: Axes, shown: Sequence[Shown]) -> None:
    axes.set_ylabel("loss")
    axes.grid(True)
    loss_axis(axes, *_range(shown))


def _range(shown: Sequence[Shown]) -> tuple[float, float]:
    """Of all losses to be seen, but not of what a run went through on its way to infinity."""
    lines = []
    for one in shown:
        finite = one.past.loss_S[np.isfinite(one.past.loss_S)]
        every = [np.quantile(finite, [0.1])] if len(shown) == 1 and finite.size else []  # there they are seen
        for values in (latest_mean(finite)[0], one.past.eval_loss_E[np.isfinite(one.past.eval_loss_E)], *every):
            lines.append(Spread(values, values, values, values, False))
    return loss_range(lines, None)


def _top(shown: Sequence[Shown]) -> float:
    return _range(shown)[1]


def _metric(axes: Axes, shown: Sequence[Shown]) -> None:
    for one in shown:
        colour, dashes = one.look
        axes.plot(one.past.eval_steps_E, one.past.metric_E, color=colour, linestyle=dashes, marker="o", markersize=5)
    if words.is_share(metric_name(shown)):
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.grid(True)
    _steps_axis(axes)


def _resumed(axes: Axes, past: Past) -> None:
    """Where a run went on after it had been interrupted."""
    steps = [event.step for event in past.events if event.kind == "resumed" and event.step]
    for place, step in enumerate(steps):
        axes.axvline(step, color="#999999", linewidth=1.0, linestyle=":", label=None if place else "resumed")


# ---------------------------------------------------------------- everything else over steps


def _step_time(axes: Axes, shown: Sequence[Shown]) -> None:
    periods = [np.maximum(one.past.period_S, 0.0) for one in shown]
    unit, size = time_unit(float(np.median(np.concatenate(periods))) or 1e-6)
    highest, lowest = 0.0, np.inf
    for one, period_S in zip(shown, periods, strict=True):
        colour, dashes = one.look
        seconds, steps = period_S / size, one.past.step_S.astype(float)
        if len(shown) == 1:
            axes.plot(*envelope(steps, seconds, POINTS), color=colour, alpha=PALE, linewidth=0.8)
        x, y = binned(steps, seconds, POINTS // 4, np.median)
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.8)
        drawn = seconds if len(shown) == 1 else y
        highest, lowest = max(highest, float(drawn.max())), min(lowest, float(drawn[drawn > 0].min(initial=np.inf)))
    if np.isfinite(lowest) and highest > 20 * lowest:
        log_axis(axes, lowest, highest)
    else:
        axes.set_ylim(0, 1.05 * highest or 1.0)
    axes.set_ylabel(time_label(shown, unit))
    axes.grid(True)
    _steps_axis(axes)


def _ages(axes: Axes, shown: Sequence[Shown]) -> None:
    for one in shown:
        colour, dashes = one.look
        _binned_line(axes, one, one.past.mean_age_S, dashes, label="mean")
        if len(shown) == 1:
            x, y = binned(one.past.step_S.astype(float), one.past.max_age_S, POINTS, np.nanmax)
            axes.plot(x, y, color=colour, linewidth=1.0, alpha=0.6, label="largest", drawstyle="steps-mid")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("steps" if len(shown) == 1 else "mean, steps")
    if len(shown) == 1:
        axes.legend(frameon=False, fontsize=9)
    axes.grid(True)
    _steps_axis(axes)


def _shares(axes: Axes, shown: Sequence[Shown], *, of: Callable[[Past], Array]) -> None:
    """A number from 0 to 1 of every step."""
    for one in shown:
        _binned_line(axes, one, of(one.past), one.look[1])
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.grid(True)
    _steps_axis(axes)


def _k(axes: Axes, shown: Sequence[Shown]) -> None:
    for one in shown:
        _binned_line(axes, one, one.past.k_S, one.look[1])
    axes.set_ylim(0, 1.05 * max(float(one.past.k_S.max()) for one in shown))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(True)
    _steps_axis(axes)


def _binned_line(axes: Axes, one: Shown, values_S: Array, dashes: Any, label: str | None = None) -> None:
    x, y = binned(one.past.step_S.astype(float), values_S, POINTS, np.nanmean)
    axes.plot(x, y, color=one.look[0], linestyle=dashes, linewidth=1.6, label=label)


def _percent(share: float, place: int | None) -> str:
    return f"{round(100 * share, 6):g} %"


def _varies(values_S: Array) -> bool:
    return bool(values_S.max() > values_S.min())


def _steps_axis(axes: Axes) -> None:
    axes.set_xlabel("steps")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
