"""Every option is really set on every socket, and the rules of the network layer hold in its source."""

import ast
import re
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import zmq
from cluster import Asked

from pgczmq.errors import ConfigError
from pgczmq.net import limits, wire
from pgczmq.net import sockets as factory
from pgczmq.net.memory import AVAILABLE
from pgczmq.net.sockets import Sockets, endpoint

PACKAGE = Path(__file__).parents[2] / "pgczmq"
BYTES = 8_000_000


@pytest.fixture
def made():
    """One socket of each kind."""
    with Sockets() as sockets:
        control, control_port = sockets.control_router("127.0.0.1", 0)
        bulk, bulk_port = sockets.bulk_router("127.0.0.1", 0, BYTES)
        params, params_port = sockets.broadcast("127.0.0.1", 0, BYTES)
        metrics, metrics_port = sockets.showing("127.0.0.1", 0)
        name = f"ipc://@pgczmq-test-{uuid.uuid4().hex}"
        lines = {
            "control_router": control,
            "bulk_router": bulk,
            "broadcast": params,
            "metrics": metrics,
            "control_dealer": sockets.control_dealer(endpoint("127.0.0.1", control_port), "1:abc"),
            "bulk_dealer": sockets.bulk_dealer(endpoint("127.0.0.1", bulk_port), "1:abc", BYTES),
            "subscriber": sockets.subscriber(endpoint("127.0.0.1", params_port), BYTES),
            "viewer": sockets.viewer(endpoint("127.0.0.1", metrics_port)),
        } | ({"local_broadcast": sockets.local_broadcast(name, params_port)} if AVAILABLE else {})
        yield {kind: Asked(line) for kind, line in lines.items()}


NAMES = ["control_router", "bulk_router", "broadcast", "metrics", "control_dealer", "bulk_dealer", "subscriber"]
NAMES += ["viewer"]
NAMES += ["local_broadcast"] if AVAILABLE else []


@pytest.mark.parametrize("name", NAMES)
def test_no_socket_keeps_a_default_that_hurts(made, name):
    """X11, X12."""
    one = made[name]
    assert one.getsockopt(zmq.LINGER) == 0
    assert one.getsockopt(zmq.IPV6) == 1
    assert one.getsockopt(zmq.HANDSHAKE_IVL) == 10_000
    assert 0 < one.getsockopt(zmq.RECONNECT_IVL) < one.getsockopt(zmq.RECONNECT_IVL_MAX) <= 10_000
    assert one.getsockopt(zmq.TCP_KEEPALIVE) == 1
    assert 0 < one.getsockopt(zmq.TCP_KEEPALIVE_IDLE) <= 30
    # Report 11: no timers of ZeroMQ's own on an event loop.
    assert one.getsockopt(zmq.RCVTIMEO) == one.getsockopt(zmq.SNDTIMEO) == -1


