"""The parts of the dashboard that are about the whole run: is it learning, is it fast, is the estimate good."""

import math
from collections.abc import Callable, Sequence

from pgczmq.picture import Numbers, Picture, StepTime
from pgczmq.runlog import EventRecord
from pgczmq.view import words
from pgczmq.view.live import chart
from pgczmq.view.live.lines import Line, beside, stacked, text, titled

Write = Callable[[float], str]

AXIS = 9  # cells left of a chart: a number and the axis
WIDE_ENOUGH_FOR_TWO = 64
GAP = 3
CHART_LEAST = 5
FULL = 4.0  # times the typical value fill a cell
PARTS = (  # of a step's time: name, mark, style; the marks differ for those who see no colours
    ("compute", "━", "green"),
    ("delay", "╍", "yellow"),
    ("send", "═", "cyan"),
    ("wait", "┅", "red"),
    ("combine", "─", "blue"),
    ("update", "╌", "magenta"),
    ("write", "┄", ""),
)
EVENT_STYLES = {
    "left": "red",
    "refused": "red",
    "waiting": "bold red",
    "stall": "yellow",
    "partial": "yellow",
    "warning": "yellow",
    "error": "bold red",
    "ready": "green",
    "enough": "green",
    "resumed": "cyan",
    "checkpoint": "blue",
}


# ---------------------------------------------------------------- is it learning


def learning(picture: Picture, width: int, height: int) -> list[Line]:
    """Loss over the steps, and beside it the metric on held-out data; the numbers alone where there is no room."""
    facts = _losses(picture)
    title = titled("learning", width, facts)
    if height < 4:
        return [title]
    evaluated = picture.metric.history or picture.held_out.history
    if width < WIDE_ENOUGH_FOR_TWO or not evaluated:
        return [title, *_loss_chart(picture, width, height - 1)]
    half = (width - GAP) // 2
    metric = bool(picture.metric.history)
    values = picture.metric.history if metric else picture.held_out.history
    write: Write = words.accuracy if metric else _short
    right = curve(values, half, height - 1, style="green", write=write, ends=_evaluations(picture))
    return [title, *beside(_loss_chart(picture, width - half - GAP, height - 1), right, width - half)]


def _losses(picture: Picture) -> list[Line]:
    loss = picture.loss.typical
    broken = loss is not None and not math.isfinite(loss)
    facts = [text("loss ", "dim").add(words.number(loss), "bold red" if broken else "bold magenta")]
    held_out = picture.evaluation
    if held_out is None:
        return facts
    if held_out.metric is not None:
        facts.append(text("accuracy ", "dim").add(words.accuracy(held_out.metric), "bold green"))
    style = "" if held_out.metric is not None else "bold green"
    facts.append(text("held-out loss ", "dim").add(words.number(held_out.loss), style))
    return [*facts, text(f"after {held_out.step:,}", "dim")]


def _evaluations(picture: Picture) -> tuple[str, str]:
    what = "accuracy" if picture.metric.history else "held-out loss"
    return what, f"{picture.evaluation.step:,} steps" if picture.evaluation else ""


def _loss_chart(picture: Picture, width: int, height: int) -> list[Line]:
    return curve(picture.loss.history, width, height, style="magenta", write=_short, ends=_steps("loss", picture))


def _steps(what: str, picture: Picture) -> tuple[str, str]:
    """What the ends of a history are called: a run that was gone on with does not begin at 0."""
    first = picture.steps_done - picture.steps_seen
    return f"{what} from {first:,}" if first else what, f"{picture.steps_done:,} steps"


def _short(value: float) -> str:
    return words.number(value, 3)


