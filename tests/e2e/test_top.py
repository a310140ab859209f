"""``pgc top``, as a person would use it: beside real runs, in a pipe and on a terminal, killed and stopped."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from conftest import BIN, environment

from pgczmq.bench.torture.machine import free_port

SOAK = ["task.name=soak", "workers=2", "scheme.name=dgd", "name=run", "steps=1000000", "ui.mode=none"]
SOAK += ["delay.model=constant", "delay.mean=0.005"]


@contextmanager
def started(directory: Path, *words: str, **streams: int) -> Iterator[subprocess.Popen[str]]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | streams
    process = subprocess.Popen([str(BIN / "pgc"), *words], cwd=directory, env=environment(), text=True, **streams)  # type: ignore[call-overload]
    with process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], object]) -> None:
    """Look until the condition holds; the bound only guards against a hang."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A local run that goes on, and its master's address."""
    port = free_port()
    settings = [word for setting in (*SOAK, f"net.port={port}") for word in ("--set", setting)]
    with started(tmp_path, "local", *settings) as process:
        until(lambda: steps(tmp_path) > 5)
        yield process, f"tcp://127.0.0.1:{port}"


def steps(directory: Path) -> int:
    file = directory / "runs" / "run" / "steps.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def line_with(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    return next(line for line in process.stdout if text in line)


def test_viewers_in_pipes_come_and_go_and_see_the_end(run: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    local, address = run
    with ExitStack() as stack:
        remote, killed, stopped = (stack.enter_context(started(tmp_path, "top", address)) for _ in range(3))
        here = stack.enter_context(started(tmp_path, "top", "run"))
        for viewer in (remote, killed, stopped, here):
            line_with(viewer, "run: soak with dgd, stragglers=0, 2 workers, 1,000,000 steps")
        killed.kill()
        stopped.send_signal(signal.SIGSTOP)
        before = steps(tmp_path)
        until(lambda: steps(tmp_path) > before + 50)
        local.send_signal(signal.SIGINT)
        assert local.wait(60) == 75
        for viewer in (remote, here):
            line_with(viewer, "interrupted by SIGINT (exit code 75)")
            assert viewer.wait(60) == 0
        stopped.send_signal(signal.SIGCONT)
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(60) in {0, 130}  # it may have been sent the end
        assert "Traceback" not in (stopped.stdout.read() if stopped.stdout else "")
    assert "Traceback" not in (local.stdout.read() if local.stdout else "")


@pytest.mark.parametrize(("ends", "code"), [(b"q", 0), (b"\x03", 130), (None, -signal.SIGHUP)])
def test_a_viewer_on_a_terminal(
    run: tuple[subprocess.Popen[str], str], tmp_path: Path, ends: bytes | None, code: int
) -> None:
    """It draws; q, Ctrl+C or a terminal that is closed end it, and not the run."""
    ours, theirs = pty.openpty()
    viewer = subprocess.Popen(
        [str(BIN / "pgc"), "top", run[1]],
        cwd=tmp_path,
        env=environment() | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=become_a_session,
    )
    os.close(theirs)
    written = b""
    while b"steps" not in written:
        written += os.read(ours, 2**16)
    if ends is None:
        os.close(ours)
    else:
        os.write(ours, ends)
        with suppress(OSError):  # until it has let go of the terminal
            while more := os.read(ours, 2**16):
                written += more
        os.close(ours)
    assert viewer.wait(60) in {code, *([0] if ends is None else [])}
    assert b"Traceback" not in written
    before = steps(tmp_path)
    until(lambda: steps(tmp_path) > before)


def become_a_session() -> None:
    """With the terminal as the controlling one."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_no_reader_and_nothing_to_watch_are_no_tracebacks(tmp_path: Path) -> None:
    with started(tmp_path, "top", "nothing") as none:
        told, _ = none.communicate()
    assert (none.returncode, told.count("\n")) == (2, 1)
    assert told.startswith("error: pgc top takes a run directory")
