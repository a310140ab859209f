"""The dashboard fits, shows the right numbers, and takes foreign text for what it is."""

import io
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from made_up_run import PERIOD, late, latency_record, picture_of, records, result, run_record, step_record
from rich.cells import cell_len
from rich.console import Console

from pgczmq.picture import Numbers, Picture, StepTime
from pgczmq.runlog import EventRecord, WorkerRecord
from pgczmq.view.live.dashboard import render
from pgczmq.view.live.keys import Look

SIZES = [(80, 24), (120, 40), (200, 60), (300, 100), (115, 12), (40, 10), (20, 5), (1, 1)]


def shown(
    picture: Picture,
    width: int = 80,
    height: int = 24,
    *,
    now: float | None = None,
    look: Look | None = None,
    note: str = "",
) -> list[str]:
    moment = picture.at if now is None else now
    frame = render(picture, now=moment, width=width, height=height, look=look, note=note)
    for line in frame.lines:
        assert line.width == cell_len(line.plain())  # a line knows how wide it is
    return [line.plain() for line in frame.lines]


@cache
def so_far(workers: int, done: int) -> Picture:
    return picture_of(*records(workers, done=done))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("workers", [1, 8, 64, 256])
@pytest.mark.parametrize("done", [0, 1, 60])
@pytest.mark.parametrize("look", [None, Look(), Look(chosen=0, last=0), Look(help=True, paused=True)])
def test_it_fits(workers: int, size: tuple[int, int], done: int, look: Look | None) -> None:
    width, height = size
    lines = shown(so_far(workers, done), width, height, look=look)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)


