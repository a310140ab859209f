"""Who may join: nobody without the right keys gets anything, and a worker that is turned away says why."""

import asyncio
import contextlib
import itertools
import logging
import socket
import uuid

import pytest
import zmq
import zmq.asyncio
from cluster import Cluster, both_payloads, is_step, rules, scheme, shared_memory
from zmq.utils.monitor import parse_monitor_message

from pgczmq.errors import AuthenticationFailed
from pgczmq.net import auth, wire
from pgczmq.net.auth import CurveClient, CurveServer, Gate, Handshakes, mechanism_of, new_pair, public_of
from pgczmq.net.memory import AVAILABLE
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.worker import Worker

LARGE = 2_000_000
"""Parameters: more bytes than a header may have, so that what encryption adds to a frame counts."""


class Keys:
    """Of a master, of a worker that is on its list, and of somebody who is not."""

    def __init__(self):
        self.public, self.secret = new_pair()
        self.listed, listed_secret = new_pair()
        self.names = {self.listed: "vm-1"}
        self.server = CurveServer(self.secret, self.names.get)
        self.worker = CurveClient(self.public, listed_secret)
        self.unlisted = CurveClient(self.public, new_pair()[1])
        self.other_master = CurveClient(new_pair()[0], listed_secret)


@pytest.fixture
def keys():
    return Keys()


@contextlib.asynccontextmanager
async def serving(security, steps=3, **changes):
    """A master with two workers' places, and its ending."""
    cluster = Cluster(scheme("dgd", 2), rules(steps), **changes)
    with Sockets(security=security) as sockets, contextlib.closing(cluster):
        cluster.open(sockets)
        ending = asyncio.create_task(cluster.master.run())
        try:
            async with asyncio.timeout(40):
                yield cluster, ending
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)


@contextlib.contextmanager
def lone_worker(security, port, seconds=20.0, prepare=None):
    with Sockets(security=security) as sockets:
        yield Worker(
            sockets, host="127.0.0.1", port=port, number=None, prepare=prepare or nothing, master_timeout=seconds
        )


def nothing(welcome):
    raise AssertionError("it was let in")


async def work(cluster, security, number):
    with Sockets(security=security) as sockets:
        return await cluster.worker(sockets, number).run()


# ---------------------------------------------------------------- who gets in


@both_payloads
@pytest.mark.parametrize("size", [1000, LARGE])
async def test_a_whole_run_with_keys(keys, payload, size):
    async with serving(keys.server, size=size, payload=payload) as (cluster, ending):
        byes = await asyncio.gather(*(work(cluster, keys.worker, number) for number in (0, 1)))
        assert (await ending).reason == "done"
        assert [bye.reason for bye in byes] == ["done", "done"]
    assert [step for step, _ in cluster.compute.applied] == [0, 1, 2]


class Raw:
    """A peer that is plain ZeroMQ, without a line of this program; remembers what became of its handshakes."""

    def __init__(self, context, kind, address, key, identity=b"?:raw"):
        self.socket = context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        if kind == zmq.SUB:
            self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        else:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        if key is not None:
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, key.server.encode())
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, public_of(key.secret).encode())
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | auth_failures())
        self.socket.connect(address)

    async def handshake(self):
        """The name of the next event."""
        event = parse_monitor_message(await self.monitor.recv_multipart())["event"]
        return zmq.Event(event).name

    def close(self):
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


def auth_failures():
    return zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


def addresses(cluster):
    """Every address that a master listens on: kind of the peer's socket, and where."""
    ports = cluster.hub.ports
    found = [
        (zmq.DEALER, endpoint("127.0.0.1", ports.control)),
        (zmq.DEALER, endpoint("127.0.0.1", ports.gradients)),
        (zmq.SUB, endpoint("127.0.0.1", ports.params)),
        (zmq.SUB, endpoint("127.0.0.1", ports.metrics)),
    ]
    if AVAILABLE:
        here = "ipc://@pgczmq-master-1"
        found += [(zmq.DEALER, endpoint(here, ports.gradients)), (zmq.SUB, endpoint(here, ports.params))]
    return found


