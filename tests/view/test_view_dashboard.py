"""The dashboard fits, shows the right numbers, and takes foreign text for what it is."""

import io
import math

import pytest
from made_up_run import PERIOD, late, records, result, run_record, step_record, view_of
from rich.console import Console

from pgczmq.runlog import EventRecord, WorkerRecord
from pgczmq.view.dashboard import render
from pgczmq.view.state import RunView

SIZES = [(80, 24), (120, 40), (200, 60), (300, 100), (40, 10), (20, 5), (1, 1)]


def shown(view: RunView, width: int = 80, height: int = 24, *, now: float | None = None) -> list[str]:
    console = Console(record=True, width=width, height=height, file=io.StringIO(), force_terminal=True)
    console.print(render(view, now=view.latest_at if now is None else now, width=width, height=height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("workers", [1, 8, 64, 300])
@pytest.mark.parametrize("done", [0, 1, 60])
def test_it_fits(workers: int, size: tuple[int, int], done: int) -> None:
    width, height = size
    view = view_of(*records(workers, done=done))
    lines = shown(view, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_the_numbers_of_a_run() -> None:
    view = view_of(*records(4, done=60))
    lines = shown(view)
    assert lines[0].split() == ["try", "pgc-cr,", "s=1", "digits-cnn", "4", "workers"]
    assert lines[1].endswith("60 %  60/100  0:16 elapsed  0:10 left")
    text = "\n".join(lines)
    loss = sum(2.0 * math.exp(-step / 30) for step in range(35, 60)) / 25
    assert f"loss      {loss:.4g}  mean of 25 steps" in text
    assert "accuracy 59.0 %  loss 0.5  after 60 steps" in text
    # 240 answers, of which worker 3's 30 were late
    assert "200 ms to close  250 ms in all  4 steps/s  late 12 %  used 3/4" in text


def test_one_line_per_worker() -> None:
    rows = [line.split() for line in shown(view_of(*records(4, done=60)))[-4:]]
    for row in rows:
        row[:] = [part for part in row if not set(part) <= {"━", "╸"}]
    assert rows[0] == ["0", "evaluating", "10.0", "ms", "0", "%", "0", "%", "0-1"]
    assert rows[1] == ["1", "ready", "20.0", "ms", "0", "%", "0", "%", "0-1"]
    assert rows[3] == ["3", "ready", "260", "ms", "50", "%", "50", "%", "0-1"]


def test_bars_compare_latencies() -> None:
    rows = shown(view_of(run_record(2), step_record(0, 2)), width=80)[-2:]
    assert rows[1].count("━") == 27  # 20 ms is the longest
    assert (rows[0].count("━"), rows[0].count("╸")) in {(13, 1), (14, 0)}


def test_the_worst_come_first_when_not_all_fit() -> None:
    view = view_of(*records(64, done=10))
    view.add(EventRecord(4.0, "left", "worker 17 has been silent for 6.0 s", 17))
    lines = shown(view, 80, 24)
    assert len(lines) == 24
    heading = next(index for index, line in enumerate(lines) if line.startswith("worker"))
    workers = [line.split()[0] for line in lines[heading + 1 : -1]]
    assert workers[:3] == ["17", "63", "62"]  # gone; missing every second step; the slowest of the others
    assert lines[-1].strip() == f"and {64 - len(workers)} more"


def test_workers_stand_side_by_side_where_there_is_room() -> None:
    lines = shown(view_of(*records(64, done=10)), 200, 60)
    assert not any("more" in line for line in lines)
    row = next(line.split() for line in lines if line.startswith("     0 "))
    assert "32" in row


def test_waiting_for_workers_is_a_red_banner() -> None:
    view = view_of(*records(4, done=10), EventRecord(4.0, "waiting", "step 10 cannot close: missing 0, 3"))
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    console.print(render(view, now=4.0, width=80, height=24))
    banner = console.file.getvalue().splitlines()[2]  # type: ignore[attr-defined]
    assert "WAITING  step 10 cannot close: missing 0, 3" in banner
    assert "41m" in banner


def test_before_the_first_step() -> None:
    assert shown(RunView())[0] == "waiting for the run's first record"
    view = view_of(run_record(), EventRecord(10.0, "starting", "3/4 workers ready, missing 2"))
    text = "\n".join(shown(view))
    assert "3/4 workers ready, missing 2" in text
    assert "0 %  0/100  0:10 elapsed  - left" in text
    assert text.count("absent") == 4


def test_a_step_that_takes_long_is_told() -> None:
    view = view_of(*records(4, done=10))
    last = view.last_step
    assert last is not None
    assert "has been open" not in "\n".join(shown(view, now=last.applied_at + 1.0))
    assert "step 10 has been open for 7.50 s" in "\n".join(shown(view, now=last.applied_at + 7.5))


def test_the_end() -> None:
    view = view_of(*records(4, done=100), result())
    lines = shown(view, now=99.0)
    assert lines[1].endswith("100 %  100/100  0:26 elapsed")
    assert lines[2] == " done: 100 steps in 26.0 s, loss 0.125, accuracy 97.2 %".ljust(len(lines[2]))
    broken = result(diverged=True, loss=math.nan, accuracy=None, reason="diverged at step 7: too much", steps=7)
    assert " diverged: 7 steps in 26.0 s, loss nan; diverged at step 7: too much" in shown(view_of(broken))[2]
    few = result(exit=74, loss=None, accuracy=None, reason="too few workers", steps=0)
    assert " ended, exit code 74: 0 steps in 26.0 s, loss -; too few workers" in shown(view_of(few))[2]


def test_a_hundred_percent_is_for_the_end() -> None:
    view = view_of(run_record(steps=1000), step_record(998))
    assert " 99 %  999/1,000" in shown(view)[1]


@pytest.mark.parametrize("losses", [[math.nan] * 5, [math.inf, -math.inf], [1.0, math.nan, 3.0], [3e38] * 60, [0.0]])
def test_losses_that_are_no_numbers(losses: list[float]) -> None:
    view = view_of(run_record(), *(step_record(step, loss=loss) for step, loss in enumerate(losses)))
    for width, height in SIZES:
        assert len(shown(view, width, height)) <= height


@pytest.mark.parametrize(
    "hostile", ["[/tag]", "[bold", "a\nb\nc", "\x1b[2J\x1b[31m", ":boom:", "漢字" * 60, "é" * 300, ""]
)
def test_foreign_text_is_text(hostile: str) -> None:
    view = view_of(
        run_record(2, name=hostile, task=hostile),
        WorkerRecord(0, 1.0, hostile, 1),
        EventRecord(2.0, "left", f"worker 1 on {hostile} is gone", 1),
    )
    for ending in ([], [EventRecord(3.0, "waiting", hostile)], [result(reason=hostile, exit=74)]):
        for record in ending:
            view.add(record)
        lines = shown(view)
        assert len(lines) <= 24
        assert "\x1b" not in "\n".join(lines)
    if hostile in {"[/tag]", ":boom:"}:
        assert hostile in lines[0]


def test_wide_characters_are_measured_in_cells() -> None:
    from rich.cells import cell_len

    view = view_of(run_record(2, name="漢字" * 60), WorkerRecord(0, 1.0, "漢字" * 9, 1))
    assert all(cell_len(line) <= 80 for line in shown(view))


def test_no_color_takes_the_colours_away() -> None:
    view = view_of(*records(4, done=10), EventRecord(4.0, "waiting", "step 10 cannot close"))
    environment = {"TERM": "xterm-256color", "NO_COLOR": "1"}
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, _environ=environment)
    console.print(render(view, now=4.0, width=80, height=24))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "WAITING" in text
    assert not any(f"{code}m" in text for code in ("31", "32", "34", "35", "36", "41", "91", "38;5"))


def test_rendering_changes_nothing() -> None:
    view = view_of(*records(4, done=60), late(0, 3))
    assert shown(view, now=20.0) == shown(view, now=20.0)
    assert view.period == pytest.approx(PERIOD)


def test_a_view_that_came_in_the_middle_has_no_run_record() -> None:
    lines = shown(view_of(step_record(500), step_record(501)))
    assert len(lines) <= 24
    assert "  502 steps  " in lines[1]
