"""Views on consoles that are not what they seem."""

import io
import logging
import sys
import threading
from dataclasses import replace

import pytest
from made_up_run import records, result, run_record, step_record
from rich.console import Console

from pgczmq.runlog import EventRecord
from pgczmq.view import screen
from pgczmq.view.screen import LiveFeed, can_draw, open_view

TERMINAL = {"TERM": "xterm-256color"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class UtfFile(io.StringIO):
    encoding = "utf-8"


class LatinFile(io.StringIO):
    encoding = "latin-1"


def terminal(file: io.StringIO | None = None, environ: dict[str, str] = TERMINAL) -> Console:
    return Console(file=file or UtfFile(), force_terminal=True, width=80, height=24, _environ=environ)


def written(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def frame(feed: LiveFeed) -> str:
    console = Console(file=io.StringIO(), width=80, height=24)
    console.print(feed.frame())
    return written(console)


def test_auto_draws_on_a_terminal_only() -> None:
    assert can_draw(terminal())
    assert not can_draw(terminal(environ={"TERM": "dumb"}))
    assert not can_draw(terminal(LatinFile()))
    assert not can_draw(Console(file=UtfFile(), force_terminal=False))


def test_live_leaves_its_last_frame_on_the_screen() -> None:
    console = terminal()
    with open_view("auto", console, clock=Clock()) as sink:
        for record in records(4, done=100):
            sink(record)
        sink(result())
    text = written(console)
    assert "done: 100 steps in 26.0 s" in text
    assert "?1049" not in text  # never the alternate screen: what was shown would be gone
    assert text.rindex("\x1b[?25h") > text.rindex("done: 100 steps")  # the cursor is back


def test_plain_writes_lines_in_order() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    with open_view("auto", console) as sink:
        sink(run_record())
        sink(EventRecord(1.0, "left", "worker 1 on [/tag] :boom: " + "far " * 20, 1))
        sink(result())
    lines = written(console).splitlines()
    assert [line[:12] for line in lines] == ["[     0.0 s]", "[     1.0 s]", "[    26.0 s]"]
    assert "[/tag] :boom:" in lines[1]
    assert len(lines[1]) > 40  # a log line is never wrapped


def test_none_writes_nothing() -> None:
    console = terminal()
    with open_view("none", console) as sink:
        for record in records(4, done=10):
            sink(record)
    assert written(console) == ""


def test_there_is_no_other_mode() -> None:
    with pytest.raises(ValueError, match="there is no view 'fancy'"):
        open_view("fancy", terminal())


# ---------------------------------------------------------------- the feed


def test_time_goes_on_between_records_by_the_clock_given() -> None:
    clock = Clock()
    feed = LiveFeed(terminal(), clock)
    feed.put(run_record())
    feed.put(step_record(0))  # applied at 1.24 s
    assert "0:01 elapsed" in frame(feed)
    clock.now += 60.0
    assert "1:01 elapsed" in frame(feed)
    assert "step 1 has been open for 60.0 s" in frame(feed)
    feed.put(step_record(1))
    assert "0:01 elapsed" in frame(feed)


def test_time_counts_from_when_a_record_came_not_from_when_it_was_drawn() -> None:
    clock = Clock()
    feed = LiveFeed(terminal(), clock)
    feed.put(step_record(0))
    clock.now += 10.0
    assert "step 1 has been open for 10.0 s" in frame(feed)


def test_a_frame_leaves_one_line_of_the_terminal_free() -> None:
    feed = LiveFeed(terminal(), Clock())
    for record in records(64, done=20):
        feed.put(record)
    assert len(frame(feed).splitlines()) == 23


def test_a_terminal_that_is_never_drawn_on_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "PENDING_AT_MOST", 10)
    feed = LiveFeed(terminal(), Clock())
    for step in range(95):
        feed.put(step_record(step))
        assert len(feed._pending) <= 10
    assert "95 steps" in frame(feed)


def test_a_sink_does_not_wait_for_the_one_who_draws() -> None:
    feed = LiveFeed(terminal(), Clock())
    with feed._lock:  # as if a frame were being made all this time
        for step in range(2 * screen.PENDING_AT_MOST):
            feed.put(step_record(step % 7))
    assert "steps" in frame(feed)


def test_records_that_contradict_themselves_are_left_out() -> None:
    broken = replace(step_record(0), arrived_at=())
    feed = LiveFeed(terminal(), Clock())
    feed.put(broken)
    feed.put(EventRecord(2.0, "checkpoint", "saved"))
    assert "saved" in frame(feed)
    console = Console(file=io.StringIO(), force_terminal=False)
    with open_view("plain", console) as sink:
        sink(broken)
        sink(result())
    assert "done" in written(console)


def test_a_defect_in_the_view_is_shown_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **others: object) -> None:
        raise ZeroDivisionError("[/tag]")

    monkeypatch.setattr(screen, "render", broken)
    assert "this view has a defect: ZeroDivisionError('[/tag]')" in frame(LiveFeed(terminal(), Clock()))


def test_records_come_from_any_thread() -> None:
    feed = LiveFeed(terminal(), Clock())
    feed.put(run_record(steps=10_000))

    def produce() -> None:
        for step in range(200):
            feed.put(step_record(step))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        frame(feed)
    frame(feed)
    assert feed._view.steps_seen == 800


# ---------------------------------------------------------------- what else is written meanwhile


def test_prints_and_logs_appear_above_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = UtfFile()
    monkeypatch.setattr(sys, "stderr", errors)
    handler = logging.StreamHandler(errors)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    console = terminal()
    with open_view("live", console, clock=Clock()) as sink:
        sink(run_record())
        logging.getLogger().warning("worker [/tag] is slow")
        sys.stderr.write("from a library\n")
    assert errors.getvalue() == ""
    assert "worker [/tag] is slow" in written(console)
    assert "from a library" in written(console)
    assert handler.stream is errors
    assert sys.stderr is errors


class GoneFile(UtfFile):
    """A terminal whose other end has hung up."""

    gone = False

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_hangs_up_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "FRAMES_PER_SECOND", 0.001)  # no thread: what is tested is the end
    file = GoneFile()
    with open_view("live", terminal(file)) as sink:
        sink(run_record())
        file.gone = True
        sink(result())
    with open_view("plain", Console(file=file, force_terminal=False)) as sink:
        sink(run_record())
        sink(result())


def test_an_error_inside_passes_through_and_the_cursor_is_back() -> None:
    console = terminal()
    with pytest.raises(RuntimeError, match="the run's own"), open_view("live", console, clock=Clock()) as sink:
        sink(run_record())
        raise RuntimeError("the run's own")
    assert written(console).rindex("\x1b[?25h") > written(console).rindex("\x1b[?25l")