def hello(incarnation):
    return wire.pack(wire.Hello(worker=None, incarnation=incarnation, package="0", host="raw", pid=1))


@pytest.fixture
def raw_context():
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)  # a test that fails leaves sockets open


@pytest.mark.parametrize("who", ["nobody", "unlisted", "other_master"])
async def test_a_stranger_gets_nothing_from_any_socket(keys, raw_context, who):
    """Not a byte of the run: no handshake is finished, whatever it sends, while a listed worker is welcomed."""
    key = None if who == "nobody" else getattr(keys, who)
    async with serving(keys.server, payload="auto") as (cluster, _):
        peers = [Raw(raw_context, kind, address, key) for kind, address in addresses(cluster)]
        for peer in peers:
            assert "FAILED" in await peer.handshake()
        for peer in peers[:2]:
            peer.socket.send_multipart([hello("raw")], flags=zmq.DONTWAIT, copy=True)
        listed = Raw(raw_context, zmq.DEALER, addresses(cluster)[0][1], keys.worker, b"?:good")
        assert await listed.handshake() == "HANDSHAKE_SUCCEEDED"
        await listed.socket.send(hello("good"))
        welcome = wire.to_worker((await listed.socket.recv_multipart())[0])
        assert isinstance(welcome, wire.Welcome)
        cluster.hub.publish(wire.Beacon(step=0, **cluster.hub.mine))
        for peer in peers:
            while await peer.monitor.poll(0):
                assert "FAILED" in await peer.handshake()
            assert not await peer.socket.poll(0)
            peer.close()
        listed.close()


@pytest.mark.parametrize("offset", range(4 + 2 * AVAILABLE))
async def test_a_listed_key_opens_every_socket(keys, raw_context, offset):
    async with serving(keys.server, payload="auto") as (cluster, _):
        peer = Raw(raw_context, *addresses(cluster)[offset], keys.worker)
        assert await peer.handshake() == "HANDSHAKE_SUCCEEDED"
        peer.close()


async def test_nobody_gets_in_while_nobody_answers_who_may(keys, raw_context, monkeypatch):
    """ZeroMQ's default is the other way round (report 18)."""
    monkeypatch.setattr(Sockets, "_open_gate", lambda self, security: Gate(security.name_of))
    async with serving(keys.server) as (cluster, _):
        for kind, address in addresses(cluster)[:4]:
            peer = Raw(raw_context, kind, address, keys.worker)
            assert "FAILED" in await peer.handshake()
            peer.close()


async def test_a_key_whose_line_is_gone_is_let_in_no_more(keys, raw_context):
    async with serving(keys.server) as (cluster, _):
        first = Raw(raw_context, *addresses(cluster)[0], keys.worker)
        assert await first.handshake() == "HANDSHAKE_SUCCEEDED"
        keys.names.clear()
        second = Raw(raw_context, *addresses(cluster)[0], keys.worker)
        assert await second.handshake() == "HANDSHAKE_FAILED_AUTH"
        first.close()
        second.close()


async def test_a_list_that_cannot_be_read_lets_nobody_in_and_ends_nothing(keys, raw_context, caplog):
    names = dict(keys.names)

    def name_of(public):
        if not keys.names:
            raise RuntimeError("no list")
        return names.get(public)

    keys.names.clear()
    async with serving(CurveServer(keys.secret, name_of)) as (cluster, _):
        one = Raw(raw_context, *addresses(cluster)[0], keys.worker)
        assert await one.handshake() == "HANDSHAKE_FAILED_AUTH"
        keys.names.update(names)
        other = Raw(raw_context, *addresses(cluster)[0], keys.worker)
        assert await other.handshake() == "HANDSHAKE_SUCCEEDED"
        one.close()
        other.close()
    assert "cannot look up who a key belongs to" in caplog.text


