"""A worker process lives several lives: what ends one, what the next one finds, and what it must not bring along."""

import asyncio
import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import AsyncIterator
from itertools import islice
from typing import ClassVar

import numpy as np
import pytest
from cluster import HANG_SECONDS, Cluster, Life, Stranger, both_payloads, is_event, is_step, rules, running, scheme
from numpy_task import NumpyWorker
from test_net_runs import recomputed

from pgczmq.errors import JoinRefused, MasterUnreachable
from pgczmq.net import born, life, wire, worker
from pgczmq.net.hub import Peer
from pgczmq.net.incarnations import new_life, new_process
from pgczmq.net.silence import Silence
from pgczmq.net.sockets import Sockets
from pgczmq.net.worker import Worker
from pgczmq.runlog import LatencyRecord

EVER = 100_000


def free_ports() -> int:
    """The first of four neighbouring ports that are free now."""
    for base in range(21_000, 60_000, 4):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for offset in range(4):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", base + offset))
            return base
    raise AssertionError("no free ports")


def cluster_of(incarnation="master-1", workers=3, payload="tcp", **changes):
    built = Cluster(scheme("pgc-cr", workers, load=2, stragglers=1), rules(EVER, **changes), payload=payload)
    built.incarnation = incarnation
    return built


@contextlib.asynccontextmanager
async def master_of(cluster: Cluster, port: int) -> AsyncIterator[asyncio.Task]:
    """The master alone; at the end it is gone without a word, as a killed one."""
    with Sockets() as sockets, contextlib.closing(cluster):
        cluster.open(sockets, port=port)
        ending = asyncio.create_task(cluster.master.run())
        ending.add_done_callback(cluster.over)
        try:
            yield ending
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)


@contextlib.asynccontextmanager
async def lives_of(cluster: Cluster, numbers=range(3), make=NumpyWorker) -> AsyncIterator[list[Life]]:
    """Worker processes, which outlive any master."""
    lives = [Life(cluster, number, 0.0, make) for number in numbers]
    try:
        async with asyncio.timeout(HANG_SECONDS):
            yield lives
    finally:
        await asyncio.gather(*(one.kill() for one in lives))


# ---------------------------------------------------------------- the master is restarted


@pytest.mark.timeout(60)
@both_payloads
async def test_workers_outlive_a_restarted_master_and_bring_nothing_along(payload, caplog):
    """X10, report 46: the next master is not sent what was for the one before."""
    caplog.set_level(logging.INFO)
    port, first, second = free_ports(), cluster_of(payload=payload), cluster_of("master-2", payload=payload)
    async with contextlib.AsyncExitStack() as stack:
        async with master_of(first, port):
            lives = await stack.enter_async_context(lives_of(first))
            await first.saw(is_step(5))
            former = {first.hub.incarnation(number) for number in range(3)}
        async with master_of(second, port) as ending:
            await second.saw(is_step(5))
            second.master.stop("enough")
            assert (await ending).exit_code == 75
            assert {(await one.task).exit for one in lives} == {75}
    assert np.array_equal(second.compute.params, recomputed(second))
    assert {record.incarnation for record in second.latencies} & former == set()
    firsts = {record.worker: record for record in reversed(second.latencies)}
    assert [firsts[number].evaluated for number in range(3)] == [2, 2, 2], "every life begins with a warm-up"
    assert all(event.seconds > 0 for event in second.events("joined"))
    assert caplog.text.count("is back in run run-1 after") == 3
    assert caplog.text.count("looking for it again") == 3


class Held(NumpyWorker):
    """Evaluates its first step from the third on only when it may."""

    may = threading.Event()
    begun = threading.Event()
    ended: list[float] = []  # noqa: RUF012
    built: list[float] = []  # noqa: RUF012

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.built.append(time.monotonic())

    def evaluate(self, step, place, batch_fraction, room):
        if step >= 3 and not self.begun.is_set():
            self.begun.set()
            assert self.may.wait(30)
            self.ended.append(time.monotonic())
        return super().evaluate(step, place, batch_fraction, room)


