"""Connections that cost too much are ended from outside: messages without end, and strangers without number."""

import asyncio
import contextlib
import socket

import pytest
import zmq
from cluster import Cluster, is_step, rules, running, scheme

from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.net import doorman, limits
from pgczmq.net.doorman import Doorman

pytestmark = [
    pytest.mark.skipif(not doorman._OPEN_FILES.is_dir(), reason="only Linux has /proc"),
    pytest.mark.timeout(60),
]
HOST = "127.0.0.1"
PART = b"\x03" + (60_000).to_bytes(8) + bytes(60_000)
"""A frame that says that others follow."""


@pytest.fixture
def routers():
    """The ports of a master, two of them broadcasts; nobody reads from them."""
    with zmq.Context() as context:
        made = [context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PUB, zmq.PUB)]
        ports = [one.bind_to_random_port(f"tcp://{HOST}") for one in made]
        for one in made:
            one.linger = 0
        yield made, ports
        for one in made:
            one.close()


def doorman_of(ports, workers=2, message_bytes=1000):
    names = ("control", "gradients", "params", "metrics")
    return Doorman(**dict(zip(names, ports, strict=True)), workers=workers, message_bytes=message_bytes)


def is_open(peer):
    peer._stream.setblocking(False)
    try:
        return peer._stream.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def pour(peer, nbytes):
    """As much of one message as the other end takes."""
    with contextlib.suppress(ConnectionError):
        for _ in range(nbytes // len(PART) + 1):
            peer.send_raw(PART)


async def test_a_message_without_end_ends_its_connection_and_nothing_else(caplog):
    cluster = Cluster(scheme("dgd", 3), rules(100_000))
    async with running(cluster) as scene:
        await cluster.saw(is_step(3))
        with Peer.of(HOST, cluster.hub.ports.control, b"endless") as endless:
            await asyncio.to_thread(pour, endless, limits.WAITING_BYTES_AT_MOST + 2**20)
            while is_open(endless):
                await cluster.sees(is_step(0))
        await cluster.sees(is_step(0))
        assert not cluster.events("left")
        cluster.master.stop("enough")
        await scene.ended()
    assert "ended a connection from 127.0.0.1: it has sent" in caplog.text


async def test_what_workers_send_for_ever_ends_nothing(monkeypatch, caplog):
    """However little may wait: what has been read does not."""
    monkeypatch.setattr(doorman, "WAITING_BYTES_AT_MOST", 100_000)
    monkeypatch.setattr(doorman, "LOOK_SECONDS", 0.01)
    cluster = Cluster(scheme("dgd", 3), rules(400), size=10_000)
    async with running(cluster) as scene:
        ending = await scene.ended()
    assert (ending.exit_code, ending.steps) == (0, 400)  # 16 MB of each worker
    assert "ended a connection" not in caplog.text


def test_a_frame_that_came_out_is_not_waiting_and_one_that_did_not_is(routers):
    (control, *_), ports = routers
    keeper = doorman_of(ports)
    with Peer.of(HOST, ports[0], b"x") as peer:
        peer.send([b"one"])
        frames = control.recv_multipart(copy=False)
        descriptor = frames[0].get(zmq.SRCFD)
        for _ in range(20):
            pour_whole(peer)
            whole = control.recv_multipart(copy=False)
            keeper.came_out(descriptor, sum(map(len, whole)) + doorman.FRAME_BYTES * len(whole))
            assert keeper.look(0.0) == []
        pour(peer, limits.WAITING_BYTES_AT_MOST)
        wait_for(lambda: keeper.look(0.0))
        wait_for(lambda: not is_open(peer))


def test_what_came_out_before_the_first_look_is_not_waiting(routers):
    """A worker of a fast run has sent many gradients by then."""
    (control, *_), ports = routers
    keeper = doorman_of(ports)
    for name in (b"x", b"y"):  # the second may have the descriptor of the first
        with Peer.of(HOST, ports[0], name) as peer:
            for _ in range(2 + limits.WAITING_BYTES_AT_MOST // 2**20):
                pour_whole(peer)
                frames = control.recv_multipart(copy=False)
                keeper.came_out(frames[0].get(zmq.SRCFD), sum(map(len, frames)) + doorman.FRAME_BYTES * len(frames))
            assert keeper.look(0.0) == []
            assert is_open(peer)


def pour_whole(peer):
    peer.send([bytes(2**20)])


def wait_for(condition):
    for _ in range(1_000_000):
        if condition():
            return
    raise AssertionError("it does not come")


def test_subscriptions_without_end_end_their_connection(routers):
    (_, _, params, _), ports = routers
    keeper = doorman_of(ports)
    with Peer.subscriber(HOST, ports[2]) as greedy, Peer.subscriber(HOST, ports[2]) as modest:
        topics = [[b"\x01" + number.to_bytes(100)] for number in range(limits.SUBSCRIPTIONS_BYTES_AT_MOST // 100)]
        with contextlib.suppress(ConnectionError):
            greedy.send(*topics)
        wait_for(lambda: params.send(b"beat") or keeper.look(0.0))
        wait_for(lambda: not is_open(greedy))
        assert is_open(modest)
        wait_for(lambda: params.send(b"beat") or keeper.look(0.0) == [])  # ZeroMQ lets go of it when it is called


def received_in_all(keeper):
    found = doorman._connections(keeper._limits)
    try:
        return sum(doorman._received(each.stream) for each in found.values())
    finally:
        for each in found.values():
            each.stream.close()


@pytest.mark.parametrize("place", [0, 2])
def test_heartbeats_for_weeks_are_no_message_without_end(routers, monkeypatch, place):
    """A worker that has little else to say, and a subscriber, which says nothing else."""
    monkeypatch.setattr(doorman, "WAITING_BYTES_AT_MOST", 50_000)
    monkeypatch.setattr(doorman, "SUBSCRIPTIONS_BYTES_AT_MOST", 50_000)
    made, ports = routers
    keeper, week, pings = doorman_of(ports), 7 * 24 * 3600, 1000 * b"\x04\x07\x04PING\x00\x00"
    with Peer.of(HOST, ports[0], b"worker") if place == 0 else Peer.subscriber(HOST, ports[place]) as peer:
        if place == 0:
            peer.send([b"hello"])
            keeper.is_workers(made[0].recv_multipart(copy=False)[0].get(zmq.SRCFD))
        assert keeper.look(0.0) == []
        for number in range(10):
            before = received_in_all(keeper)
            peer.send_raw(pings)
            wait_for(lambda before=before: received_in_all(keeper) >= before + len(pings))
            assert keeper.look(week * (number + 1) / 10) == []
        peer.send_raw(6 * pings)
        wait_for(lambda: keeper.look(week + 1.0))


@pytest.mark.parametrize("place", [0, 1])
def test_of_too_many_strangers_the_first_go_and_workers_stay(routers, place):
    made, ports = routers
    keeper = doorman_of(ports)
    at_most = limits.STRANGERS_CONNECTED_AT_MOST + 4
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(Peer.of(HOST, ports[place], b"worker"))
        worker.send([b"hello"])
        keeper.is_workers(made[place].recv_multipart(copy=False)[0].get(zmq.SRCFD))
        assert keeper.look(0.0) == []
        peers = []
        for number in range(at_most + 10):
            peers.append(stack.enter_context(Peer.of(HOST, ports[place], b"%d" % number)))
            if number % 10 == 9:
                keeper.look(0.0)  # so that it is known who came first
        wait_for(lambda: len(keeper.look(0.0)) == 0 and sum(map(is_open, peers)) == at_most)
        assert is_open(worker)
        assert not any(map(is_open, peers[:10]))


def test_of_too_many_subscribers_the_last_go(routers):
    _, ports = routers
    keeper = doorman_of(ports)
    at_most = limits.STRANGERS_CONNECTED_AT_MOST + 8
    with contextlib.ExitStack() as stack:
        peers = []
        for number in range(at_most + 10):
            peers.append(stack.enter_context(Peer.subscriber(HOST, ports[2])))
            if number == at_most - 1:
                assert keeper.look(0.0) == []
        wait_for(lambda: len(keeper.look(0.0)) == 0 and sum(map(is_open, peers)) == at_most)
        assert all(map(is_open, peers[:at_most]))


def test_a_connection_that_gets_the_number_of_another_is_no_workers(routers):
    (control, *_), ports = routers
    keeper = doorman_of(ports)
    worker = Peer.of(HOST, ports[0], b"worker")
    worker.send([b"hello"])
    descriptor = control.recv_multipart(copy=False)[0].get(zmq.SRCFD)
    keeper.is_workers(descriptor)
    keeper.look(0.0)
    assert descriptor in keeper._workers
    worker.__exit__()
    control.poll(50)  # it takes note
    with Peer.of(HOST, ports[0], b"another"):
        wait_for(lambda: keeper.look(0.0) == [] and descriptor not in keeper._workers)


def test_connections_from_one_port_to_two_of_ours_are_two(routers):
    """The system gives out a port again for a connection to another one."""
    _, ports = routers
    keeper = doorman_of(ports)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(socket.socket())
        second = stack.enter_context(socket.socket())
        for near, port in ((first, ports[0]), (second, ports[1])):
            near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            near.bind((HOST, 0) if near is first else first.getsockname())
            near.connect((HOST, port))
        wait_for(lambda: keeper.look(0.0) == [] and len(keeper._seen) == 2)


def test_other_connections_of_the_process_are_left_alone(routers):
    _, ports = routers
    keeper = doorman_of(ports, message_bytes=0)
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.sendall(bytes(2**20))
            assert keeper.look(0.0) == []
            assert not keeper._seen
