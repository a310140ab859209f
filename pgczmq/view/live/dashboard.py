"""A run on one screen: a pure function from a picture of it to lines that fit.

What is shown is decided by one list per column: who gets how many lines, in the order of importance, until there are
none left. Foreign text is never markup, and the height is known beforehand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgczmq.picture import Picture
from pgczmq.runlog import EventRecord, Result
from pgczmq.view import words
from pgczmq.view.live import panels
from pgczmq.view.live.detail import help_lines, latencies, latencies_want, worker_detail
from pgczmq.view.live.keys import Look
from pgczmq.view.live.lines import Frame, Line, beside, stacked, text
from pgczmq.view.live.workers import cells_high, in_order, worker_lines

WIDEST = 240
"""Wider than this a line is hard to follow; the rest of the terminal stays empty."""
TWO_COLUMNS = 116
"""From this width on, panels stand side by side."""
GUTTER = 3
FOOTER_FROM = 8  # lines of a terminal that has room for the names of the keys
ROOMY = 30
QUIET_SECONDS = 2.0
EVENTS_BESIDE_LATENCIES = 7
FOOTER = (("q", "leave"), ("s", "sort"), ("w", "worker"), ("j/k", "next"), ("p", "pause"), ("?", "help"))

Grants = Sequence[tuple[str, int]]
"""(panel, lines it is to have): granted in this order while there are lines left."""


@dataclass(frozen=True)
class Shown:
    """All that a frame is made of, so that panels have one argument.

    Args:
        picture: the run.
        now: seconds since the run's start.
        look: what keys have changed.
        note: about where the picture comes from.
        events: what happened, and what was logged, in the order of time.
        keys: whether there is somebody who can press any.
    """

    picture: Picture
    now: float
    look: Look
    note: str
    events: Sequence[EventRecord]


def render(
    picture: Picture,
    *,
    now: float,
    width: int,
    height: int,
    look: Look | None = None,
    note: str = "",
    said: Sequence[EventRecord] = (),
) -> Frame:
    """The run in at most ``height`` lines of at most ``width`` cells.

    Args:
        picture: what is known.
        now: seconds since the run's start.
        width: cells.
        height: lines.
        look: what keys have changed; None where there are no keys, and no line that names them.
        note: a sentence about where the picture comes from; empty when all is well.
        said: what this program logged meanwhile, shown among the events.
    """
    width, height = max(1, min(width, WIDEST)), max(1, height)
    now = picture.at if picture.virtual else now  # between two simulated records no time passes
    events = sorted([*picture.events, *said], key=lambda event: event.at) if said else picture.events
    shown = Shown(picture, now, look or Look(), note, events)
    news = _news(shown, width) or [Line()] * (height >= ROOMY)  # where there is room, nothing moves when there are any
    head = [_header(picture, width), _progress(picture, now, width), *news]
    foot = [_footer(shown.look, width)] if look is not None and height >= FOOTER_FROM else []
    body = _body(shown, width, max(0, height - len(head) - len(foot)))
    lines = [*stacked([*head, *body], height - len(foot)), *foot] if foot else [*head, *body][:height]
    return Frame(tuple(line.cut(width) for line in lines))


def _body(shown: Shown, width: int, height: int) -> list[Line]:
    if height <= 0:
        return []
    if shown.look.help:
        return help_lines(width, height)
    if width < TWO_COLUMNS:
        return _column(shown, width, height, _narrow(shown, width))
    left = (width - GUTTER) * 43 // 100
    right = width - GUTTER - left
    columns = _column(shown, left, height, _left(shown)), _column(shown, right, height, _right(shown, right, height))
    return list(beside(*columns, left + GUTTER))


# ---------------------------------------------------------------- who gets which lines


def _narrow(shown: Shown, width: int) -> Grants:
    everyone, workers, happened = _all_workers(shown, width), _worker_panel(shown), bool(shown.events)
    if workers == "detail":
        return [("learning", 1), ("speed", 1), ("estimate", 1), (workers, 24), ("learning", 9), ("happened", 99)]
    return [
        ("learning", 1),
        ("speed", 1),
        (workers, min(everyone, 5)),
        ("learning", 5),
        ("estimate", 1),
        ("speed", 3),
        (workers, min(everyone, 10)),
        ("learning", 7),
        ("happened", 3 if happened else 0),
        ("speed", 4),
        (workers, min(everyone, 16)),
        ("estimate", panels.estimate_wants(shown.picture)),
        ("happened", 5 if happened else 0),
        ("speed", 5),
        ("learning", 9),
        (workers, everyone),
        ("happened", 8),
        ("learning", 14),
        ("speed", 9),
        ("happened", 99),
    ]


def _left(shown: Shown) -> Grants:
    wanted = panels.estimate_wants(shown.picture)
    charts = wanted > 1  # something in it changes
    return [
        ("learning", 6),
        ("speed", 3),
        ("estimate", 1),
        ("learning", 9),
        ("speed", 4),
        ("estimate", wanted),
        ("speed", 5),
        ("learning", 12),
        ("speed", 9),
        ("learning", 16),
        ("estimate", 10 if charts else 1),
        ("speed", 12),
        ("estimate", 20 if charts else 1),
        ("learning", 99),
    ]


def _right(shown: Shown, width: int, height: int) -> Grants:
    everyone, workers = _all_workers(shown, width), _worker_panel(shown)
    wanted = latencies_want(shown.picture, width) if workers == "workers" else 0
    room = height - everyone - EVENTS_BESIDE_LATENCIES
    return [
        (workers, min(everyone, 10)),
        ("happened", 5),
        (workers, everyone),
        ("latencies", wanted if wanted <= room else 0),
        ("happened", 99),
    ]


def _worker_panel(shown: Shown) -> str:
    return "workers" if shown.look.chosen is None else "detail"


def _all_workers(shown: Shown, width: int) -> int:
    """Lines that show all the workers: a row each when they are few, else rows for the worst and a cell for each."""
    count = len(shown.picture.workers)
    if shown.look.chosen is not None:
        return 26
    return 2 + (count if count <= 48 else 40 + cells_high(count, width))


def _column(shown: Shown, width: int, height: int, grants: Grants) -> list[Line]:
    """The panels of one column, each as high as it was granted, those with more than a title set apart by a line."""
    heights: dict[str, int] = {}
    left = height
    for panel, wanted in grants:
        more = min(left, max(0, wanted - heights.get(panel, 0)))
        if more and (panel in heights or more > 1 or wanted == 1):
            heights[panel] = heights.get(panel, 0) + more
            left -= more
    lines: list[Line] = []
    for panel, draw in _PANELS.items():
        if heights.get(panel):
            lines += stacked(draw(shown, width, heights[panel]), heights[panel])
    return lines


_PANELS: dict[str, Callable[[Shown, int, int], list[Line]]] = {
    "learning": lambda shown, width, height: panels.learning(shown.picture, width, height),
    "speed": lambda shown, width, height: panels.speed(shown.picture, width, height),
    "estimate": lambda shown, width, height: panels.estimate(shown.picture, width, height),
    "workers": lambda shown, width, height: worker_lines(
        shown.picture, width, height=height, now=shown.now, sort=shown.look.sort, chosen=shown.look.last
    ),
    "detail": lambda shown, width, height: worker_detail(
        shown.picture, shown.look.chosen or 0, shown.events, width, height=height, now=shown.now
    ),
    "latencies": lambda shown, width, height: latencies(in_order(shown.picture, shown.look.sort), width, height),
    "happened": lambda shown, width, height: panels.happened(shown.events, width, height),
}


# ---------------------------------------------------------------- the lines that are always there


def _header(picture: Picture, width: int) -> Line:
    run = picture.run
    if run is None:
        return text("starting: no record of the run yet", "dim")
    facts = Line().foreign(run.scheme, 24, "bold cyan").add(f" s={run.stragglers}  ", "cyan")
    facts.foreign(run.task, 32, "cyan").add(f"  {words.count(run.workers, 'worker')}", "cyan")
    name = Line().foreign(run.name, max(8, width - facts.width - 2), "bold")
    return name.to(max(name.width + 2, width - facts.width)).join(facts)


def _progress(picture: Picture, now: float, width: int) -> Line:
    done, steps = picture.steps_done, picture.steps
    share = min(1.0, done / steps) if steps else 0.0
    elapsed = picture.result.seconds if picture.result else now
    times = f"{words.clock(elapsed)} {'of virtual time' if picture.virtual else 'elapsed'}"
    if picture.result is None:
        times += f"  {words.clock(picture.seconds_left)} left"
    # 99.96 % is not done yet: rounding down keeps "100 %" for the end
    counted = f" {int(100 * share):3} %  {done:,}/{steps:,} steps" if steps else f"  {words.count(done, 'step')}"
    counted += f"  {times}"
    room = max(4, width - len(counted))
    whole = int(share * room)
    line = text("━" * whole, "green" if whole == room else "blue")
    return line.add("─" * (room - whole), "dim").add(counted)


def _news(shown: Shown, width: int) -> list[Line]:
    """What matters most now, if anything does: the end, a note, waiting for workers, a slow step."""
    picture, now = shown.picture, shown.now
    lines = []
    if picture.result is not None:
        lines.append(_ending(picture.result, width))
    if shown.note:
        lines.append(Line().foreign(shown.note, width, "yellow"))
    if picture.result is None and picture.waiting:
        lines.append(Line().foreign(f" WAITING  {picture.waiting}", width, "bold reverse red"))
        lines[-1].add(" " * (width - lines[-1].width), "bold reverse red")
    elif picture.result is None and picture.starting:
        lines.append(Line().foreign(picture.starting, width, "yellow"))
    elif picture.result is None and picture.applied_at is not None:
        quiet = now - picture.applied_at
        if quiet > max(QUIET_SECONDS, 5 * (picture.period.typical or 0.0)):
            lines.append(text(f"step {picture.steps_done} has been open for {words.duration(quiet)}", "yellow"))
    return lines


def _ending(result: Result, width: int) -> Line:
    """How it went; why it ended comes first where that was not as planned, since a line may be cut."""
    said = f"{words.count(result.steps, 'step')} in {words.duration(result.seconds)}, loss {words.number(result.loss)}"
    if result.accuracy is not None:
        said += f", accuracy {words.accuracy(result.accuracy)}"
    if not result.exit and not result.diverged:
        return Line().foreign(f"done: {said}", width, "bold green")
    return Line().foreign(f"{result.reason} (exit code {result.exit}); {said}", width, "bold red")


def _footer(look: Look, width: int) -> Line:
    line = Line()
    for key, meaning in FOOTER:
        line.add(f" {key} ", "reverse").add(f" {meaning}  ")
    if look.paused:
        line = text(" PAUSED ", "bold reverse yellow").add(" the run goes on  ").join(line)
    return line.cut(width)