@pytest.mark.timeout(60)
@both_payloads
async def test_what_is_computed_while_the_master_dies_is_waited_for_and_thrown_away(payload):
    for flag in (Held.may, Held.begun):
        flag.clear()
    Held.ended.clear(), Held.built.clear()
    port, first = free_ports(), cluster_of(payload=payload)
    second = cluster_of("master-2", payload=payload, start_timeout=1.0)  # it begins without the busy one
    async with contextlib.AsyncExitStack() as stack:
        async with master_of(first, port):
            await stack.enter_async_context(lives_of(first, (0, 1)))
            await stack.enter_async_context(lives_of(first, (2,), Held))
            await asyncio.get_running_loop().run_in_executor(None, Held.begun.wait, 30)
        async with master_of(second, port) as ending:
            await second.saw(is_event("joined", 2))
            await second.saw(is_step(5))
            assert not [record for record in second.latencies if record.worker == 2]
            assert len(Held.built) == 1, "there is one compute thread, and it is busy"
            Held.may.set()
            await second.saw(is_event("ready", 2))
            mine = await second.saw(lambda record: getattr(record, "incarnation", "") == second.hub.incarnation(2))
            second.master.stop("enough")
            await ending  # what is applied is on record
    assert Held.ended[0] < Held.built[1]
    assert mine.evaluated == 2
    assert np.array_equal(second.compute.params, recomputed(second))


@pytest.mark.timeout(60)
async def test_a_worker_that_may_have_any_number_keeps_its_own_and_takes_another_when_that_is_taken():
    port, first, second = free_ports(), cluster_of(), cluster_of("master-2")
    async with contextlib.AsyncExitStack() as stack:
        async with master_of(first, port):
            await stack.enter_async_context(lives_of(first, (0, 2)))
            await first.saw(is_event("joined", 0))
            (free,) = await stack.enter_async_context(lives_of(first, (None,)))
            await first.saw(is_step(1))
            assert free.worker.number == 1
        async with master_of(second, port):
            await stack.enter_async_context(lives_of(second, (1,)))  # either may be the first
            await second.saw(is_step(5))
            assert sorted(number for number, _ in second.hub.admitted()) == [0, 1, 2]


# ---------------------------------------------------------------- the master does not know it any more


@pytest.mark.timeout(60)
async def test_a_life_of_another_run_or_master_is_told_why_and_to_say_hello_again():
    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as stale:
            await stale.be_ready()
            await cluster.saw(is_event("joined", 1))
            for changes in ({"master": "master-0"}, {"run": "run-0"}):
                await stale.say(wire.Heartbeat(state="idle", step=0, **stale.mine | changes))
                told = await stale.hear(wire.Rejected)
                assert told.again and "not to this one" in told.reason
            victim = {"worker": 1, "incarnation": cluster.hub.incarnation(1)}
            await stale.say(wire.Heartbeat(state="idle", step=0, **stale.mine | victim))
            assert not (await stale.hear(wire.Rejected)).again, "a false name is no former life"
            await stale.say(stale.hello(worker=1))
            await stale.say(stale.hello(worker=99))
            assert not (await stale.hear(wire.Rejected)).again
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_stale_life_whose_number_is_taken_is_refused_for_good():
    """A worker that was stopped for so long that another one was started in its place."""
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        former = scene.lives[2]
        cluster.hub.answer(  # as after its next sign of life, if the new one were admitted while it slept
            Peer(f"2:{cluster.hub.incarnation(2)}".encode()),
            wire.Rejected(reason="worker 2 of another incarnation is in this run", again=True),
        )
        await cluster.saw(is_event("ready", 2, "is back after"))
        assert not former.task.done()
        second = scene.start(2)
        with pytest.raises(JoinRefused, match="worker 2 is already in this run and alive"):
            await second.task
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_what_a_worker_said_in_its_life_before_does_not_keep_the_next_one_out():
    """As after a stop of the master: what lay unread was said before the hello, and may be read after it."""
    cluster, process = cluster_of(), new_process()
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2, new_life(process)) as before, Stranger(cluster, 2, new_life(process)) as after:
            await before.be_ready()
            await after.say(after.hello())
            welcome = asyncio.create_task(after.hear(wire.Welcome))
            while not welcome.done():
                await before.say(wire.Heartbeat(state="idle", step=0, **before.mine))
                await asyncio.wait({welcome}, timeout=0.02)
            assert welcome.result().worker == 2
            assert cluster.events("left")[0].text == "worker 2 begins again"
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_worker_that_may_have_any_number_and_cannot_work_here_says_so_at_once():
    """Whatever its number: it would be refused with any other, too, and would take them all."""

    class Another(NumpyWorker):
        fingerprint: ClassVar = {"model": "another"}

    def refuses(*_):
        raise JoinRefused("this code was not run")

    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        for worker in (0, 1):
            await cluster.saw(is_event("ready", worker))
        for make, why in ((Another, "its model differs"), (refuses, "this code was not run")):
            with pytest.raises(JoinRefused, match=why):
                await scene.start(None, make=make).task
        assert len([record for record in cluster.events("joined") if record.worker == 2]) == 2
        cluster.master.stop("enough")
        await scene.ended()


