"""What a process does at signals, whatever its event loop is doing; each in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgczmq.app.interrupts import Interrupts

PROGRAM = """
import asyncio, hashlib, os, re, signal, sys, threading
from pgczmq.app.interrupts import Interrupts

def say(text):  # in one piece, whichever thread says it
    os.write(1, text.encode() + b"\\n")

def compute():  # in C, without Python's lock, and deaf to signals
    say("computing")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)

async def run(interrupts, doing):
    stopped = asyncio.Event()
    def stop(number):
        say("asked to stop by " + number.name)
        stopped.set()
    if doing != "nothing yet":
        interrupts.end(stop)
    if doing in ("nothing yet", "computing on the loop"):
        compute()
    if doing == "matching":
        say("matching")
        re.match("(a+)+$", "a" * 60 + "b")  # for years, and nobody else has Python's lock meanwhile
    say("waiting")
    await stopped.wait()
    if doing == "ending":
        await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and under nohup
signal.signal(signal.SIGUSR1, lambda *_: say("still here"))
with Interrupts() as interrupts:
    if sys.argv[1] == "computing beside":
        threading.Thread(target=compute, daemon=True).start()
    asyncio.run(run(interrupts, sys.argv[1]))
before = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
assert all(signal.getsignal(number) == handler for number, handler in before.items())
say("handlers as before")
os._exit(75)
"""


@contextmanager
def program(doing: str, until: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, doing], stdout=subprocess.PIPE, text=True) as process:
        try:
            read(process, until)
            yield process
        finally:
            process.kill()


def read(process: subprocess.Popen[str], until: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(until):
            return
    raise AssertionError(f"it never said {until!r}")


@pytest.mark.parametrize("doing", ["waiting", "computing beside"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks(doing: str, number: signal.Signals) -> None:
    with program(doing, "waiting") as process:
        process.send_signal(number)
        read(process, f"asked to stop by {number.name}")
        read(process, "handlers as before")
        assert process.wait() == 75


def test_the_second_signal_ends_it_whatever_the_first_one_waits_for() -> None:
    with program("ending", "waiting") as process:
        process.send_signal(signal.SIGINT)
        read(process, "asked to stop by SIGINT")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_a_window_that_is_closed_says_so_twice_and_is_one_signal() -> None:
    with program("ending", "waiting") as process:
        process.send_signal(signal.SIGHUP)
        read(process, "asked to stop by SIGHUP")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)  # heard by the main thread after that
        read(process, "still here")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_a_loop_that_does_not_answer_is_not_waited_for() -> None:
    with program("computing on the loop", "computing") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_the_second_signal_ends_a_regular_expression() -> None:
    with program("matching", "matching") as process:
        while process.poll() is None:  # two at once may count as one
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert process.wait() == 128 + signal.SIGINT


def test_before_there_is_anything_to_end_it_ends_at_once() -> None:
    with program("nothing yet", "computing") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 128 + signal.SIGINT


def test_other_threads_leave_signals_alone() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    found: list[object] = []

    def enter() -> None:
        with Interrupts():
            found.append({number: signal.getsignal(number) for number in handlers})

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [handlers]


def test_hangup_stays_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