async def test_a_busy_loop_keeps_nobody_waiting(keys):
    """The answer does not come from the event loop."""
    with Sockets(security=keys.server) as sockets, zmq.Context() as context:
        _, port = sockets.control_router("127.0.0.1", 0)
        peer = context.socket(zmq.DEALER)
        peer.curve_serverkey = keys.worker.server.encode()
        peer.curve_publickey, peer.curve_secretkey = keys.listed.encode(), keys.worker.secret.encode()
        monitor = peer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        peer.connect(endpoint("127.0.0.1", port))
        monitor.recv_multipart()  # blocks this thread, and with it the loop
        peer.disable_monitor()
        monitor.close(0)
        peer.close(0)


# ---------------------------------------------------------------- what a worker says


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("unlisted", "does not know this worker's key.*pgc keygen --worker NAME"),
        ("other_master", "has another key than the one this worker was given"),
        ("nobody", "wants a key, and this worker has none.*pgc-connect.json"),
    ],
)
async def test_a_worker_that_is_not_let_in_says_why(keys, who, text):
    security = auth.PLAIN if who == "nobody" else getattr(keys, who)
    async with serving(keys.server) as (cluster, _):
        with lone_worker(security, cluster.hub.ports.control) as worker, pytest.raises(AuthenticationFailed) as info:
            await worker.run()
    assert info.match(text)
    assert "\n" not in str(info.value)
    assert info.value.exit_code == 72


async def test_a_worker_with_keys_does_not_talk_to_a_master_without(keys):
    async with serving(auth.PLAIN) as (cluster, _):
        with (
            lone_worker(keys.worker, cluster.hub.ports.control) as worker,
            pytest.raises(AuthenticationFailed, match="uses no keys, and this worker would send nothing in the clear"),
        ):
            await worker.run()


GARBAGE = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"x" * 200
"""Begins as a greeting does."""


@contextlib.asynccontextmanager
async def something_else(answer, visits, port=0):
    """A program that is no master: it answers anybody with the same bytes and closes.

    Gives its port, and an event that is set after so many visits: ZeroMQ's, and of who looks what went wrong.
    """
    count, enough = itertools.count(1), asyncio.Event()

    async def visited(reader, writer):
        if next(count) == visits:
            enough.set()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", port)
    try:
        async with asyncio.timeout(40):
            yield server.sockets[0].getsockname()[1], enough
    finally:
        server.close()


@pytest.mark.parametrize("who", ["nobody", "worker"])
async def test_what_is_no_master_is_waited_for_and_not_taken_for_a_wrong_key(keys, who):
    """An SSH tunnel accepts and closes while there is no master at its other end."""
    security = auth.PLAIN if who == "nobody" else keys.worker
    async with something_else(b"", 2 * auth.SURE_AFTER + 2) as (port, enough):
        with lone_worker(security, port) as worker:
            running = asyncio.create_task(worker.run())
            await enough.wait()
            still_waiting = not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert still_waiting


@pytest.mark.parametrize("who", ["nobody", "worker"])
async def test_a_socket_that_zeromq_has_given_up_is_connected_again(keys, who):
    """It does not try again after an answer that is not its protocol; and the others of a worker may be fine."""
    security = auth.PLAIN if who == "nobody" else keys.worker
    async with something_else(GARBAGE, 4) as (port, twice):
        with Sockets(security=security) as sockets:
            dealer = sockets.bulk_dealer(endpoint("127.0.0.1", port), "1:a", 10)
            watching = asyncio.create_task(sockets.watch(dealer, Handshakes("127.0.0.1", port, security)))
            await twice.wait()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("who", ["nobody", "worker"])
async def test_garbage_in_a_handshake_costs_a_worker_nothing(keys, who):
    theirs, mine = (auth.PLAIN, auth.PLAIN) if who == "nobody" else (keys.server, keys.worker)
    cluster, port = Cluster(scheme("dgd", 1), rules(3)), four_ports()
    with Sockets(security=theirs) as sockets, lone_worker(mine, port, 40.0, cluster.prepared) as worker:
        async with something_else(GARBAGE, 4, port) as (_, twice):
            running = asyncio.create_task(worker.run())
            await twice.wait()
        async with asyncio.timeout(40):
            cluster.open(sockets, port=port)
            with contextlib.closing(cluster):
                assert (await cluster.master.run()).reason == "done"
                assert (await running).reason == "done"