@pytest.mark.parametrize("name", NAMES)
def test_whoever_is_gone_is_noticed_and_whoever_is_slow_is_not_taken_for_gone(made, name):
    """Reports 16 and 48: a TTL above 65,535 ms is taken modulo 65,536, and 600,000 were 10 s in the end."""
    one = made[name]
    interval, timeout = one.getsockopt(zmq.HEARTBEAT_IVL), one.getsockopt(zmq.HEARTBEAT_TIMEOUT)
    if name == "control_dealer":
        assert 0 < interval < timeout <= one.getsockopt(zmq.HEARTBEAT_TTL) < 2**16
        return
    assert interval == 0, "ZeroMQ aborts a process that wants to ping a peer that went while its queue was full"
    if name not in {"control_router", "local_broadcast"}:  # pinged by the other end; where the kernel tells
        # A message may take an hour, as long as some of it is acknowledged.
        assert one.getsockopt(zmq.TCP_KEEPALIVE_IDLE) < one.getsockopt(zmq.TCP_MAXRT) / 1000 <= 60


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_in_is_bounded(made, name):
    """X6, X11: bytes of one message, and messages."""
    one, marks = made[name], (made[name].getsockopt(zmq.SNDHWM), made[name].getsockopt(zmq.RCVHWM))
    if "bulk" in name or name == "subscriber":
        assert marks == (4, 4)
        assert one.getsockopt(zmq.MAXMSGSIZE) == max(BYTES, wire.HEADER_BYTES_AT_MOST)
    elif "control" in name:
        assert marks == (1000, limits.CONTROL_QUEUED_AT_MOST)
        longest = limits.CONTROL_BYTES_AT_MOST if name == "control_router" else wire.HEADER_BYTES_AT_MOST
        assert one.getsockopt(zmq.MAXMSGSIZE) == longest
    elif name in {"metrics", "viewer"}:
        longest = limits.SUBSCRIPTION_BYTES_AT_MOST if name == "metrics" else wire.HEADER_BYTES_AT_MOST
        assert one.getsockopt(zmq.MAXMSGSIZE) == longest
        assert marks == (2, 2)
    else:
        assert one.getsockopt(zmq.MAXMSGSIZE) == (-1 if name == "local_broadcast" else 1024)
        assert marks[0] == (factory.BROADCAST_BYTES // BYTES if name == "broadcast" else 1000)


@pytest.mark.parametrize(
    ("nbytes", "at_the_master", "at_a_worker"),
    [(0, 16, 64), (4_000, 16, 64), (32_768, 16, 32), (131_072, 8, 8), (1_000_000, 4, 4), (46_800_000, 4, 4)],
)
def test_small_messages_may_wait_in_numbers(nbytes, at_the_master, at_a_worker):
    """Two threads wake each other up whenever half of a queue was read."""
    with Sockets() as sockets:
        router, port = sockets.bulk_router("127.0.0.1", 0, nbytes)
        dealer = sockets.bulk_dealer(endpoint("127.0.0.1", port), "1:abc", nbytes)
        subscriber = sockets.subscriber(endpoint("127.0.0.1", port), nbytes)
        for line, mark in ((router, at_the_master), (dealer, at_a_worker), (subscriber, at_a_worker)):
            assert [line.socket.getsockopt(kind) for kind in (zmq.SNDHWM, zmq.RCVHWM)] == [mark, mark]


@pytest.mark.parametrize(("nbytes", "mark"), [(1, 1000), (67_108, 1000), (46_800_000, 2), (2**30, 2), (0, 1000)])
def test_a_broadcast_queues_about_64_mib(nbytes, mark):
    """X6, X20: 94, 140, 234 MB for a stopped subscriber at 1, 2, 4 messages of 46.8 MB."""
    with Sockets() as sockets:
        one, _ = sockets.broadcast("127.0.0.1", 0, nbytes)
        assert one.socket.getsockopt(zmq.SNDHWM) == mark


@pytest.mark.parametrize(
    ("host", "granted", "set_here"),
    [
        ("127.0.0.1", 2**20, True),
        ("127.1.2.3", 2**22, True),
        ("127.0.0.1", 212_992, False),
        ("127.0.0.1", None, False),
        ("127.0.0.1", "max", False),
        ("[::1]", 2**20, True),
        ("0.0.0.0", 2**22, False),
    ],
)
def test_on_loopback_little_waits_in_the_system_where_it_lets_us_say_so(host, granted, set_here, tmp_path, monkeypatch):
    limit = tmp_path / "rmem_max"
    monkeypatch.setattr(factory, "_RECEIVED_AT_MOST", limit)
    if granted is not None:
        limit.write_text(f"{granted}\n")
    with Sockets() as sockets:
        router, port = sockets.bulk_router(host, 0, 1000)
        address = endpoint(host, port)
        ends = [sockets.bulk_dealer(address, "1:abc", 1000), sockets.subscriber(address, 1000)]
        sizes = [
            [line.socket.getsockopt(kind) for kind in (zmq.SNDBUF, zmq.RCVBUF)]
            for line in (router, sockets.broadcast(host, 0, 1000)[0], *ends)
        ]
    own = [-1, -1]
    assert sizes == ([[2**18, 2**20]] * 4 if set_here else [own, own, [2**20, -1], own])


def test_options_are_set_before_bind_and_connect():
    """Report 4: set later, they do nothing. The factory's own order is checked in its source."""
    tree = ast.parse((PACKAGE / "net" / "sockets.py").read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            calls = [
                (node.lineno, node.func.attr)
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            ]
            sets = [line for line, name in calls if name == "setsockopt"]
            opens = [line for line, name in calls if name in {"bind", "connect"}]
            assert not (sets and opens) or max(sets) < min(opens), function.name


async def test_routers_tell_when_a_peer_is_gone_or_slow(made):
    """X4, X5: neither is silence."""
    for name in ("control_router", "bulk_router"):
        error = made[name].send_now([b"nobody", b"x"])
        assert isinstance(error, zmq.ZMQError)
        assert error.errno == zmq.EHOSTUNREACH
    router, slow = made["bulk_router"], made["bulk_dealer"]
    await slow.send(b"here")
    identity, _ = await router.recv_multipart()
    sent = [router.send_now([identity, bytes(4_000_000)]) for _ in range(40)]
    assert any(isinstance(error, zmq.Again) for error in sent)


async def test_a_new_connection_takes_over_an_identity(made):
    """X3: a restarted worker whose old connection is not noticed yet."""
    with Sockets() as first, Sockets() as second:
        port = endpoint("127.0.0.1", int(made["control_router"].getsockopt_string(zmq.LAST_ENDPOINT).split(":")[-1]))
        for sockets, word in ((first, b"old"), (second, b"new")):
            dealer = Asked(sockets.control_dealer(port, "7:same"))
            await dealer.send(word)
            assert await made["control_router"].recv_multipart() == [b"7:same", word]
        assert made["control_router"].send_now([b"7:same", b"answer"]) is None
        assert await dealer.recv() == b"answer"


@pytest.mark.parametrize("name", ["control_dealer", "bulk_dealer"])
def test_a_dealer_keeps_nothing_for_a_master_that_is_not_there(name):
    """X10: nothing meant for one master reaches the next."""
    with Sockets() as sockets, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = endpoint("127.0.0.1", taken.getsockname()[1])
        more = {"message_bytes": 10} if name == "bulk_dealer" else {}
        dealer = getattr(sockets, name)(address, "1:abc", **more)
        assert dealer.socket.getsockopt(zmq.IMMEDIATE) == 1
        assert dealer.socket.getsockopt(zmq.ROUTING_ID) == b"1:abc"


async def test_a_dealer_says_at_once_that_nobody_is_there():
    with Sockets() as sockets, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dealer = sockets.control_dealer(endpoint("127.0.0.1", taken.getsockname()[1]), "1:abc")
        assert isinstance(dealer.send_now([b"x"]), zmq.Again)


async def test_an_oversized_message_ends_its_connection_and_nothing_else(made):
    with Sockets() as sockets:
        port = int(made["control_router"].getsockopt_string(zmq.LAST_ENDPOINT).split(":")[-1])
        hostile = Asked(sockets.control_dealer(endpoint("127.0.0.1", port), "9:big"))
        await hostile.send(b"before")
        assert (await made["control_router"].recv_multipart())[1] == b"before"
        await hostile.send(bytes(limits.CONTROL_BYTES_AT_MOST + 1))
        await made["control_dealer"].send(b"fine")
        assert await made["control_router"].recv_multipart() == [b"1:abc", b"fine"]


async def test_frames_beyond_a_few_are_read_and_dropped(made):
    """A message of a million empty frames takes half a gigabyte when all of them are kept."""
    await made["control_dealer"].send_multipart([b"header", *[b""] * 5000])
    await made["control_dealer"].send(b"next")
    assert await made["control_router"].recv_multipart() == [b"1:abc", b"header", b"", b""]
    assert await made["control_router"].recv_multipart() == [b"1:abc", b"next"]


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "tcp://127.0.0.1:5"),
        ("::1", "tcp://[::1]:5"),
        ("[::1]", "tcp://[::1]:5"),
        ("fe80::1%eth0", "tcp://[fe80::1%eth0]:5"),
        ("0.0.0.0", "tcp://0.0.0.0:5"),
        ("ipc://@here", "ipc://@here-5"),
    ],
)
def test_endpoints(host, text):
    assert endpoint(host, 5) == text


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6():
    with Sockets() as sockets:
        router, port = sockets.control_router("[::1]", 0)
        assert port > 0
        dealer = Asked(sockets.control_dealer(endpoint("::1", port), "1:abc"))
        await dealer.send(b"hello")
        assert await Asked(router).recv_multipart() == [b"1:abc", b"hello"]


