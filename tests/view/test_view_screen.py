"""Views where there is no terminal, and what is logged and printed meanwhile; on terminals: test_view_terminal.py."""

import io
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from made_up_run import records, result, run_record, step_record
from rich.console import Console

from pgczmq.runlog import EventRecord
from pgczmq.view.live import aside
from pgczmq.view.live.aside import logs_aside, prints_aside
from pgczmq.view.live.screen import can_draw, open_view
from pgczmq.view.live.terminal import give_back


class Terminal(io.StringIO):
    """Says that it is one, but has no descriptor."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def file_console(file: io.StringIO | None = None) -> Console:
    return Console(file=file or io.StringIO(), width=40, force_terminal=False)


def written(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_dashboard_needs_a_terminal() -> None:
    assert not can_draw(file_console())
    assert not can_draw(Console(file=Terminal(), force_terminal=True, _environ={"TERM": "xterm"}))


@pytest.mark.parametrize("mode", ["auto", "live", "plain"])
def test_without_a_terminal_there_are_lines_in_order(mode: str) -> None:
    console = file_console()
    with open_view(mode, console) as sink:
        sink(run_record())
        sink(EventRecord(1.0, "left", "worker 1 on [/tag] :boom: " + "far " * 20, 1))
        sink(result())
    lines = written(console).splitlines()
    assert [line[:12] for line in lines] == ["[     0.0 s]", "[     1.0 s]", "[    26.0 s]"]
    assert "[/tag] :boom:" in lines[1]
    assert len(lines[1]) > 40  # a log line is never wrapped


def test_none_writes_nothing() -> None:
    console = file_console()
    with open_view("none", console) as sink:
        for record in records(4, done=10):
            sink(record)
    assert written(console) == ""


def test_there_is_no_other_mode() -> None:
    with pytest.raises(ValueError, match="there is no view 'fancy'"):
        open_view("fancy", file_console())


def test_records_that_contradict_themselves_are_left_out() -> None:
    console = file_console()
    with open_view("plain", console) as sink:
        sink(replace(step_record(0), arrived_at=()))
        sink(result())
    assert "done" in written(console)


def test_giving_back_what_nobody_has_taken() -> None:
    give_back()


class GoneFile(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


class StoppedFile(io.StringIO):
    """A terminal that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.goes_on.wait(60)
        return super().write(text)


def test_a_reader_that_is_gone_does_not_end_the_run() -> None:
    with open_view("plain", file_console(GoneFile())) as sink:
        for record in records(4, done=60):
            sink(record)
        sink(result())


def test_a_reader_that_takes_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgczmq.view.live.screen.PATIENCE_SECONDS", 0.01)
    file = StoppedFile()
    try:
        with open_view("plain", file_console(file)) as sink:
            for record in records(4, done=60):
                sink(record)
            logging.getLogger("pgczmq.test").warning("this must not wait either")
            sink(result())
        assert file.getvalue() == ""
    finally:
        file.goes_on.set()


# ---------------------------------------------------------------- what others say


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger with a handler that writes to ``sys.stderr`` as it was when it was made."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(sys.stderr)])
    yield root


def test_logs_and_lines_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(file)])
    with open_view("plain", Console(stderr=True, force_terminal=False)) as sink:
        sink(run_record())
        logging.getLogger("pgczmq.test").warning("worker %s is slow", "[/tag]")
        sink(result())
    lines = file.getvalue().splitlines()
    assert lines[1] == "worker [/tag] is slow"
    assert "done" in lines[2]


def test_logs_are_put_aside_and_handlers_come_back(logger: logging.Logger) -> None:
    console, handlers = file_console(), list(logger.handlers)
    with logs_aside(console) as put:
        logger.warning("the disk is %s", "full")
        logger.error("and now this")
        logger.info("no event")
        assert [(event.at, event.kind, event.text) for event in put.events(7.0)] == [
            (7.0, "warning", "the disk is full"),
            (7.0, "error", "and now this"),
        ]
        assert put.events(9.0) == put.events(11.0)  # each has the time at which it was first seen
    assert logger.handlers == handlers


def test_a_log_call_with_wrong_arguments_is_the_callers_matter(logger: logging.Logger) -> None:
    with logs_aside(file_console()) as put:
        logger.warning("%d", "none")
        assert put.events(1.0) == []


def test_prints_are_put_aside_where_they_would_go_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    console = file_console()
    with logs_aside(console) as put:
        with prints_aside(put):
            print("one\ntwo", end="")
            print("to a file", file=sys.stderr)
            assert [event.text for event in put.events(1.0)] == ["one"]
        assert sys.stdout is out
        put.print_all()
    assert (out.getvalue(), err.getvalue(), written(console)) == ("", "to a file\n", "one\ntwo\n")


def test_what_is_kept_has_a_bound() -> None:
    console = file_console()
    with logs_aside(console) as put:
        for number in range(3 * aside.KEPT):
            put.printed(str(number))
        assert len(put.events(1.0)) <= 32
        put.print_all()
    assert len(written(console).splitlines()) == aside.KEPT
