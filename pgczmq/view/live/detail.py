"""One worker, as closely as a picture shows it; and the words of the dashboard explained."""

from collections.abc import Sequence
from itertools import groupby

from pgczmq.picture import Picture, WorkerPicture
from pgczmq.runlog import EventRecord
from pgczmq.view import words
from pgczmq.view.live import chart
from pgczmq.view.live.columns import STATE_STYLES, Scale, ages
from pgczmq.view.live.lines import Line, stacked, text, titled
from pgczmq.view.live.panels import GAP, PARTS, curve, event_line, in_grid, named

OUTCOMES = {  # letter in a picture: name, mark, style
    "u": ("used", "●", "green"),
    "s": ("spare", "○", "cyan"),
    "l": ("late", "◆", "yellow"),
    "m": ("missing", "×", "red"),
}
EVENTS_LEAST = 3
CHART_LEAST, CHART_MOST = 4, 12
SMALL_WIDE, SMALL_HIGH = 30, 6  # a chart of one among several workers


def worker_detail(
    picture: Picture, number: int, events: Sequence[EventRecord], width: int, *, height: int, now: float
) -> list[Line]:
    """A worker in ``height`` lines: its latencies, what became of its answers, where its time goes, what happened."""
    worker = next((one for one in picture.workers if one.worker == number), None)
    if worker is None:
        return stacked([titled(f"worker {number}", width), text("is not in this run", "dim")], height)[:height]
    title = titled(f"worker {number}", width, _who(worker, now))
    facts = [_latencies(worker, picture), *_outcomes(worker, picture, width), *_time(worker, width)]
    theirs = [event for event in events if event.worker == number]
    free = height - 1 - len(facts)
    rows = min(CHART_MOST, free - (EVENTS_LEAST if theirs else 0))
    drawn = _chart(worker, width, rows) if rows >= CHART_LEAST else []
    lines = [title, *(line.cut(width) for line in facts), *drawn]
    left = height - len(lines)
    newest = theirs[-(left - 1) :] if left > 1 else []
    if newest:
        lines += [titled("its events", width), *(event_line(event, width) for event in newest)]
    return stacked(lines, height)


def _who(worker: WorkerPicture, now: float) -> list[Line]:
    facts = [Line().foreign(worker.state, 20, STATE_STYLES.get(worker.state, "cyan"))]
    if worker.step is not None:
        facts.append(text(f"step {worker.step:,}", "dim"))
    if worker.heard_at is not None:
        facts.append(text(f"heard of {_since(now - worker.heard_at)}", "dim"))
    return [*facts, Line().foreign(worker.host, 40, "dim")]


def _since(seconds: float) -> str:
    said = words.ago(seconds)
    return "just now" if said == "now" else said if said == words.NOTHING else f"{said} ago"


def _latencies(worker: WorkerPicture, picture: Picture) -> Line:
    scale = Scale.of(picture.workers)
    line = text("latency   ", "dim").add(words.duration(worker.latency), scale.style(worker.latency))
    line.add("  median ", "dim").add(words.duration(worker.typical), scale.style(worker.typical))
    if worker.typical and scale.typical:
        line.add(f"  {worker.typical / scale.typical:.1f} times that of a typical worker", "dim")
    return line.add("  ages ", "dim").add(ages(worker))


def _outcomes(worker: WorkerPicture, picture: Picture, width: int) -> list[Line]:
    """What became of its answers: the newest steps one by one, and all of them as shares."""
    strip = text("newest    ", "dim")
    for letter, run in groupby(worker.outcomes):
        _, mark, style = OUTCOMES.get(letter, ("", "?", ""))
        strip.add(mark * len(list(run)), style)
    shares = text("of steps  ", "dim")
    counts = {"u": worker.used, "s": worker.spare, "l": worker.late, "m": worker.missing - worker.late}
    for letter, count in counts.items():
        name, mark, style = OUTCOMES[letter]
        share = max(0, count) / picture.steps_seen if picture.steps_seen else None
        shares.add(mark, style).add(f" {name if letter != 'm' else 'no answer'} ", "dim").add(words.percent(share)).add(
            "  "
        )
    return [strip.cut(width), shares.cut(width)]


def _time(worker: WorkerPicture, width: int) -> list[Line]:
    """Where the time of its answers goes."""
    known = [(part, getattr(worker, part[0])) for part in PARTS[:3]]
    parts = [(part, max(0.0, seconds)) for part, seconds in known if seconds is not None]
    if not parts:
        return [text("its time  ", "dim").add("unknown", "dim")]
    line = text("its time  ", "dim")
    for ((_, mark, style), _), cells in zip(parts, chart.parts([s for _, s in parts], width - line.width), strict=True):
        line.add(mark * cells, style)
    return [line, *(text(" " * 10).join(entry) for entry in named(parts, width - 10, 1))]


def _chart(worker: WorkerPicture, width: int, height: int) -> list[Line]:
    ends = (f"{len(worker.recent)} steps ago", "latency, now")
    return curve(worker.recent, width, height, style="blue", write=words.duration, ends=ends)


def latencies(workers: Sequence[WorkerPicture], width: int, height: int) -> list[Line]:
    """The newest latencies of as many workers as there is room for, side by side, each on its own scale.

    Args:
        workers: those who come first.
        width: cells.
        height: lines.
    """
    columns = max(1, (width + GAP) // (SMALL_WIDE + GAP))
    each = (width - GAP * (columns - 1)) // columns
    shown = workers[: columns * ((height - 1) // SMALL_HIGH)]
    drawn = [
        curve(
            worker.recent,
            each,
            SMALL_HIGH,
            style="blue",
            write=words.duration,
            ends=(f"worker {worker.worker}", f"{words.duration(worker.latency)}"),
        )
        for worker in shown
    ]
    return [titled("latencies of the newest steps", width), *in_grid(drawn, columns, each + GAP)]


def latencies_want(picture: Picture, width: int) -> int:
    """Lines for all the workers; none before there is anything to draw."""
    columns = max(1, (width + GAP) // (SMALL_WIDE + GAP))
    return 1 + SMALL_HIGH * -(-len(picture.workers) // columns) if picture.steps_seen else 0


# ---------------------------------------------------------------- help

KEYS = (
    ("q", "leave the view; the run goes on"),
    ("s", "sort the workers: worst first, by number, latency, late answers"),
    ("w, enter", "one worker closely, and back"),
    ("j k, arrows", "the next worker, the one before"),
    ("p", "hold the view still, and go on; the run does not stop"),
    ("?", "this page"),
    ("Ctrl+C", "end this program; a run ends with a checkpoint (--resume auto)"),
)
WORDS = (
    ("used", "the worker's answer is part of the estimate"),
    ("spare", "it came in time, and was not needed"),
    ("late", "it came after its step had closed"),
    ("miss", "the step closed without it; a late answer counts here too"),
    ("ages", "how many steps old the parts of its last used answer were"),
    ("waited", "share of a step between half of the answers and its closing"),
    ("recovered", "share of the data's partitions that is in the estimate"),
    ("wait", "time until a step closed that was not compute, delay or send"),
    ("seen", "how long ago the worker was heard of"),
)


def help_lines(width: int, height: int) -> list[Line]:
    """What the keys do and what the words mean."""
    lines = [titled("keys", width), *_explained(KEYS, width), Line(), titled("words", width), *_explained(WORDS, width)]
    return stacked(lines, height)


def _explained(pairs: Sequence[tuple[str, str]], width: int) -> list[Line]:
    return [text(f"  {name:<12}", "bold").add(meaning).cut(width) for name, meaning in pairs]
