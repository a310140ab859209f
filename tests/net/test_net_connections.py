"""Connections that end while a worker is joining: it must get in nevertheless."""

import asyncio

import pytest
from cluster import HANG_SECONDS, Asked, Cluster, Stranger, is_event, rules, running, scheme
from test_net_lives import free_ports, master_of

from pgczmq.bench.torture.matrix.links import Link, Trap, Way
from pgczmq.net import life, wire
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.worker import Worker

LINKED = "127.0.0.9"
OUT, BACK = Way(0, True), Way(0, False)
EVER = 100_000


@pytest.mark.timeout(60)
async def test_a_worker_whose_first_hello_is_answered_with_garbage_gets_in_all_the_same(monkeypatch) -> None:
    """Garbage ends a connection of ZeroMQ's, for whoever has made it for good."""
    monkeypatch.setattr(life, "CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(life, "WELCOME_SECONDS", 1000.0)
    cluster, port = Cluster(scheme("dgd", 1), rules(EVER)), free_ports()
    with Link(LINKED, port) as link, Sockets() as sockets:
        hello = link.set(Trap(OUT, b"\xa5hello", holds=BACK))
        worker = Worker(
            sockets, host=LINKED, port=port, number=0, prepare=cluster.prepared, master_timeout=HANG_SECONDS
        )
        async with master_of(cluster, port), asyncio.timeout(HANG_SECONDS):
            working = asyncio.create_task(worker.run())
            await asyncio.to_thread(hello.sprung.wait, HANG_SECONDS)
            link.spoil(out=False)
            link.release()
            await cluster.saw(is_event("ready", 0))
            worker.leave("enough")
            await working


async def test_a_worker_that_could_not_be_reached_while_it_prepared_is_sent_its_beacon_when_it_is_back() -> None:
    cluster = Cluster(scheme("dgd", 1), rules(EVER))
    async with running(cluster, workers=()):
        with Stranger(cluster, 0) as one:
            await one.say(one.hello())
            welcome = await one.hear(wire.Welcome)
            one.control.line.close(linger=0)
            await cluster.saw(is_event("left", 0))
            name = f"0:{one.incarnation}"
            one.control = Asked(one.sockets.control_dealer(endpoint("127.0.0.1", one.ports.control), name))
            await one.say(wire.Heartbeat(state="preparing", step=-1, **one.mine))
            beat = await one.hear(wire.Beat)
            broadcast = Asked(one.sockets.subscriber(endpoint("127.0.0.1", welcome.params_port), 4 * cluster.size))
            frames = await broadcast.recv_multipart()
    assert not beat.ready, "it has not said yet that it is prepared"
    assert isinstance(wire.to_worker(frames[0]), wire.Beacon)