def test_port_zero_gives_a_free_port_each_time():
    """Report 20: bound first, then told; never picked beforehand."""
    with Sockets() as sockets:
        ports = [sockets.control_router("127.0.0.1", 0)[1] for _ in range(5)]
        assert len(set(ports)) == 5
        assert all(ports)


@pytest.mark.parametrize("kind", ["control_router", "bulk_router", "broadcast"])
def test_a_port_in_use_is_one_sentence(kind):
    with Sockets() as sockets, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        more = () if kind == "control_router" else (10,)
        with pytest.raises(
            ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"
        ) as info:
            getattr(sockets, kind)("127.0.0.1", port, *more)
        assert "net.port" in str(info.value)
        assert "\n" not in str(info.value)


def test_an_address_that_this_machine_does_not_have_is_a_sentence():
    with Sockets() as sockets, pytest.raises(ConfigError, match=r"cannot listen on 203\.0\.113\.1 port 0"):
        sockets.control_router("203.0.113.1", 0)


# ---------------------------------------------------------------- rules of the source

SOURCES = sorted(PACKAGE.rglob("*.py"))
NET = sorted((PACKAGE / "net").glob("*.py"))


def code(path):
    """The source without its docstrings and comments."""
    return ast.unparse(_without_docstrings(ast.parse(path.read_text())))