def test_how_a_socket_greets(keys):
    with Sockets() as plain, Sockets(security=keys.server) as curve, socket.socket() as silent:
        assert mechanism_of("127.0.0.1", plain.control_router("127.0.0.1", 0)[1], mine="NULL") == "NULL"
        assert mechanism_of("127.0.0.1", curve.control_router("127.0.0.1", 0)[1], mine="NULL") == "CURVE"
        silent.bind(("127.0.0.1", 0))
        assert mechanism_of("127.0.0.1", silent.getsockname()[1], mine="NULL") == ""


def four_ports():
    """The first of four neighbouring ones that are free now."""
    for base in range(21_000, 60_000, 4):
        with contextlib.ExitStack() as stack:
            try:
                for offset in range(4):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", base + offset))
            except OSError:
                continue
            return base
    raise AssertionError("no free ports")


def event(kind, value=0):
    return [kind.to_bytes(2, "little") + value.to_bytes(4, "little"), b"tcp://127.0.0.1:1"]


def test_a_wrong_key_is_certain_only_after_some_in_a_row(keys, monkeypatch):
    """One broken handshake is what a master leaves behind that is killed and back at once."""
    monkeypatch.setattr(auth, "mechanism_of", lambda host, port, mine: "CURVE")
    handshakes = Handshakes("127.0.0.1", 1, keys.worker)
    for _ in range(2):
        for _ in range(auth.SURE_AFTER - 1):
            assert handshakes.take(event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)) is False
        handshakes.take(event(zmq.EVENT_HANDSHAKE_SUCCEEDED))
    for _ in range(auth.SURE_AFTER - 1):
        handshakes.take(event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL))
    with pytest.raises(AuthenticationFailed, match="another key"):
        handshakes.take(event(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL))


async def lost_after_some_steps(security, port):
    """A master that is gone in the middle of a run, without a word."""
    cluster = Cluster(scheme("dgd", 1), rules(100_000))
    with contextlib.closing(cluster), Sockets(security=security) as sockets:
        cluster.open(sockets, port=port)
        ending = asyncio.create_task(cluster.master.run())
        yield cluster
        await cluster.saw(is_step(3))
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


@pytest.mark.parametrize("who", ["the same", "another"])
async def test_a_master_that_is_back_is_trusted_by_its_key_alone(keys, who):
    """A connection that breaks in the middle of a run is no wrong key; another master at its address is one."""
    port = four_ports()
    async with asyncio.timeout(40):
        async with contextlib.asynccontextmanager(lost_after_some_steps)(keys.server, port) as cluster:
            sockets = Sockets(security=keys.worker)
            worker = cluster.worker(sockets, 0)
            running = asyncio.create_task(worker.run())
        back = Cluster(scheme("dgd", 1), rules(3))
        with sockets, Sockets(security=(keys if who == "the same" else Keys()).server) as theirs:
            back.open(theirs, port=port)
            with contextlib.closing(back):
                ending = asyncio.create_task(back.master.run())
                if who == "the same":
                    assert ((await running).reason, (await ending).reason) == ("done", "done")
                else:
                    with pytest.raises(AuthenticationFailed, match="has another key"):
                        await running
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)


# ---------------------------------------------------------------- what a master says


