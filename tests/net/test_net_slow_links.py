"""Answers on links that hold them back, or lose them with all that is behind them: each arrives, and nothing twice."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

import pytest
from cluster import Cluster, Intercepted, rules, run, running, scheme, shared_memory

from pgczmq.net import wire
from pgczmq.net.hub import Hub
from pgczmq.runlog import WorkerRecord

QUICK = 0.05  # seconds between beats
BEATS = 12  # signs of life, two for each beat: an answer would have been sent again, and asked for twice at least


class Link:
    """Between workers and the master's gradients socket: holds back what workers send while ``open`` is not set.

    What it holds has left the worker and its system, and has not reached the master: a slow network's queue.
    """

    def __init__(self, cluster):
        self.open = asyncio.Event()
        self.held = asyncio.Event()  # something is being held
        self._cluster = cluster
        self._streams = []
        self._tasks = set()

    async def __aenter__(self):
        hub = self._cluster.hub
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = hub.ports.gradients
        hub.ports = replace(hub.ports, gradients=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error):
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self):
        """Whatever is held is lost with its connection."""
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    async def _connected(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._streams += [writer, back]
        for routine in (self._carry(there, writer, None), self._carry(reader, back, self.open)):
            self._tasks.add(asyncio.create_task(routine))

    async def _carry(self, source, sink, gate):
        with contextlib.suppress(OSError):
            while block := await source.read(2**20):
                if gate is not None and len(block) > 200 and not gate.is_set():  # no handshake
                    self.held.set()
                    await gate.wait()
                sink.write(block)
                await sink.drain()


class Counting:
    """What comes to one of the master's sockets from each worker, by kind and step; loses nothing."""

    def __init__(self, hub):
        self.gradients, self.queries = Counter(), Counter()
        hub._gradients = Intercepted(hub._gradients, self._count)

    def _count(self, frames):
        message = wire.to_master(frames[1].bytes)
        if isinstance(message, wire.Gradient):
            self.gradients[message.worker, message.step] += 1
        if isinstance(message, wire.Query):
            self.queries[message.worker, message.step] += 1
        return False


@contextlib.asynccontextmanager
async def held_back(cluster):
    """A run of two workers whose first answers the link has held back for some beats."""
    async with running(cluster, workers=()) as scene:
        counting = Counting(cluster.hub)  # before the master begins to read
        async with Link(cluster) as link:
            for number in range(2):
                scene.start(number)
            await link.held.wait()
            for _ in range(BEATS):  # worker 1 has heard as many of the master's
                await cluster.sees(lambda record: isinstance(record, WorkerRecord) and record.worker == 1)
            yield scene, link, counting


@pytest.mark.timeout(60)
async def test_an_answer_that_a_slow_link_still_has_is_asked_for_and_not_sent_again():
    cluster = Cluster(scheme("dgd", 2), rules(3, heartbeat=QUICK))
    async with held_back(cluster) as (scene, link, counting):
        link.open.set()
        ending = await scene.ended()
    assert ending.exit_code == 0
    assert counting.gradients == {(worker, step): 1 for worker in range(2) for step in range(3)}
    assert counting.queries[1, 0] > 0, "it was long on its way, and asked for"


@pytest.mark.timeout(60)
async def test_an_answer_lost_with_its_connection_and_the_questions_behind_it_is_sent_again():
    cluster = Cluster(scheme("dgd", 2), rules(3, heartbeat=QUICK))
    async with held_back(cluster) as (scene, link, counting):
        link.cut()
        link.open.set()
        ending = await scene.ended()
    assert ending.exit_code == 0
    assert [step for step, _ in cluster.compute.applied] == [0, 1, 2]
    assert set(counting.gradients.values()) == {1}, "the first ones never came"


class LosingFirst(Counting):
    """Loses the first answer of each worker."""

    def _count(self, frames):
        super()._count(frames)
        message = wire.to_master(frames[1].bytes)
        return message.type == "gradient" and message.step == 0 and self.gradients[message.worker, 0] == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("payload", ["tcp", pytest.param("shm", marks=shared_memory)])
async def test_a_lost_answer_is_sent_again_once_however_often_that_is_asked_for(payload, monkeypatch):
    """Several queries about one sending may be on their way, each of them answered."""
    send, said = Hub.send_control, []

    def three_times(self, incarnation, message):
        if isinstance(message, wire.Again):
            said.append(message.sending)
            send(self, incarnation, message)
            send(self, incarnation, message)
        return send(self, incarnation, message)

    monkeypatch.setattr(Hub, "send_control", three_times)
    counting = []
    cluster = Cluster(scheme("dgd", 2), rules(3, heartbeat=QUICK), payload=payload)
    ending = await run(cluster, opened=lambda cluster: counting.append(LosingFirst(cluster.hub)))
    assert ending.exit_code == 0
    assert said == [1, 1]
    expected = {(worker, step): 2 if step == 0 else 1 for worker in range(2) for step in range(3)}
    assert counting[0].gradients == expected
