"""A real process on a real (pseudo) terminal: what keys do, and that the terminal is given back, whatever happens.

Job control (Ctrl+Z, fg, bg) needs a shell: ``tests/e2e/test_tmux.py``.
"""

import os
import signal
import termios
from pathlib import Path

import pytest
from on_a_pty import OnAPty

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"


def given_back(one: OnAPty) -> bool:
    """The ordinary screen, a cursor, and the settings that it had."""
    wrote = one.written
    return wrote.rfind(LEFT) > wrote.rfind(ENTERED) and wrote.rfind(CURSOR_ON) > wrote.rfind(CURSOR_OFF)


def test_a_view_takes_the_terminal_and_gives_it_back_and_its_last_frame_stays() -> None:
    with OnAPty() as one:
        one.until_written("60/100 steps")
        one.until(lambda: one.is_taken)
        one.until_written(" leave ")  # the keys are named
        assert ENTERED in one.written
        one.go()
        assert one.end() == 0
        assert given_back(one)
        assert one.settings == one.before
        after = one.written.rpartition(LEFT)[2]
        assert "done: 100 steps in 26.0 s" in after
        assert " leave " not in after
        assert after.rstrip().endswith("the end")


def test_q_leaves_the_view_and_not_the_run() -> None:
    with OnAPty("step") as one:
        one.until(lambda: one.is_taken)
        one.until_written("60/100 steps")
        one.press(b"q")
        one.until_written("the view is closed, the run goes on; pgc top runs/try shows it again; Ctrl+C ends the run")
        assert given_back(one)
        assert one.settings == one.before
        one.forget()
        one.go()
        one.go()
        assert one.end() == 0
        assert "done: 100 steps" in one.written  # told as a line
        assert ENTERED not in one.written


def test_keys_change_what_is_drawn() -> None:
    with OnAPty(size=(120, 40)) as one:
        one.until_written("60/100 steps")  # there are workers to choose from
        one.until_written("worst first")
        one.press(b"s")
        one.until_written("by number")
        one.press(b"w")
        one.until_written("heard of")
        one.press(b"\x1b[B")
        one.until_written("worker 1 ")
        one.press(b"?")
        one.until_written("leave the view; the run goes on")
        one.press(b"?p")
        one.until_written("PAUSED")


def test_a_paused_view_stands_still() -> None:
    with OnAPty("step") as one:
        one.until_written("60/100 steps")
        one.press(b"p")
        one.until_written("PAUSED")
        one.go()
        one.forget()
        one.press(b"s")
        one.until_written("by number")
        assert "80/100" not in one.written
        one.press(b"p")
        one.until_written("80/100 steps")


def test_an_error_of_the_run_leaves_no_trace_on_the_terminal() -> None:
    with OnAPty("raise") as one:
        one.until(lambda: one.is_taken)
        one.go()
        assert one.end() == 1
        assert given_back(one)
        assert one.settings == one.before
        assert "RuntimeError: the run's own" in one.written.rpartition(LEFT)[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_that_ends_the_process_on_the_spot(number: signal.Signals) -> None:
    with OnAPty() as one:
        one.until_written("60/100 steps")
        one.until(lambda: one.is_taken)
        one.process.send_signal(number)
        assert one.end() == -number
        assert given_back(one)
        assert one.settings == one.before


def test_ctrl_c_is_still_ctrl_c() -> None:
    with OnAPty() as one:
        one.until_written("60/100 steps")
        one.until(lambda: one.is_taken)
        one.press(b"\x03")
        assert one.end() == -signal.SIGINT
        assert given_back(one)
        assert one.settings == one.before


def test_a_process_that_leaves_at_once() -> None:
    with OnAPty("leave") as one:
        one.until_written("60/100 steps")
        one.go()
        assert one.end() == 7
        assert given_back(one)
        assert one.settings == one.before


def test_without_a_terminal_to_read_from_there_are_no_keys() -> None:
    with Path(os.devnull).open() as nothing, OnAPty(stdin=nothing.fileno()) as one:
        one.until_written("60/100 steps")
        assert not one.is_taken
        one.go()
        assert one.end() == 0
        assert " leave " not in one.written
        assert given_back(one)


def test_what_is_printed_and_logged_is_an_event_and_stays_afterwards() -> None:
    with OnAPty("say", size=(120, 40)) as one:
        one.until_written("60/100 steps")
        one.go()
        one.until_written("the disk is full")
        one.until_written("from [/tag] a library")
        one.go()
        assert one.end() == 0
        before, _, after = one.written.rpartition(LEFT)
        assert "all is well" not in before  # no warning, no event
        lines = [line.strip() for line in after.splitlines()]
        assert lines[:3] == ["from [/tag] a library", "WARNING the disk is full", "INFO all is well"]


def test_another_size() -> None:
    with OnAPty() as one:
        one.until_written("60/100 steps")
        for size in ((1, 1), (200, 60), (3, 2), (40, 10)):
            one.resize(*size)
            one.forget()
            one.until(lambda: "\x1b[2J" in one.written)
        one.resize(120, 40)
        one.until_written(" events ─")
        one.go()
        assert one.end() == 0


def test_a_terminal_that_takes_nothing_keeps_nobody_from_ending() -> None:
    with OnAPty("mute", "step") as one:
        one.until_written("60/100 steps")
        one.go()
        termios.tcflow(one.slave, termios.TCOOFF)  # Ctrl+S
        one.go()
        one.go()
        assert one.process.wait(timeout=30) == 0
        termios.tcflow(one.slave, termios.TCOON)


def ignored_by(process: int) -> set[int]:
    """The signals that a process ignores."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    mask = int(status["SigIgn"], 16)
    return {number for number in range(1, 32) if mask >> (number - 1) & 1}


def test_a_terminal_that_is_gone_does_not_end_the_run() -> None:
    with OnAPty("mute", "deaf") as one:
        one.until_written("60/100 steps")
        one.go()
        one.go()
        one.until(lambda: signal.SIGHUP in ignored_by(one.process.pid))
        one.hang_up()
        one.go()
        assert one.process.wait(timeout=30) == 0


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "latin-1"}])
def test_a_terminal_that_can_show_no_dashboard_gets_lines(environ: dict[str, str]) -> None:
    with OnAPty("say", environ=environ) as one:
        one.until_written("worker 3 is ready")
        assert one.settings == one.before
        one.go()
        one.until_written("from [/tag] a library")
        one.go()
        assert one.end() == 0
        assert "done: 100 steps" in one.written
        assert "\x1b" not in one.written


def test_no_color() -> None:
    with OnAPty(environ={"NO_COLOR": "1"}) as one:
        one.until_written("60/100 steps")
        one.go()
        assert one.end() == 0
        codes = {part.partition("m")[0] for part in one.written.split("\x1b[")[1:]}
        used = {number for code in codes if code.replace(";", "").isdigit() for number in code.split(";")}
        assert used <= {"0", "1", "2", "7"}
