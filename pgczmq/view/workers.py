"""One line per worker, in as many lines as there are: the worst first when they do not all fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.text import Text

from pgczmq.view import chart, words
from pgczmq.view.state import RunView, WorkerView

COLUMN_WIDTH = 72
GAP = "   "
BESIDE_THE_BAR = 53  # cells of a worker's line that are not its bar
LONGEST_BAR = 40
STATE_STYLES = {"gone": "bold red", "absent": "red", "ready": "green"}
SLOW, VERY_SLOW = 1.5, 3.0  # times the median latency


@dataclass(frozen=True)
class Scale:
    """What latencies are compared with: the longest fills a bar, the typical one is not slow. Seconds."""

    longest: float
    typical: float

    @classmethod
    def of(cls, workers: Sequence[WorkerView]) -> "Scale":
        """From the last latencies of these workers."""
        known = [w.latency for w in workers if w.latency is not None and math.isfinite(w.latency)]
        return cls(max(known), median(known)) if known else cls(0.0, 0.0)

    def style(self, latency: float) -> str:
        """Green, or yellow and red for the slow."""
        if latency > VERY_SLOW * self.typical:
            return "red"
        return "yellow" if latency > SLOW * self.typical else "green"


def rows_wanted(workers: int, width: int, *, rows: int) -> int:
    """Lines that show all the workers: side by side only when one column is higher than ``rows``."""
    return workers if workers <= rows else -(-workers // _columns(width))


def worker_lines(view: RunView, width: int, *, rows: int) -> list[Text]:
    """A heading and at most ``rows`` lines.

    Args:
        view: the run.
        width: cells.
        rows: at least 1.
    """
    everyone = sorted(view.workers.values(), key=lambda worker: worker.worker)
    columns = 1 if len(everyone) <= rows else _columns(width)
    shown = everyone
    if len(everyone) > rows * columns:
        shown = sorted(everyone, key=lambda worker: _badness(view, worker))[: (rows - 1) * columns]
    cell = (width - (columns - 1) * len(GAP)) // columns
    scale = Scale.of(everyone)
    body = [_worker(view, worker, cell, scale=scale) for worker in shown]
    height = -(-len(body) // columns)
    lines = [_beside([_heading(cell)] * columns), *(_beside(body[row::height]) for row in range(height))]
    if len(shown) < len(everyone):
        more = f"and {len(everyone) - len(shown)} more" if shown else words.count(len(everyone), "worker")
        lines.append(Text(f"{'':6}{more}", style="dim"))
    return lines


def _columns(width: int) -> int:
    return max(1, (width + len(GAP)) // (COLUMN_WIDTH + len(GAP)))


def _beside(cells: Sequence[Text]) -> Text:
    return Text(GAP).join(cells)


def _badness(view: RunView, worker: WorkerView) -> tuple[float, ...]:
    """Sorts the worst first: gone, then missing, late and slow."""
    away = worker.state in {"gone", "absent"}
    missing, late = view.missing_fraction(worker), worker.late_fraction
    return (-float(away), -missing, -late, -(worker.latency or 0.0), worker.worker)


def _bar_width(cell: int) -> int:
    return max(0, min(LONGEST_BAR, cell - BESIDE_THE_BAR))


def _heading(cell: int) -> Text:
    bar = "".ljust(_bar_width(cell))
    heading = f"{'worker':>6}  {'state':<10}  {bar} {'latency':>8} {'late':>6} {'missing':>8} {'ages':>6}"
    return _exactly(Text(heading, style="bold"), cell)


def _worker(view: RunView, worker: WorkerView, cell: int, *, scale: Scale) -> Text:
    away = worker.state in {"gone", "absent"}
    line = Text(f"{worker.worker:>6}  ", style="dim" if away else "")
    state = Text(words.clean(worker.state), style=STATE_STYLES.get(worker.state, "cyan"))
    line.append_text(_exactly(state, 10)).append("  ")
    latency = worker.latency
    share = latency / scale.longest if latency is not None and scale.longest > 0 else 0.0
    line.append(chart.bar(share, _bar_width(cell)), style=scale.style(latency or 0.0))
    line.append(f" {words.duration(latency):>8}")
    line.append(f" {words.percent(worker.late_fraction):>6}", style="yellow" if worker.late else "dim")
    line.append(f" {words.percent(view.missing_fraction(worker)):>8}", style="yellow" if worker.missing else "dim")
    line.append(f" {_ages(worker):>6}")
    return _exactly(line, cell)


def _ages(worker: WorkerView) -> str:
    if worker.ages is None:
        return words.NOTHING
    newest, oldest = worker.ages
    return f"{newest}" if newest == oldest else f"{newest}-{oldest}"


def _exactly(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis", pad=True)
    return line
