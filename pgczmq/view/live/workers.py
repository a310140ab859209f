"""The workers: a row each, and a cell each when there are more than rows."""

import math
from collections.abc import Callable, Sequence

from pgczmq.picture import Picture, WorkerPicture
from pgczmq.view import words
from pgczmq.view.live import chart
from pgczmq.view.live.columns import AWAY, HEALTHY, LEFT, Row, Scale, columns
from pgczmq.view.live.keys import Sort
from pgczmq.view.live.lines import Line, text, titled

SORT_WORDS: dict[Sort, str] = {
    "worst": "worst first",
    "number": "by number",
    "latency": "by latency",
    "late": "by late",
}
CELLS_HIGHEST = 8
MANY = 13  # so many workers are worth a field of cells
ROOM_FOR_NAMES = 4  # lines of a panel that has one for the names of its columns


def in_order(picture: Picture, sort: Sort) -> list[WorkerPicture]:
    """All workers in the order in which they are shown; those that are alike by number, so that rows stay in place."""
    scale = Scale.of(picture.workers)
    keys: dict[Sort, Callable[[WorkerPicture], tuple[float, ...]]] = {
        "worst": lambda worker: _badness(worker, picture.steps_seen, scale),
        "number": lambda worker: (),
        "latency": lambda worker: (-(worker.latency or 0.0),),
        "late": lambda worker: (-worker.late, -worker.missing),
    }
    return sorted(picture.workers, key=lambda worker: (*keys[sort](worker), worker.worker))


def _badness(worker: WorkerPicture, steps: int, scale: Scale) -> tuple[float, ...]:
    """Gone, then missing, late and slow, in coarse steps: a row must not jump with every answer."""
    missing = worker.missing / steps if steps else 0.0
    away = worker.state in AWAY
    return (-float(away), -round(10 * missing), -round(10 * worker.late_fraction), -scale.slowness(worker.typical))


def cells_high(count: int, width: int) -> int:
    """Lines of the field with a cell for each worker, its title included."""
    return 1 + -(-count // _cells_wide(count, width))


def _cells_wide(count: int, width: int) -> int:
    """Workers in a line of the field: a round number where it is one of many."""
    most = max(1, width - 7)
    if count <= most:
        return count
    return next((round_one for round_one in (128, 100, 64, 50, 32, 20, 16, 10) if round_one <= most), most)


def worker_lines(
    picture: Picture, width: int, *, height: int, now: float, sort: Sort, chosen: int | None
) -> list[Line]:
    """A title and at most ``height - 1`` lines: the workers in order, and all of them as cells where some are cut.

    Args:
        picture: the run.
        width: cells.
        height: lines, at least 1.
        now: seconds since the run's start.
        sort: the order.
        chosen: whose row is marked.
    """
    everyone, scale = in_order(picture, sort), Scale.of(picture.workers)
    count = len(everyone)
    heading = _heading(picture, width, sort)[: 2 if height >= ROOM_FOR_NAMES else 1]
    left = height - len(heading)
    if count <= left:
        return [*heading, *_rows(picture, everyone, width, now, scale, chosen)]
    field = cell_lines(picture, width, scale)
    if count < MANY or len(field) >= left or len(field) > CELLS_HIGHEST:  # the worst, and how many more
        rows = everyone[: max(0, left - 1)]
        more = text(f"{'':7}and {count - len(rows)} more", "dim").cut(width)
        return [*heading, *_rows(picture, rows, width, now, scale, chosen), more][:height]
    rows = everyone[: left - len(field)]
    field[0] = _cells_title(count - len(rows), scale, width)
    return [*heading, *_rows(picture, rows, width, now, scale, chosen), *field]


def _heading(picture: Picture, width: int, sort: Sort) -> list[Line]:
    away = sum(worker.state in AWAY for worker in picture.workers)
    facts = [text(f"{len(picture.workers) - away} here", "green")]
    facts += [text(f"{away} away", "bold red")] if away else []
    facts.append(text(SORT_WORDS[sort], "dim"))
    chosen, spark, host = columns(width)
    wide = {"recent": spark, "host": host}
    names = []
    for column in chosen:
        size = wide.get(column.heading, column.width)
        names.append(f"{column.heading:<{size}}" if column.heading in LEFT else f"{column.heading:>{size}}")
    return [titled("workers", width, facts), text(" ".join(names), "dim").cut(width)]


def _rows(
    picture: Picture, workers: Sequence[WorkerPicture], width: int, now: float, scale: Scale, chosen: int | None
) -> list[Line]:
    shown, spark, host = columns(width)
    row = Row(now, picture.steps_seen, scale, spark, host)
    lines = []
    for worker in workers:
        line, column_ends = Line(), 0
        for column in shown:
            column_ends += {"recent": spark, "host": host}.get(column.heading, column.width)
            column.write(line, worker, row)
            line.to(column_ends)
            if column is not shown[-1]:
                line.add(" ")
                column_ends += 1
        lines.append(text(line.plain(), "reverse") if worker.worker == chosen else line)
    return lines


def _cells_title(hidden: int, scale: Scale, width: int) -> Line:
    line = text(f"and {hidden} more; all by median latency, ", "dim")
    line.add("▁", "green").add(" to ", "dim").add("█", "red").add(f" {words.duration(scale.longest)} or more  ", "dim")
    return line.add("×", "bold red").add(" away", "dim").cut(width)


def cell_lines(picture: Picture, width: int, scale: Scale) -> list[Line]:
    """A title and a field in which every worker has a cell: as high as its latency, coloured when it is slow."""
    wide = _cells_wide(len(picture.workers), width)
    lines = [_cells_title(0, scale, width)]
    for first in range(0, len(picture.workers), wide):
        line = text(f"{picture.workers[first].worker:>6} ", "dim")
        run, style = "", ""
        for worker in picture.workers[first : first + wide]:
            cell, its = _cell(worker, scale)
            if its != style:
                line.add(run, style)
                run, style = "", its
            run += cell
        lines.append(line.add(run, style))
    return lines


def _cell(worker: WorkerPicture, scale: Scale) -> tuple[str, str]:
    if worker.state in AWAY:
        return "×", "bold red"
    if worker.typical is None or not math.isfinite(worker.typical):
        return "·", "dim"
    return chart.level(worker.typical, 0.0, scale.longest), scale.style(worker.typical) or HEALTHY