async def test_a_master_says_whom_it_let_in_and_whom_it_turned_away(keys, raw_context, caplog):
    caplog.set_level(logging.INFO, "pgczmq.master")
    async with serving(keys.server) as (cluster, _):
        # ZeroMQ's own sockets may leave before the master has seen that they come without encryption.
        await asyncio.to_thread(mechanism_of, "127.0.0.1", cluster.hub.ports.control, mine="NULL")
        for key in (keys.unlisted, keys.other_master, keys.worker, keys.worker):
            for _ in range(2):
                peer = Raw(raw_context, *addresses(cluster)[0], key, uuid.uuid4().bytes)
                await peer.handshake()
                peer.close()
    said = [record.getMessage() for record in caplog.records]
    assert sorted(text for text in said if "turned away" in text or "let in" in text) == [
        "let in the key of vm-1 from 127.0.0.1",
        "turned away a peer at 127.0.0.1 whose key is not on the list",
        "turned away a peer that came without encryption",
        "turned away a peer that expects another master, by its key",
    ]


def test_peers_that_are_turned_away_are_named_once_a_minute(keys, monkeypatch, caplog):
    now = 100.0
    monkeypatch.setattr(auth.time, "monotonic", lambda: now)
    gate = Gate(keys.names.get)
    for now in (100.0, 101.0, 159.0, 161.0, 162.0):  # noqa: B007  # the clock reads it
        reply = gate.answer([b"1.0", b"7", b"pgczmq", b"10.0.0.9", b"", b"CURVE", bytes(32)])
        assert reply == [b"1.0", b"7", b"400", b"this key is not on the list", b"", b""]
    assert [record.getMessage() for record in caplog.records] == [
        "turned away a peer at 10.0.0.9 whose key is not on the list",
        "turned away a peer at 10.0.0.9 whose key is not on the list; and 2 of the kind before it",
    ]


@pytest.mark.parametrize("credentials", [[], [bytes(32), bytes(32)], [b"short"]])
@pytest.mark.parametrize("mechanism", [b"CURVE", b"NULL", b"PLAIN", b""])
def test_the_gate_opens_for_nothing_but_one_listed_key(mechanism, credentials, keys):
    request = [b"1.0", b"7", b"pgczmq", b"10.0.0.9", b"", mechanism, *credentials]
    assert Gate(lambda public: None if public else "x").answer(request)[2] == b"400"


async def test_no_key_is_in_a_log_an_error_or_a_repr(keys, caplog):
    caplog.set_level(logging.DEBUG)
    said = [repr(keys.server), repr(keys.worker), str(keys.worker)]
    async with serving(keys.server) as (cluster, ending):
        for security in (keys.unlisted, keys.other_master):
            with lone_worker(security, cluster.hub.ports.control) as worker:
                with pytest.raises(AuthenticationFailed) as info:
                    await worker.run()
                said.append(str(info.value))
        await asyncio.gather(*(work(cluster, keys.worker, number) for number in (0, 1)))
        await ending
    text = "\n".join([*said, caplog.text])
    secrets = [keys.secret, keys.worker.secret, keys.unlisted.secret]
    assert not [key for key in (*secrets, keys.listed) if key in text]


@shared_memory
async def test_every_socket_of_both_ends_is_encrypted(keys):
    with Sockets(security=keys.server) as master, Sockets(security=keys.worker) as worker:
        control, port = master.control_router("127.0.0.1", 0)
        bulk, _ = master.bulk_router("127.0.0.1", 0, 10)
        params, _ = master.broadcast("127.0.0.1", 0, 10)
        here = master.local_broadcast(f"ipc://@pgczmq-test-{uuid.uuid4().hex}", 1)
        for one in (control, bulk, params, here):
            assert (one.socket.getsockopt(zmq.MECHANISM), one.socket.getsockopt(zmq.CURVE_SERVER)) == (zmq.CURVE, 1)
            assert one.socket.getsockopt(zmq.ZAP_ENFORCE_DOMAIN) == 1
        address = endpoint("127.0.0.1", port)
        dealers = (worker.control_dealer(address, "1:a"), worker.bulk_dealer(address, "1:a", 10))
        for one in (*dealers, worker.subscriber(address, 10)):
            assert (one.socket.getsockopt(zmq.MECHANISM), one.socket.getsockopt(zmq.CURVE_SERVER)) == (zmq.CURVE, 0)
