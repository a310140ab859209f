"""Ctrl+C before a command has anything to put in order, and while it puts things in order."""

import signal
import subprocess
import sys

import pytest

STRUCK = "import os, signal; strike = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
GUARDED = "from pgczmq.cli.common import guarded, nothing_to_put_in_order\n"


def run(code: str, *, ignored: bool = False) -> tuple[int, str]:
    """Exit code, and all that was said."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        done = subprocess.run([sys.executable, "-c", STRUCK + code], capture_output=True, text=True)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    return done.returncode, done.stdout + done.stderr


def test_while_the_program_is_loaded_it_ends_without_a_word() -> None:
    assert run("import pgczmq.start\nstrike()\nprint('lived')") == (-signal.SIGINT, "")


def test_whoever_ignores_it_when_the_program_begins_goes_on_ignoring_it() -> None:
    assert run("import pgczmq.start\nstrike()\nprint('lived')", ignored=True) == (0, "lived\n")


def test_loading_where_programs_begin_loads_nothing_else_of_the_program() -> None:
    code = "import sys, pgczmq.start; print(*(name for name in sys.modules if name.startswith('pgczmq')))"
    assert run(code) == (0, "pgczmq pgczmq.start\n")


def test_a_command_may_put_things_in_order_and_says_one_line() -> None:
    command = "def command():\n try: strike()\n finally: print('in order')\n"
    assert run(f"import pgczmq.start\n{GUARDED}{command}guarded(command)") == (130, "in order\nerror: interrupted\n")


def test_the_second_does_not_wait_for_that() -> None:
    command = "def command():\n try: strike()\n finally: strike(); print('in order')\n"
    assert run(f"import pgczmq.start\n{GUARDED}{command}guarded(command)") == (130, "")


def test_a_command_with_nothing_to_put_in_order_ends_at_once() -> None:
    command = "def command():\n nothing_to_put_in_order(); strike(); print('lived')\n"
    assert run(f"import pgczmq.start\n{GUARDED}{command}guarded(command)") == (130, "")


@pytest.mark.parametrize("program", ["pgc", "pgc_master", "pgc_worker"])
def test_every_program_begins_there(program: str) -> None:
    code, said = run(f"import sys; from pgczmq import start; sys.argv[1:] = ['--help']; start.{program}()")
    assert code == 0 and "Usage: " in said
