"""The columns of the table of workers: which fit, and what stands in them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from pgczmq.picture import WorkerPicture
from pgczmq.view import words
from pgczmq.view.live import chart
from pgczmq.view.live.lines import Line

AWAY = frozenset({"gone", "absent"})
STATE_STYLES = {"gone": "bold red", "absent": "red", "here": "green", "ready": "green", "idle": "green"}
HEALTHY = "green"
OFTEN = 0.1  # share of steps
SLOW, VERY_SLOW, FULL = 1.5, 3.0, 4.0  # times the median of all


@dataclass(frozen=True)
class Scale:
    """What the workers are compared with: each other.

    Args:
        longest: seconds that fill a cell.
        typical: median latency, in seconds.
        late, missing: median numbers of steps.
    """

    longest: float
    typical: float
    late: float
    missing: float

    @classmethod
    def of(cls, workers: Sequence[WorkerPicture]) -> "Scale":
        """From the typical latencies of these workers, and the last ones for how long they get."""
        known = [w.typical for w in workers if w.typical is not None and math.isfinite(w.typical)]
        last = [w.latency for w in workers if w.latency is not None and math.isfinite(w.latency)]
        typical = median(known) if known else 0.0
        longest = max(known + last, default=0.0)
        return cls(
            longest=min(longest, FULL * typical) if typical else longest,  # one stray must not flatten all
            typical=typical,
            late=median(w.late for w in workers) if workers else 0.0,
            missing=median(w.missing for w in workers) if workers else 0.0,
        )

    def slowness(self, latency: float | None) -> int:
        """0, or 1 and 2 for the slow."""
        if latency is None or not self.typical:
            return 0
        return 2 if latency > VERY_SLOW * self.typical else 1 if latency > SLOW * self.typical else 0

    def style(self, latency: float | None) -> str:
        """Yellow and red for the slow."""
        return ("", "yellow", "red")[self.slowness(latency)]


@dataclass(frozen=True)
class Row:
    """What a row is made of, beside its worker.

    Args:
        now: seconds since the run's start.
        steps: that the counts are about.
        scale: of all workers.
        spark: cells of the curve of latencies.
        host: cells of the host's name.
    """

    now: float
    steps: int
    scale: Scale
    spark: int = 0
    host: int = 0


@dataclass(frozen=True)
class Column:
    """One column of the table: ``write`` appends its cell to a line; numbers stand on the right."""

    heading: str
    width: int
    write: Callable[[Line, WorkerPicture, Row], object]


# ---------------------------------------------------------------- the columns


def _number(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{worker.worker:>6}", "dim" if worker.state in AWAY else "bold")


def _state(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.foreign(worker.state, 10, STATE_STYLES.get(worker.state, "cyan"))


def _last(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{words.duration(worker.latency):>7}", row.scale.style(worker.latency))


def _median(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{words.duration(worker.typical):>7}", row.scale.style(worker.typical))


def _recent(line: Line, worker: WorkerPicture, row: Row) -> None:
    newest = worker.recent[-row.spark :]
    drawn = chart.sparkline(newest, row.spark, low=0.0, high=row.scale.longest)
    line.add(drawn.rjust(row.spark), row.scale.style(worker.typical) or HEALTHY)


def _used(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{words.percent(worker.used / row.steps if row.steps else None):>5}")


def _late(line: Line, worker: WorkerPicture, row: Row) -> None:
    _share(line, worker.late, row.scale.late, row.steps)


def _missing(line: Line, worker: WorkerPicture, row: Row) -> None:
    _share(line, worker.missing, row.scale.missing, row.steps)


def _share(line: Line, count: int, typical: float, steps: int) -> None:
    """Coloured when it is large and others have less: schemes that wait for few have many late ones everywhere."""
    share = count / steps if steps else 0.0
    often = share >= OFTEN
    style = "red" if often and count > VERY_SLOW * typical else "yellow" if often and count > SLOW * typical else ""
    line.add(f"{words.percent(share if steps else None):>5}", style if share else "dim")


def _ages(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{ages(worker):>5}")


def _seen(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.add(f"{words.ago(None if worker.heard_at is None else row.now - worker.heard_at):>5}", "dim")


def _host(line: Line, worker: WorkerPicture, row: Row) -> None:
    line.foreign(worker.host or words.NOTHING, row.host, "dim")


RECENT, HOST = Column("recent", 0, _recent), Column("host", 0, _host)
# The first ones are shown wherever there is room for them, in the order of the second list on the screen.
BY_NEED = (
    Column("worker", 6, _number),
    Column("state", 10, _state),
    Column("last", 7, _last),
    RECENT,
    Column("miss", 5, _missing),
    Column("late", 5, _late),
    Column("used", 5, _used),
    Column("median", 7, _median),
    Column("ages", 5, _ages),
    Column("seen", 5, _seen),
    HOST,
)
ON_SCREEN = ("worker", "state", "recent", "last", "median", "used", "late", "miss", "ages", "seen", "host")
SPARK_LEAST, SPARK_MOST, HOST_LEAST, HOST_MOST = 8, 32, 10, 28
LEFT = {"state", "host"}


def columns(width: int) -> tuple[list[Column], int, int]:
    """The columns that fit, and the cells of the curve and of the host among them."""
    least = {"recent": SPARK_LEAST, "host": HOST_LEAST}
    chosen, room = list[Column](), width + 1
    for column in BY_NEED:
        needed = (column.width or least[column.heading]) + 1
        if needed > room:
            break
        chosen.append(column)
        room -= needed
    spark = min(SPARK_MOST, SPARK_LEAST + room) if RECENT in chosen else 0
    host = min(HOST_MOST, HOST_LEAST + room - (spark - SPARK_LEAST)) if HOST in chosen else 0
    return sorted(chosen, key=lambda column: ON_SCREEN.index(column.heading)), spark, host


def ages(worker: WorkerPicture) -> str:
    """Least and largest, or the one that there is."""
    if worker.ages is None:
        return words.NOTHING
    newest, oldest = worker.ages
    return f"{newest}" if newest == oldest else f"{newest}-{oldest}"