# ---------------------------------------------------------------- a silent master


@pytest.mark.timeout(60)
async def test_a_worker_that_hears_nothing_begins_a_new_life_when_the_way_is_free_again(caplog):
    """One-way loss: the master hears the worker, and the worker not the master."""
    caplog.set_level(logging.INFO)
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(lambda record: isinstance(record, LatencyRecord) and record.worker == 2)
        former = scene.lives[2].worker.life
        hub, cut = cluster.hub, True
        send = hub._send_now

        def loses(to, frames):
            return True if cut and bytes(frames[0]).startswith(b"2:") else send(to, frames)

        hub._send_now = loses
        hub.publish_params = hub.publish = lambda *_: None  # nor the broadcast
        await asyncio.sleep(0.3)  # what was on its way is there
        lease = former._bench._newest.lease
        while scene.lives[2].worker.life is former:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        [left] = re.findall(
            r"the master is silent for [\d.]+ s: looking for it again, for (\d+) s at most", caplog.text
        )
        assert int(left) < 20, "of those, silent ones are over"
        cut = False
        del hub.publish_params, hub.publish
        await cluster.sees(is_event("ready", 2))
        assert not len(lease.memory), "what it read is given back, not only forgotten"
        await cluster.sees(is_step(0))
        cluster.master.stop("enough")
        await scene.ended()
    assert "worker 2 is back in run run-1 after" in caplog.text


def lone_worker(sockets, port, **changes):
    told = {"host": "127.0.0.1", "number": 0, "prepare": lambda welcome: None, "master_timeout": 1.5}
    return Worker(sockets, port=port, **told | changes)


@pytest.mark.timeout(60)
async def test_a_first_contact_that_takes_long_is_told_of(monkeypatch, caplog):
    monkeypatch.setattr(worker, "REMIND_SECONDS", 0.4)
    with Sockets() as sockets, pytest.raises(MasterUnreachable, match="Is it running there"):
        await lone_worker(sockets, free_ports()).run()
    told = [record.message for record in caplog.records if "no master answers at tcp://127.0.0.1" in record.message]
    assert len(told) in (2, 3)
    assert "giving up in 1 s" in told[0]


@pytest.mark.timeout(60)
async def test_the_masters_name_is_looked_up_in_every_life(monkeypatch, caplog):
    """Report 19: its address may be another one after a while, and there may be none for a while."""
    monkeypatch.setattr(life, "CONNECT_SECONDS", 0.3)
    answers = iter([None, "127.0.0.2", "127.0.0.1"])

    def resolve(host, port):
        if host != "there":
            return host
        address = next(answers)
        if address is None:
            raise MasterUnreachable("the master's host there cannot be found: not yet.")
        return address

    monkeypatch.setattr(worker, "resolve", resolve)
    cluster = cluster_of(workers=2)
    async with running(cluster, workers=(0,)) as scene:
        with Sockets() as sockets:
            moved = cluster.worker(sockets, 1)
            moved._host = "there"
            task = asyncio.create_task(moved.run())
            await cluster.saw(is_event("ready", 1))
            cluster.master.stop("enough")
            await scene.ended()
            assert (await task).exit == 75
    assert next(answers, "nobody asked again") == "nobody asked again"