def _without_docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                statement
                for statement in body
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


def offenders(pattern, paths):
    return [f"{path.name}: {found}" for path in paths for found in re.findall(pattern, code(path))]


def test_only_net_knows_zeromq():
    contenders = PACKAGE / "bench" / "transport" / "contenders"  # what this program is measured against
    outside = [path for path in SOURCES if path.parent.name != "net" and path.parent != contenders]
    assert not offenders(r"(?:import|from) (?:zmq|msgpack)\b.*", outside)


def test_nothing_is_unpickled():
    """Report 22: a pickle from the network is a program from the network."""
    assert not offenders(r"\bpickle\b|recv_pyobj|send_pyobj|\bdill\b|cloudpickle|\bshelve\b|marshal\b", SOURCES)
    loads = offenders(r"torch\.load\([^\n]*", SOURCES)
    assert all("weights_only=True" in load for load in loads), loads


def test_no_receive_is_ever_timed_out():
    """X1: a cancelled receive loses its message. Nobody waits in a receive."""
    assert not offenders(r"asyncio\.timeout\w*\(|wait_for\(|RCVTIMEO|SNDTIMEO|\.poll\(", NET)


def test_sockets_are_made_in_one_place():
    elsewhere = [path for path in NET if path.name != "sockets.py"]
    assert not offenders(r"\.socket\((?!\))|zmq\.(?:asyncio\.)?Context|setsockopt|\.bind\(|\.connect\(", elsewhere)


def test_one_place_watches_descriptors():
    """Report 12: they are edge-triggered; ``test_net_line`` shows that nothing is overlooked there."""
    elsewhere = [path for path in SOURCES if path != PACKAGE / "net" / "line.py"]
    assert not offenders(r"add_reader|add_writer|\.FD\b|CONFLATE", elsewhere)


def test_net_needs_no_torch():
    assert not offenders(r"(?:import|from) torch\b.*", NET)


def test_each_source_is_received_from_in_one_place_only():
    """All sockets through lines (the frames of a message, twice).

    Beside them: threads that hear what ZeroMQ tells of handshakes (sockets), and a plain TCP connection that asks how a
    master greets (auth).
    """
    receives = {path.name: len(re.findall(r"\.recv\w*\(", code(path))) for path in NET}
    assert {name: count for name, count in receives.items() if count} == {
        "line.py": 2,
        "sockets.py": 1,
        "auth.py": 1,
    }


ABANDONED = """
import socket, struct, time, zmq
from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.net.sockets import Sockets
with Sockets() as sockets:
    router, port = sockets.control_router("127.0.0.1", 0)
    stream = socket.create_connection(("127.0.0.1", port))
    peer = Peer(stream, "DEALER", b"somebody")
    peer.send(*[[b"x" * 10] for _ in range(2000)])  # more than wait to be read
    time.sleep(0.2)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
    time.sleep(3)  # longer than a ping is apart
print("alive")
"""


def test_whoever_fills_a_queue_and_goes_does_not_end_the_process():
    """With pings of the master's own ZeroMQ aborts here."""
    ended = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
