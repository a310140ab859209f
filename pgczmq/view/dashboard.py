"""A run on one screen: a pure function from what is known to lines that fit.

Every line is a ``Text`` of known width, so that foreign text is never markup and the height is known beforehand.
"""

from rich.console import Group, RenderableType
from rich.text import Text

from pgczmq.runlog import Result
from pgczmq.view import chart, words
from pgczmq.view.state import RunView
from pgczmq.view.workers import rows_wanted, worker_lines

WIDEST = 200
"""Wider than this a line is hard to follow; the rest of the terminal stays empty."""

CHART_HIGHEST = 14
CHART_LOWEST = 3
LABEL = 10
FIXED_LINES = 7  # header, progress, news, chart title, accuracy, timing, heading of the workers
ROOMY = 30  # from this height on, empty lines set the chart apart
QUIET_SECONDS = 2.0


def render(view: RunView, *, now: float, width: int, height: int) -> RenderableType:
    """The run in at most ``height`` lines of at most ``width`` cells.

    Args:
        view: what is known.
        now: seconds since the run's start.
        width: cells.
        height: lines.
    """
    width = max(1, min(width, WIDEST))
    air = [Text()] if height >= ROOMY else []
    free = max(0, height - FIXED_LINES - 2 * len(air))
    chart_height = _chart_height(free, rows_wanted(len(view.workers), width, rows=free - CHART_LOWEST))
    lines = [
        _header(view, width),
        _progress(view, now, width),
        _news(view, now, width),
        *air,
        *_loss(view, width, chart_height),
        _accuracy(view, width),
        _timing(view),
        *air,
        *worker_lines(view, width, rows=max(1, free - chart_height)),
    ]
    return Group(*[_fitted(line, width) for line in lines[: max(0, height)]])


def _fitted(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


def _chart_height(free: int, wanted_below: int) -> int:
    """Lines of the chart: what the workers leave over, but a quarter even when there are many of them."""
    return min(free, CHART_HIGHEST, max(CHART_LOWEST, free // 4, free - wanted_below))


# ---------------------------------------------------------------- the run


def _header(view: RunView, width: int) -> Text:
    run = view.run
    if run is None:
        return Text("waiting for the run's first record", style="dim")
    name = Text().append(words.clean(run.name), style="bold")
    about = (
        f"{words.clean(run.scheme)}, s={run.stragglers}  {words.clean(run.task)}  {words.count(run.workers, 'worker')}"
    )
    facts = Text().append(about, style="cyan")
    name.truncate(max(8, width - facts.cell_len - 2), overflow="ellipsis")
    return name + Text(" " * max(2, width - name.cell_len - facts.cell_len)) + facts


def _progress(view: RunView, now: float, width: int) -> Text:
    done, steps = view.steps_done, view.steps
    share = min(1.0, done / steps) if steps else 0.0
    elapsed = view.result.seconds if view.result else now
    times = f"{words.clock(elapsed)} elapsed"
    if view.result is None:
        times += f"  {words.clock(view.seconds_left)} left"
    # 99.96 % is not done yet: rounding down keeps "100 %" for the end
    counted = f" {int(100 * share):3} %  {done:,}/{steps:,}" if steps else f"  {words.count(done, 'step')}"
    counted += f"  {times}"
    room = max(4, width - len(counted))
    whole = int(share * room)
    line = Text().append("━" * whole, style="green" if whole == room else "blue")
    return line.append("─" * (room - whole), style="bright_black").append(counted)


def _news(view: RunView, now: float, width: int) -> Text:
    """What matters most now: the end, waiting for workers, a slow step, or the last event."""
    if view.result is not None:
        return _ending(view.result)
    if view.waiting:
        return Text(f" WAITING  {words.clean(view.waiting)}".ljust(width), style="bold white on red")
    if view.starting:
        return Text(f" {words.clean(view.starting)}", style="yellow")
    if view.last_step is not None:
        quiet = now - view.last_step.applied_at
        if quiet > max(QUIET_SECONDS, 5 * (view.period or 0.0)):
            return Text(f" step {view.steps_done} has been open for {words.duration(quiet)}", style="yellow")
    if view.events:
        event = view.events[-1]
        return Text(f" {words.clock(event.at)}  {words.clean(event.text)}", style="dim")
    return Text("")


def _ending(result: Result) -> Text:
    end = "diverged" if result.diverged else "done" if result.exit == 0 else f"ended, exit code {result.exit}"
    text = f" {end}: {words.count(result.steps, 'step')} in {words.duration(result.seconds)}"
    text += f", loss {words.number(result.loss)}"
    if result.accuracy is not None:
        text += f", accuracy {words.accuracy(result.accuracy)}"
    if result.exit or result.diverged:
        text += f"; {words.clean(result.reason)}"
    return Text(text, style="bold red" if result.exit or result.diverged else "bold green")


# ---------------------------------------------------------------- loss and time


def _loss(view: RunView, width: int, height: int) -> list[Text]:
    losses = view.losses.points
    title = _labelled("loss").append(words.number(view.loss), style="bold magenta")
    title.append(f"  mean of {min(view.steps_seen, 25)} steps" if view.steps_seen else "", style="dim")
    low, high = chart.span(losses)
    labels = [""] * height
    if losses and height and low <= high:
        labels[-1] = words.number(low, 3)
        labels[0] = words.number(high, 3)
    drawn = chart.area(losses, max(1, width - LABEL), height=height)
    return [title, *(_axis(label).append(line, style="magenta") for label, line in zip(labels, drawn, strict=True))]


def _labelled(label: str) -> Text:
    return Text().append(label.ljust(LABEL), style="bold")


def _axis(label: str) -> Text:
    return Text().append(f"{label:>{LABEL - 2}} ", style="dim").append("│", style="bright_black")


def _accuracy(view: RunView, width: int) -> Text:
    line = _labelled("held out")
    last = view.last_eval
    if last is None:
        return line.append("not evaluated yet", style="dim")
    text = f"loss {words.number(last.loss)}"
    if last.metric is not None:
        text = f"accuracy {words.accuracy(last.metric)}  {text}"
    tail = f"  {text}  after {words.count(last.step, 'step')}"
    room = max(0, min(40, width - LABEL - len(tail)))
    return line.append(chart.sparkline(view.metrics.points, room), style="green").append(tail)


def _timing(view: RunView) -> Text:
    line = _labelled("step")
    if view.last_step is None:
        return line.append("none yet", style="dim")
    speed = view.steps_per_second
    parts = [
        f"{words.duration(view.open_seconds)} to close",
        f"{words.duration(view.period)} in all",
        f"{words.number(speed, 3)} steps/s",
        f"late {words.percent(view.late_fraction)}",
        f"used {len(view.last_step.used)}/{max(1, len(view.workers))}",
    ]
    return line.append("  ".join(parts))
