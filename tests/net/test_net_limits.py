"""What strangers may cost a master: tables, answers, joins and the log are bounded, and workers are served."""

import asyncio
import re
import socket

import msgpack
import numpy as np
import pytest
from cluster import Cluster, Stranger, is_event, is_step, rules, running, scheme
from numpy_task import NumpyMaster

from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.errors import WireError
from pgczmq.net import guests, limits, wire
from pgczmq.net.auth import PLAIN, Handshakes
from pgczmq.net.exchange import Exchange
from pgczmq.net.guests import Guests
from pgczmq.net.limits import Allowance, Blame, words
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.runlog import LatencyRecord

EVER = 100_000


def hello(life, worker=None):
    return wire.Hello(worker=worker, incarnation=life, package="1", host="h", pid=7)


# ---------------------------------------------------------------- each bound


def test_an_allowance_is_a_burst_and_a_rate():
    allowance = Allowance(rate=2.0, burst=3.0)
    assert [allowance.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not allowance.take(10.4)
    assert allowance.take(10.5)
    assert [allowance.take(1000.0) for _ in range(4)] == [True, True, True, False], "what is not used is not saved"
    assert not allowance.take(0.0), "a clock that goes back gives nothing"


def test_each_peer_is_named_once_and_only_so_many_are(caplog):
    blame = Blame()
    assert [blame.count(b"one") for _ in range(3)] == [True, False, False]
    named = sum(blame.count(str(number).encode()) for number in range(3 * limits.PEERS_NAMED_AT_MOST))
    assert named == limits.PEERS_NAMED_AT_MOST - 1
    assert len(blame.peers) == limits.PEERS_NAMED_AT_MOST
    assert blame.refused == 3 + 3 * limits.PEERS_NAMED_AT_MOST
    assert blame.peers[b"one"] == 3
    assert caplog.text.count("others are only counted") == 1


def test_what_a_peer_says_is_one_line_that_does_nothing_to_a_terminal():
    assert words("a\x1b[2J\nb\u202e") == "a?[2J?b?"
    assert words("ä" * 10_000) == "ä" * limits.WORDS_AT_MOST + "..."


def test_strangers_come_and_go_and_an_admitted_worker_stays():
    known = Guests(workers=2)
    known.note(b"1:mine", hello("mine", 1))
    known.admit("mine")
    for number in range(5 * limits.STRANGERS_AT_MOST):
        known.note(b"?:%d" % number, hello(str(number)))
    assert len(known) == limits.STRANGERS_AT_MOST + 1
    assert known.identity("mine") == b"1:mine"
    assert known.identity("0") is None, "the first stranger is forgotten first"
    assert known.identity(str(5 * limits.STRANGERS_AT_MOST - 1)) is not None
    assert known.turn_away("mine") is None
    assert known.identity("mine") is not None, "who is no stranger is not forgotten when it is turned away"


def test_only_so_many_strangers_a_second_are_admitted(monkeypatch):
    monkeypatch.setattr(guests.time, "monotonic", lambda: 5.0)
    known = Guests(workers=2)
    burst = int(limits.JOINS_A_SECOND) + 4
    for number in range(burst):
        known.note(b"?:%d" % number, hello(str(number)))
        known.admit(str(number))
    with pytest.raises(WireError, match="20 workers a second may join: this one has to ask again"):
        known.note(b"?:late", hello("late"))
    known.note(b"0:0", hello("0"))  # who is in already may ask again
    known.admit("0")
    monkeypatch.setattr(guests.time, "monotonic", lambda: 5.1)
    known.note(b"?:late", hello("late"))


@pytest.mark.parametrize("kind", ["run", "master", "incarnation", "host", "package", "state"])
@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\nb", "a\x00", "x" * 1000])
def test_a_name_is_short_and_printable(kind, text):
    theirs = {"run": "r", "master": "m", "incarnation": "i"}
    messages = [
        wire.Hello(worker=1, pid=1, **{"incarnation": "i", "package": "1", "host": "h"} | {kind: text})
        if kind in {"host", "package", "incarnation"}
        else wire.Heartbeat(worker=1, step=1, **theirs | {"state": "idle"} | {kind: text})
    ]
    for message in messages:
        with pytest.raises(WireError, match=re.escape(f"$.{kind}")):
            wire.to_master(wire.pack(message))


def test_a_reason_too_long_for_the_wire_is_cut_and_arrives():
    said = wire.to_worker(wire.pack(wire.Rejected(reason="ü" * 10**6)))
    assert said.reason == "ü" * wire.WORDS_AT_MOST


@pytest.mark.parametrize(
    "change", [{"gradients_port": 0}, {"params_port": 65536}, {"worker": -1}, {"coefficients": []}, {"held": [1, 2]}]
)
def test_a_welcome_is_one_that_can_be_followed(change):
    ports = {"gradients_port": 1, "params_port": 2, "metrics_port": 3}
    rest = {"worker": 0, "config": "", "held": [0], "coefficients": [1.0], "heartbeat": 1.0}
    told = {"run": "r", "master": "m", "payload": "tcp", "wire_dtype": "float32", **ports, **rest}
    table = msgpack.unpackb(wire.pack(wire.Welcome(**told)))
    wire.to_worker(msgpack.packb(table))
    with pytest.raises(WireError, match="not a message of this protocol"):
        wire.to_worker(msgpack.packb(table | change))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", ["control_dealer", "bulk_dealer", "subscriber"])
async def test_a_worker_connects_again_after_a_frame_that_is_too_large(make):
    """ZeroMQ does not, and says nothing."""
    loop = asyncio.get_running_loop()
    with Sockets() as sockets, socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        rest = {"control_dealer": ("1:a",), "bulk_dealer": ("1:a", 1000), "subscriber": (1000,)}[make]
        one = getattr(sockets, make)(endpoint("127.0.0.1", port), *rest)
        watching = loop.create_task(sockets.watch(one, Handshakes("127.0.0.1", port, PLAIN)))
        for _ in range(2):
            stream, _ = await asyncio.to_thread(door.accept)
            with await asyncio.to_thread(Peer, stream, "PUB" if make == "subscriber" else "ROUTER") as master:
                master.send_raw(b"\x02" + (2**62).to_bytes(8))
                assert await asyncio.to_thread(ends, stream)
        watching.cancel()


def ends(stream):
    """Wait until the other end closes; what else comes is of no interest."""
    while stream.recv(1000):
        pass
    return True


# ---------------------------------------------------------------- ways of payloads


def exchange_of(payload):
    return Exchange(NumpyMaster(10), payload=payload, wire_dtype="float32", workers=3)


def test_a_worker_goes_one_way_as_long_as_it_lives():
    exchange = exchange_of("tcp")
    exchange.agree("a", "tcp")
    exchange.agree("a", "tcp")
    with pytest.raises(WireError, match="its payloads go one way as long as it lives: got shm, agreed tcp"):
        exchange.agree("a", "shm")


# ---------------------------------------------------------------- in a run


def cluster_of(**changes):
    return Cluster(scheme("is-sgd", 3, stragglers=1), rules(EVER, **changes))


@pytest.mark.timeout(60)
async def test_a_flood_of_hellos_neither_grows_the_master_nor_keeps_a_worker_out(caplog):
    """From fresh identities, for numbers that are taken: 2,000 of them before and while a worker comes back."""
    cluster = cluster_of(start_timeout=20.0)
    async with running(cluster) as scene:
        await cluster.saw(is_step(3))
        await asyncio.to_thread(knock, cluster.hub.ports.control, range(1000))
        await scene.lives[2].kill()
        scene.start(2)
        await asyncio.to_thread(knock, cluster.hub.ports.control, range(1000, 2000))
        back = cluster.hub.incarnation(2)
        await cluster.saw(lambda r: isinstance(r, LatencyRecord) and r.worker == 2 and r.incarnation == back)
        refused = cluster.events("refused")
        assert not [event for event in cluster.events("left") if event.worker != 2]
        assert len(cluster.hub._guests) <= limits.STRANGERS_AT_MOST + 3
        assert len(refused) <= limits.PEERS_NAMED_AT_MOST
        cluster.master.stop("enough")
        await scene.ended()


def knock(port, numbers):
    """One connection and one hello each, and gone."""
    for number in numbers:
        life = f"stranger-{number}"
        with Peer.of("127.0.0.1", port, f"?:{life}".encode()) as peer:
            peer.send([wire.pack(hello(life, number % 2))])


@pytest.mark.timeout(60)
async def test_refused_gradients_are_told_once_in_a_life_counted_and_shown():
    cluster = cluster_of()
    good = np.ones(cluster.size, np.float32)
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as odd:
            await odd.be_ready()
            await cluster.saw(is_event("ready", 2))
            for _ in range(5):
                await odd.send(odd.gradient(0), good[1:])
                await odd.hear(wire.Refused)
            await odd.send(odd.gradient(0, fresh=[2, 2], losses=[0.5, 0.5], ages=[0]), good)
            assert "one loss for each fresh partition" in (await odd.hear(wire.Refused)).reason
            told = [event for event in cluster.events("refused") if event.worker == 2]
            said = "worker 2: behind this header comes one frame of 4000 bytes: got [3996]"
            assert [event.text for event in told] == [f"{said}; more of its kind are only counted"]
            await odd.hear(wire.Beat)
            assert cluster.hub.blamed.refused == 6
            cluster.master.stop("enough")
            await scene.ended()
    assert [e.text for e in cluster.events("refused")][-1] == "6 messages were refused in this run"


@pytest.mark.timeout(60)
async def test_a_worker_that_must_share_memory_and_does_not_is_turned_away(monkeypatch):
    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        monkeypatch.setattr(cluster.hub.exchange, "_payload", "shm")
        with Stranger(cluster, 2) as remote:
            await remote.be_ready()
            assert 'net.payload="shm", which needs' in (await remote.hear(wire.Rejected)).reason
        assert not [event for event in cluster.events("ready") if event.worker == 2]
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_control_message_of_several_frames_is_refused():
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(is_step(0))
        with Stranger(cluster, 1) as odd:
            await odd.say(odd.hello(worker=77), b"more")
            await odd.say(odd.hello(worker=78))
            assert "got 78" in (await odd.hear(wire.Rejected)).reason
        assert cluster.hub.blamed.refused == 2
        cluster.master.stop("enough")
        await scene.ended()