def test_tries_are_further_apart_each_time_up_to_a_bound_and_differ_between_workers():
    one, other = (list(islice(born.pauses(name), 12)) for name in ("a", "b"))
    shortest, longest = born.PAUSE_SECONDS
    assert shortest / 2 <= one[0] <= shortest
    assert all(longest / 2 <= pause <= longest for pause in one[6:])
    assert one != other


# ---------------------------------------------------------------- what is silence


def test_silence_is_counted_from_what_was_heard_last():
    silence = Silence(100.0)
    assert silence.look(100.25, 0.25) == 0.25
    silence.heard(100.4)
    assert silence.look(100.5, 0.25) == pytest.approx(0.1)


def test_a_suspended_machine_has_heard_no_silence():
    silence = Silence(100.0)
    silence.look(100.25, 0.25)
    assert silence.look(5000.0, 0.25) == pytest.approx(0.25)
    assert silence.look(5000.25, 0.25) == pytest.approx(0.5)


def test_what_was_heard_on_waking_up_is_not_in_the_future():
    silence = Silence(100.0)
    silence.heard(4999.9)
    assert silence.look(5000.0, 0.25) == 0.0


# ---------------------------------------------------------------- a spot notice


class Preparing(NumpyWorker):
    """Is built only when it may."""

    may = threading.Event()

    def __init__(self, *arguments):
        assert self.may.wait(30)
        super().__init__(*arguments)


@pytest.mark.timeout(60)
async def test_a_worker_that_is_still_preparing_says_goodbye_at_once():
    Preparing.may.clear()
    cluster = cluster_of(heartbeat=4.0, start_timeout=50.0)
    async with running(cluster, workers=(0, 1)) as scene:
        leaver = scene.start(2, make=Preparing)
        await cluster.saw(is_event("joined", 2))
        while not leaver.worker.life.mine:  # noqa: ASYNC110
            await asyncio.sleep(0)
        leaver.worker.leave("signal SIGTERM", 143)
        left = await cluster.saw(is_event("left", 2))
        assert left.text == "worker 2 left: signal SIGTERM"
        assert (await leaver.task).exit == 143
        Preparing.may.set()
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_worker_that_computes_says_goodbye_at_once():
    for flag in (Held.may, Held.begun):
        flag.clear()
    cluster = cluster_of(heartbeat=4.0, start_timeout=50.0)
    async with running(cluster, workers=(0, 1)) as scene:
        leaver = scene.start(2, make=Held)
        await asyncio.get_running_loop().run_in_executor(None, Held.begun.wait, 30)
        leaver.worker.leave("signal SIGTERM", 143)
        assert (await cluster.saw(is_event("left", 2))).text == "worker 2 left: signal SIGTERM"
        assert (await leaver.task).exit == 143
        Held.may.set()
        await cluster.sees(is_step(0))
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_worker_without_a_master_leaves_at_once():
    with Sockets() as sockets:
        alone = lone_worker(sockets, free_ports(), master_timeout=40.0)
        task = asyncio.create_task(alone.run())
        await asyncio.sleep(0.2)
        alone.leave("signal SIGTERM", 143)
        assert (await task).exit == 143


# ---------------------------------------------------------------- signs of life


@pytest.mark.timeout(60)
async def test_a_model_in_pure_python_does_not_keep_its_worker_from_showing_that_it_lives():
    """Reports 44, 45: whoever computes in Python leaves the loop its turn every few milliseconds."""

    class Busy(NumpyWorker):
        def evaluate(self, step, place, batch_fraction, room):
            until = time.monotonic() + (1.5 if step == 1 else 0.0)
            while time.monotonic() < until:
                pass
            return super().evaluate(step, place, batch_fraction, room)

    cluster = cluster_of(workers=2)
    async with running(cluster, workers=(0,)) as scene:
        scene.start(1, make=Busy)
        await cluster.saw(lambda record: getattr(record, "worker", None) == 1 and getattr(record, "step", None) == 1)
        assert not cluster.events("left")
        cluster.master.stop("enough")
        await scene.ended()
