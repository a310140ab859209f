"""Functions in processes beside each other: nobody stays behind."""

import multiprocessing
import os
import signal
import time

import pytest

from pgczmq.app import processes
from pgczmq.bench import side_by_side

LIMIT = 20.0
"""Seconds; the sleeper would stay for thirty times as long."""


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_process_is_left_when_nobody_wants_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    before = set(multiprocessing.active_children())
    results = side_by_side.each(time.sleep, [0.0, 30 * LIMIT, 30 * LIMIT])
    assert next(results) == (0.0, None)
    (sleeper,) = [child.pid for child in set(multiprocessing.active_children()) - before]
    assert sleeper is not None and is_there(sleeper)
    try:
        results.close()  # type: ignore[attr-defined]  # it is a generator
        limit = time.monotonic() + LIMIT
        while is_there(sleeper):
            assert time.monotonic() < limit, "a process is left"
            time.sleep(0.02)
    finally:
        if is_there(sleeper):
            os.kill(sleeper, signal.SIGKILL)