def curve(
    values: Sequence[float],
    width: int,
    height: int,
    *,
    style: str,
    write: Write,
    ends: tuple[str, str],
) -> list[Line]:
    """A curve with its least and largest value at the left, and what its two ends are below it.

    Args:
        values: oldest first.
        width: cells.
        height: lines, the one below the curve included.
        style: of the curve.
        write: how a value is written.
        ends: of the curve, below it.
    """
    low, high = chart.span(values)
    logarithmic = chart.is_logarithmic(values)
    rows = height - 1
    drawn = chart.curve(chart.logarithms(values) if logarithmic else values, max(1, width - AXIS), height=rows)
    labels = [""] * rows
    if low <= high:
        labels[-1], labels[0] = write(low), write(high)
        if rows >= 7 and low < high:
            labels[rows // 2] = write(_between(low, high, (rows // 2 + 0.5) / rows, logarithmic))
    lines = [
        text(f"{label:>{AXIS - 2}} ", "dim").add("┤" if label else "│", "dim").add(row, style)
        for label, row in zip(labels, drawn, strict=True)
    ]
    first, last = ends
    scale = f" {'log' if logarithmic else ''}".ljust(AXIS - 1)
    foot = text(scale, "dim").add("╰ ", "dim").add(first, "dim").add(" ")
    return [*lines, foot.add("─" * (width - foot.width - len(last) - 1), "dim").add(f" {last}", "dim").cut(width)]


def _between(low: float, high: float, from_top: float, logarithmic: bool) -> float:
    if logarithmic:
        return math.exp(math.log(high) + (math.log(low) - math.log(high)) * from_top)
    return high + (low - high) * from_top


# ---------------------------------------------------------------- is it fast


def speed(picture: Picture, width: int, height: int) -> list[Line]:
    """Seconds a step, where they go, and how they went over the run."""
    title = titled("step", width, _speeds(picture))
    if height < 3:
        return [title]
    lines = [title, *_parts_of_a_step(picture.time, width, legend=2 if height >= 4 else 1)]
    room = height - len(lines)
    if room >= 4 and picture.period.history:
        ends = _steps("time of a step", picture)
        lines += curve(picture.period.history, width, room, style="blue", write=words.duration, ends=ends)
    elif room >= 1 and picture.period.history:
        lines += [history_line("time", picture.period, width, words.duration, style="blue")]
    return lines[:height]


def _speeds(picture: Picture) -> list[Line]:
    if not picture.steps_seen:
        return [text("none yet", "dim")]
    waited, late = picture.waited.typical or 0.0, picture.late_fraction
    return [
        text(words.duration(picture.period.typical), "bold blue"),
        text("waited ", "dim").add(words.percent(picture.waited.typical), "bold yellow" if waited > 0.25 else ""),
        text("late ", "dim").add(words.percent(late), "yellow" if late else ""),
        text(f"{words.number(picture.steps_per_second, 3)} steps/s", "dim"),
    ]


def _parts_of_a_step(time: StepTime | None, width: int, *, legend: int) -> list[Line]:
    """One bar, and below it what its pieces are; the large ones first where not all can be named."""
    if time is None:
        return [text("no step's time is known yet", "dim")]
    seconds = [max(0.0, getattr(time, name)) for name, _, _ in PARTS]
    line = Line()
    for (_, mark, style), cells in zip(PARTS, chart.parts(seconds, width), strict=True):
        line.add(mark * cells, style)
    return [line, *named(list(zip(PARTS, seconds, strict=True)), width, legend)]


def named(parts: Sequence[tuple[tuple[str, str, str], float]], width: int, rows: int) -> list[Line]:
    """A legend of a bar in so many lines at most; what takes less than a hundredth of the whole is left out."""
    whole = sum(seconds for _, seconds in parts)
    lines = [Line()]
    for (name, mark, style), seconds in parts:
        entry = text(mark * 2, style).add(f" {name} ", "dim").add(words.duration(seconds))
        if seconds < whole / 100 or not whole:
            continue
        if lines[-1].width + entry.width + 2 > width:
            if len(lines) == rows:
                break
            lines.append(Line())
        lines[-1].add("  " if lines[-1].width else "").join(entry)
    return [line.cut(width) for line in lines]


def history_line(name: str, numbers: Numbers, width: int, write: Write, *, style: str) -> Line:
    """A name, a curve one line high, and its last value."""
    last = numbers.last
    said = f" {write(last) if last is not None else words.NOTHING:>8}"
    line = text(f"{name:<9} ", "dim")
    room = max(0, width - line.width - len(said))
    low, high = chart.span(numbers.history)
    if numbers.typical is not None and numbers.typical > 0:
        high = min(high, FULL * numbers.typical)  # one stray must not flatten all
    return line.add(chart.sparkline(numbers.history, room, low=low, high=high).rjust(room), style).add(said).cut(width)


# ---------------------------------------------------------------- is the estimate good


def estimate(picture: Picture, width: int, height: int) -> list[Line]:
    """What the last step's estimate was made of, and how that went over the run, as far as it changed."""
    if not picture.steps_seen:
        return [titled("estimate", width, [text("none yet", "dim")])]
    title = titled("estimate", width, _estimated(picture))
    changing = _changing(picture)
    if changing and (height - 1) // rows_of_charts(len(changing), width) >= CHART_LEAST:
        return [title, *_charts(changing, picture, width, height - 1)]
    return [
        title,
        *(history_line(name, numbers, width, write, style=style) for name, numbers, write, style in changing),
    ]


def estimate_wants(picture: Picture) -> int:
    """Lines that show all there is, a line each."""
    return 1 + len(_changing(picture))


def _changing(picture: Picture) -> list[tuple[str, Numbers, Write, str]]:
    """What was not the same all the time: name, numbers, how to write one, style."""
    all_there_is: list[tuple[str, Numbers, Write, str]] = [
        ("recovered", picture.recovered, words.percent, "green"),
        ("age", picture.age, _short, "cyan"),
        ("k", picture.k, _short, "yellow"),
        ("batch", picture.batch_fraction, words.percent, "magenta"),
    ]
    spans = [chart.span(numbers.history) for _, numbers, _, _ in all_there_is]
    return [one for one, (low, high) in zip(all_there_is, spans, strict=True) if low < high]


def rows_of_charts(count: int, width: int) -> int:
    """Two stand side by side where there is room."""
    return -(-count // 2) if width >= WIDE_ENOUGH_FOR_TWO else count


def _charts(
    changing: Sequence[tuple[str, Numbers, Write, str]], picture: Picture, width: int, height: int
) -> list[Line]:
    rows = rows_of_charts(len(changing), width)
    beside_each_other = -(-len(changing) // rows)
    each = (width - GAP * (beside_each_other - 1)) // beside_each_other
    drawn = [
        curve(numbers.history, each, height // rows, style=style, write=write, ends=_steps(name, picture))
        for name, numbers, write, style in changing
    ]
    return in_grid(drawn, beside_each_other, each + GAP)


def in_grid(blocks: Sequence[list[Line]], columns: int, step: int) -> list[Line]:
    """Blocks of lines from left to right and from top to bottom, ``step`` cells from one to the next."""
    lines: list[Line] = []
    for first in range(0, len(blocks), columns):
        row = blocks[first]
        for place, block in enumerate(blocks[first + 1 : first + columns], 1):
            row = list(beside(row, block, place * step))
        lines += row
    return lines


def _estimated(picture: Picture) -> list[Line]:
    """The most important first."""
    recovered, oldest = picture.recovered.typical, picture.oldest.last
    said = words.number(picture.age.typical, 2) + (f" to {oldest:.0f}" if oldest else "")
    facts = [
        text("recovered ", "dim").add(words.percent(recovered), "bold green" if recovered == 1 else "bold yellow"),
        text("age ", "dim").add(said),
        text("used ", "dim").add(f"{picture.last_used} of {len(picture.workers)}"),
        text("k ", "dim").add(words.number(picture.k.last, 3)),
    ]
    if picture.batch_fraction.last is not None and picture.batch_fraction.last < 1:
        facts.append(text("batch ", "dim").add(words.percent(picture.batch_fraction.last)))
    if picture.weights is not None:
        low, high = (words.number(weight, 2) for weight in picture.weights)
        facts.append(text("weights ", "dim").add(low if low == high else f"{low} to {high}"))
    return facts


# ---------------------------------------------------------------- what happened


def happened(events: Sequence[EventRecord], width: int, height: int) -> list[Line]:
    """The newest events at the bottom, as in a log."""
    title = titled("events", width)
    if not events:
        return stacked([title, text("nothing yet", "dim")], height)[:height]
    newest = events[-(height - 1) :] if height > 1 else []
    return [title, *(event_line(event, width) for event in newest)][:height]


def event_line(event: EventRecord, width: int) -> Line:
    """When, and what."""
    line = text(f"{words.clock(event.at):>7}  ", "dim")
    return line.foreign(event.text, max(0, width - line.width), EVENT_STYLES.get(event.kind, ""))
