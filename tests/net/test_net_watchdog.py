"""A blocked loop is reported, an idle one is not."""

import asyncio
import time

import pytest

from pgczmq.net import watchdog


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(watchdog, "_INTERVAL", 0.05)


@pytest.mark.timeout(30)
async def test_a_blocking_call_is_reported_with_its_length():
    reports = asyncio.Queue()
    task = asyncio.create_task(watchdog.watch(reports.put_nowait))
    await asyncio.sleep(0.1)
    time.sleep(0.3)  # noqa: ASYNC251
    seconds = await reports.get()
    task.cancel()
    assert 0.2 < seconds < 5.0


@pytest.mark.timeout(30)
async def test_an_idle_loop_is_not_reported(monkeypatch):
    """What the scheduler does to this process is taken out, as far as the system tells it."""
    monkeypatch.setattr(watchdog, "STALL_SECONDS", 0.25)  # the machine is shared
    reports = []
    task = asyncio.create_task(watchdog.watch(reports.append))
    await asyncio.sleep(1.0)
    task.cancel()
    assert reports == []


@pytest.mark.timeout(30)
async def test_time_spent_waiting_for_a_core_does_not_count(monkeypatch):
    waited = iter([0.0] * 2 + [10.0] * 100)
    monkeypatch.setattr(watchdog._RunQueue, "seconds", lambda self: next(waited, 10.0))
    reports = []
    task = asyncio.create_task(watchdog.watch(reports.append))
    await asyncio.sleep(0.08)  # into its second round
    time.sleep(0.3)  # noqa: ASYNC251
    await asyncio.sleep(0.08)
    task.cancel()
    assert reports == []


def test_where_the_system_does_not_tell_nothing_is_taken_out(monkeypatch):
    def absent(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(watchdog.os, "open", absent)
    queue = watchdog._RunQueue()
    assert queue.seconds() == 0.0
    queue.close()