def test_what_matters_is_on_a_small_screen() -> None:
    """Is it learning, is it fast, who is slow, is the estimate good; 80x24, eight workers."""
    lines = shown(picture_of(*records(8, done=60)), look=Look())
    assert len(lines) == 24
    assert lines[0].split() == ["try", "pgc-cr", "s=1", "digits-cnn", "8", "workers"]
    assert lines[1].endswith("60 %  60/100 steps  0:16 elapsed  0:10 left")
    text = "\n".join(lines)
    loss = sum(2.0 * math.exp(-step / 30) for step in range(35, 60)) / 25
    assert f" loss {loss:.4g}  accuracy 59.0 %  held-out loss 0.5  after 60" in text
    assert " 250 ms  waited " in text
    assert "4 steps/s" in text
    assert " recovered 100 %  age 0.5 to 1  used 7 of 8  k 7" in text
    assert [line[5] for line in sorted(lines) if line[7:].startswith(("here", "evaluating"))] == list("01234567")
    assert lines[-1].split()[:4] == ["q", "leave", "s", "sort"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_whole_screens(width: int, height: int) -> None:
    """As they were when somebody last looked at them; a difference is to be looked at, then written there."""
    time = StepTime(0.02, 0.1, 0.003, 0.06, 0.001, 0.01, 0.006)
    picture = replace(picture_of(*records(8, done=60)), time=time)
    golden = Path(__file__).parent / "screens" / f"{width}x{height}.txt"
    screen = "".join(f"{line.rstrip()}\n" for line in shown(picture, width, height, look=Look()))
    assert screen == golden.read_text(), f"it is now\n{screen}"


def test_a_row_for_each_worker() -> None:
    lines = shown(picture_of(*records(4, done=60)), look=Look(sort="number"))
    begin = next(place for place, line in enumerate(lines) if line.startswith("worker state"))
    assert lines[begin].split() == [
        "worker",
        "state",
        "recent",
        "last",
        "median",
        "used",
        "late",
        "miss",
        "ages",
        "seen",
    ]
    rows = [line.split() for line in lines[begin + 1 : begin + 5]]
    for row in rows:
        row[:] = [part for part in row if not set(part) <= set("▁▂▃▄▅▆▇█")]
    assert rows[0] == ["0", "evaluating", "10.0", "ms", "10.0", "ms", "100", "%", "0", "%", "0", "%", "0-1", "now"]
    assert rows[1][:6] == ["1", "here", "20.0", "ms", "20.0", "ms"]
    # worker 3 misses every second step, answers it late after 260 ms, and the others after 40 ms
    assert rows[3][:4] == ["3", "here", "260", "ms"]
    assert rows[3][6:12] == ["50", "%", "50", "%", "50", "%"]


def test_the_worst_come_first_when_not_all_fit_and_all_have_a_cell() -> None:
    picture = picture_of(*records(64, done=10), EventRecord(4.0, "left", "worker 17 has been silent for 6.0 s", 17))
    lines = shown(picture)
    assert len(lines) <= 24
    heading = next(index for index, line in enumerate(lines) if line.startswith("worker state"))
    more = next(index for index, line in enumerate(lines) if line.startswith("and "))
    workers = [line.split()[0] for line in lines[heading + 1 : more]]
    assert workers[:2] == ["17", "63"]  # gone; missing every second step
    assert lines[more].startswith(f"and {64 - len(workers)} more")
    cells = lines[more + 1].split(maxsplit=1)[1]
    assert len(cells) == 64
    assert cells[17] == "×"
    assert (cells[0], cells[62]) == ("▁", "█")  # the longest median is 63 times the least


def test_256_workers_are_seen_at_a_glance() -> None:
    for width, height in ((80, 24), (120, 40), (200, 60)):
        lines = shown(picture_of(*records(256, done=10)), width, height)
        more = next(index for index, line in enumerate(lines) if " more; all " in line)
        field = "".join(line[-(width - 60 if width > 80 else width) :] for line in lines[more + 1 :])
        assert sum(field.count(block) for block in "▁▂▃▄▅▆▇█") >= 256


def test_panels_stand_side_by_side_where_there_is_room() -> None:
    lines = shown(picture_of(*records(8, done=60)), 120, 40)
    assert lines[3].startswith("learning ")
    assert " workers ─" in lines[3]
    assert any(" events ─" in line for line in lines)


def test_where_a_steps_time_goes() -> None:
    time = StepTime(0.02, 0.1, 0.0, 0.06, 0.0, 0.02, 0.0)
    lines = shown(replace(picture_of(*records(4, done=60)), time=time))
    bar = next(line for line in lines if set(line) <= set("━╍┅╌") and len(line) == 80)
    assert [bar.count(mark) for mark in "━╍┅╌"] == [8, 40, 24, 8]
    legend = lines[lines.index(bar) + 1].strip()
    assert legend == "━━ compute 20.0 ms  ╍╍ delay 100 ms  ┅┅ wait 60.0 ms  ╌╌ update 20.0 ms"


def test_what_a_policy_changes_has_a_curve() -> None:
    still = Numbers(7.0, 7.0, (7.0,) * 60)
    picture = replace(picture_of(*records(8, done=60)), k=still)
    assert not any(line.startswith("k ") for line in shown(picture, 100, 50))
    moving = replace(picture, k=Numbers(7.0, 5.0, tuple(range(2, 8))))
    line = next(line for line in shown(moving, 100, 50) if line.startswith("k "))
    assert line.split()[-1] == "7"
    assert "▁" in line
    assert "█" in line


def test_waiting_for_workers_is_a_red_banner() -> None:
    picture = picture_of(*records(4, done=10), EventRecord(4.0, "waiting", "step 10 cannot close: missing 0, 3"))
    frame = render(picture, now=4.0, width=80, height=24)
    assert "WAITING  step 10 cannot close: missing 0, 3" in frame.lines[2].plain()
    assert frame.lines[2].width == 80
    assert frame.lines[2].ansi(True).startswith("\x1b[1;7;31m")
    assert frame.lines[2].ansi(False).startswith("\x1b[1;7m")  # it reads without colour


def test_before_the_first_step() -> None:
    assert shown(Picture())[0] == "starting: no record of the run yet"
    picture = picture_of(run_record(), EventRecord(10.0, "starting", "3/4 workers ready, missing 2"))
    text = "\n".join(shown(picture))
    assert "3/4 workers ready, missing 2" in text
    assert "0 %  0/100 steps  0:10 elapsed  - left" in text
    assert text.count("absent") == 4


def test_a_step_that_takes_long_is_told() -> None:
    picture = picture_of(*records(4, done=10))
    applied_at = picture.applied_at
    assert applied_at is not None
    assert "has been open" not in "\n".join(shown(picture, now=applied_at + 1.0))
    assert "step 10 has been open for 7.50 s" in "\n".join(shown(picture, now=applied_at + 7.5))


def test_a_note_about_where_the_picture_comes_from() -> None:
    assert shown(picture_of(*records(4, done=10)), note="no news for 12 s")[2] == "no news for 12 s"


def test_the_end() -> None:
    lines = shown(picture_of(*records(4, done=100), result()), now=99.0)
    assert lines[1].endswith("100 %  100/100 steps  0:26 elapsed")
    assert lines[2] == "done: 100 steps in 26.0 s, loss 0.125, accuracy 97.2 %"
    broken = result(diverged=True, loss=math.nan, accuracy=None, reason="diverged at step 7: too much", steps=7)
    assert shown(picture_of(broken))[2] == "diverged at step 7: too much (exit code 0); 7 steps in 26.0 s, loss nan"
    few = result(exit=74, loss=None, accuracy=None, reason="too few workers", steps=0)
    assert shown(picture_of(few))[2] == "too few workers (exit code 74); 0 steps in 26.0 s, loss -"


def test_a_hundred_percent_is_for_the_end() -> None:
    assert " 99 %  999/1,000" in shown(picture_of(run_record(steps=1000), step_record(998)))[1]


def test_simulated_time_is_called_so_and_stands_still_between_records() -> None:
    picture = replace(picture_of(*records(4, done=10)), virtual=True)
    assert shown(picture, now=picture.at + 60) == shown(picture)
    assert " of virtual time" in shown(picture)[1]


@pytest.mark.parametrize("losses", [[math.nan] * 5, [math.inf, -math.inf], [1.0, math.nan, 3.0], [3e38] * 60, [0.0]])
def test_losses_that_are_no_numbers(losses: list[float]) -> None:
    picture = picture_of(run_record(), *(step_record(step, loss=loss) for step, loss in enumerate(losses)))
    for width, height in SIZES:
        assert len(shown(picture, width, height)) <= height


@pytest.mark.parametrize(
    "hostile", ["[/tag]", "[bold", "a\nb\nc", "\x1b[2J\x1b[31m", ":boom:", "漢字" * 60, "é" * 300, ""]
)
def test_foreign_text_is_text(hostile: str) -> None:
    many = [
        run_record(2, name=hostile, task=hostile),
        EventRecord(1.0, "joined", f"worker 0 joined from {hostile}", 0),
        WorkerRecord(0, 1.0, hostile, 1),
        EventRecord(2.0, "left", f"worker 1 on {hostile} is gone", 1),
    ]
    for ending in ([], [EventRecord(3.0, "waiting", hostile)], [result(reason=hostile, exit=74)]):
        many += ending
        for look in (Look(), Look(chosen=0)):
            lines = shown(picture_of(*many), look=look, note=hostile)
            assert len(lines) <= 24
            assert all(cell_len(line) <= 80 for line in lines)
            assert not any(letter in "\n".join(lines) for letter in "\x1b\x07")
    if hostile in {"[/tag]", ":boom:"}:
        assert hostile in lines[0]


def test_no_color_takes_the_colours_away_and_nothing_else() -> None:
    picture = picture_of(*records(4, done=10), EventRecord(4.0, "waiting", "step 10 cannot close"))
    frame = render(picture, now=4.0, width=80, height=24, look=Look())
    plain = "".join(line.ansi(False) for line in frame.lines)
    codes = {code for part in plain.split("\x1b[")[1:] for code in part.partition("m")[0].split(";")}
    assert codes == {"0", "1", "2", "7"}
    assert "31" in "".join(line.ansi(True) for line in frame.lines)


def test_rich_prints_a_frame_as_it_is() -> None:
    frame = render(picture_of(*records(4, done=60)), now=20.0, width=80, height=24)
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(frame, end="")
    assert console.file.getvalue().splitlines() == [line.plain() for line in frame.lines]  # type: ignore[attr-defined]


def test_rendering_changes_nothing() -> None:
    picture = picture_of(*records(4, done=60), late(0, 3))
    assert shown(picture, now=20.0) == shown(picture, now=20.0)
    assert picture.period.typical == pytest.approx(PERIOD)


def test_a_view_that_came_in_the_middle_has_no_run_record() -> None:
    lines = shown(picture_of(step_record(500), step_record(501)))
    assert len(lines) <= 24
    assert "  502 steps  " in lines[1]


def test_one_worker_closely() -> None:
    picture = picture_of(*records(4, done=60), latency_record(3, 60, 0.26), EventRecord(16.0, "left", "3 left", 3))
    lines = shown(picture, height=40, look=Look(chosen=3, last=3))
    begin = next(place for place, line in enumerate(lines) if line.startswith("worker 3 ─"))
    assert " gone" in lines[begin]
    text = "\n".join(lines[begin:])
    assert "times that of a typical worker" in text
    assert "● used 50 %" in text
    assert "◆ late 50 %" in text
    assert "● ◆".replace(" ", "") in text  # every second step
    assert "its events ─" in text
    assert "3 left" in text


def test_log_lines_are_events_too() -> None:
    said = [EventRecord(3.0, "warning", "the disk is full")]
    frame = render(picture_of(*records(4, done=20)), now=6.0, width=120, height=40, said=said)
    lines = [line.plain() for line in frame.lines]
    assert any("0:03  the disk is full" in line for line in lines)


def test_help_names_every_key_of_the_last_line() -> None:
    lines = shown(picture_of(*records(4, done=20)), look=Look(help=True))
    text = "\n".join(lines)
    for key in ("q ", "s ", "w, enter", "j k", "p ", "?"):
        assert f"\n  {key}" in text
    assert lines[-1].lstrip().startswith("q ")
