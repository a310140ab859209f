"""One contract for every way that payloads go, and one run over each: nothing else may know which it was."""

import dataclasses
import random

import numpy as np
import pytest
from cluster import Cluster, is_event, is_step, rules, run, running, scheme, shared_memory
from numpy_task import NumpyMaster
from payloads import Gradients, OverTcp, Parameters, in_memory
from test_net_runs import recomputed

from pgczmq.core.delays import ExponentialDelay
from pgczmq.core.events import Apply, Checkpoint, Evaluate, Finish, Note, Publish, Use
from pgczmq.core.schemes import SCHEMES
from pgczmq.errors import ConfigError, WireError
from pgczmq.net import exchange as exchanges
from pgczmq.net import wire
from pgczmq.net.exchange import Exchange, Version
from pgczmq.net.payload import FramesIn, FramesOut, Size

SIZE = Size(vector=4 * 1003, buffers=21)
WAYS = {
    "memory": in_memory,
    "tcp": OverTcp,
    "shm-parameters": pytest.param(Parameters, marks=shared_memory),
    "shm-gradients": pytest.param(Gradients, marks=shared_memory),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def make(request):
    """Makes links of one way, with payloads of one size unless another is given."""
    made = []

    def one(size=SIZE):
        made.append(request.param(size))
        return made[-1]

    yield one
    for link in made:
        link.close()


def payload(step: int, size: Size = SIZE) -> bytes:
    return np.random.default_rng(step).bytes(size.total)


def read(lease) -> bytes:
    """What is there, once it is known that it was there all the time."""
    data = lease.memory.tobytes()
    assert lease.holds()
    return data


def read_and_release(message) -> bytes:
    lease = message.lease()
    data = read(lease)
    lease.release()
    return data


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize("size", [SIZE, Size(4, 0), Size(8, 3), Size(4 * 2**18, 4096)])
def test_what_is_sealed_is_what_is_leased_to_the_byte(make, size):
    lease = make(size).send(7, payload(7, size)).lease()
    assert read(lease) == payload(7, size)
    vector, buffers = size.split(lease.memory)
    assert (len(vector), len(buffers)) == (size.vector, size.buffers)
    lease.release()
    lease.release()


def test_the_room_is_the_same_until_it_is_sealed(make):
    link = make()
    link.outgoing.room()[: SIZE.vector] = 3
    assert np.shares_memory(link.outgoing.room(), link.outgoing.room())
    link.outgoing.room()[SIZE.vector :] = 5
    sealed = link.outgoing.seal(0)
    lease = link.incoming.lease(0, sealed.block, link.carry(sealed.frames))
    assert read(lease) == bytes([3]) * SIZE.vector + bytes([5]) * SIZE.buffers
    lease.release()


def test_the_room_is_the_same_when_a_reader_lets_go_meanwhile(make):
    link = make()
    held = [link.send(step, payload(step)).lease() for step in range(min(2, link.keeps))]
    link.outgoing.room()[:] = 3
    for lease in held:
        lease.release()
    link.outgoing.room()[: SIZE.vector] = 5
    sealed = link.outgoing.seal(9)
    last = link.incoming.lease(9, sealed.block, link.carry(sealed.frames))
    assert read(last) == bytes([5]) * SIZE.vector + bytes([3]) * SIZE.buffers
    last.release()


def test_steps_in_a_row(make):
    link = make()
    for step in range(20):
        assert read_and_release(link.send(step, payload(step))) == payload(step)


def test_a_step_may_be_leased_twice(make):
    """A header that came again, or two readers of one process."""
    message = make().send(3, payload(3))
    first, second = message.lease(), message.lease()
    first.release()
    assert read(second) == payload(3)
    second.release()


def test_a_lease_outlives_later_messages_of_its_sender(make):
    link = make()
    lease = link.send(0, payload(0)).lease()
    for step in range(1, min(link.keeps, 5) + 1):
        assert read(lease) == payload(0)
        assert read_and_release(link.send(step, payload(step))) == payload(step)
    assert read(lease) == payload(0)
    lease.release()


def test_the_newest_is_there_while_the_next_is_written(make):
    """But for a worker's own block, which it writes when the answer before has been taken or is too late."""
    link = make()
    message = link.send(0, payload(0))
    link.outgoing.room()[:] = 9
    if link.keeps:
        assert read_and_release(message) == payload(0)
    else:
        assert message.lease() is None


def test_what_was_written_over_gives_no_lease(make):
    """Or it was not, and then it is all there: frames are nobody else's, and a block may still be free."""
    link = make()
    messages = [link.send(step, payload(step)) for step in range(9)]
    leased = [message.lease() for message in messages]
    for step, lease in enumerate(leased):
        if lease is not None:
            assert read(lease) == payload(step)
            lease.release()
    assert leased[-1] is not None, "the newest is always there"
    assert isinstance(link, OverTcp) == all(lease is not None for lease in leased)


def test_a_header_of_another_step_gives_no_lease_of_shared_memory(make):
    link = make()
    message = link.send(4, payload(4))
    for step in (3, 5, -1):
        other = dataclasses.replace(message, step=step).lease()
        assert other is None or isinstance(link, OverTcp)
    assert read_and_release(message) == payload(4)


def test_in_any_order_of_sending_leasing_and_releasing_what_holds_is_right(make):
    """Where the sender waits for its reader, the reader has to let go first."""
    link, draw, held, messages = make(), random.Random(5), [], []
    for step in range(300):
        if not link.keeps:
            while held:
                held.pop()[1].release()
        messages.append((step, link.send(step, payload(step % 7))))
        for sent, message in draw.sample(messages[-5:], k=min(2, len(messages))):
            lease = message.lease()
            assert lease is not None or sent != step
            if lease is not None:
                held.append((sent, lease))
        for sent, lease in held:
            data = lease.memory.tobytes()
            assert not lease.holds() or data == payload(sent % 7)
        draw.shuffle(held)
        while len(held) > draw.randrange(4):
            held.pop()[1].release()
    for _, lease in held:
        lease.release()


@pytest.mark.parametrize("wrong", [Size(4 * 1003, 20), Size(4 * 1002, 21), Size(2 * 1003, 21), Size(4 * 5000, 0)])
def test_payloads_of_another_size_are_refused(make, wrong):
    link = make()
    message = make(wrong).send(0, bytes(wrong.total))
    with pytest.raises(WireError):
        link.incoming.lease(0, message.block, message.frames)
    assert read_and_release(link.send(1, payload(1))) == payload(1)


def test_a_payload_that_goes_another_way_is_refused(make):
    link = make()
    message = link.send(0, payload(0))
    frames = [np.frombuffer(payload(0), np.uint8)]
    others = [(None, []), (10**6, []), (10**6, frames), (message.block, [*frames, *frames])]
    others += [(None, frames)] if message.block is not None else [(5, message.frames)]
    for block, given in others:
        with pytest.raises(WireError):
            link.incoming.lease(0, block, given)
    assert read_and_release(message) == payload(0)


def test_frames_that_left_are_not_written_again():
    """X2: ZeroMQ reads them when it likes."""
    out = FramesOut(SIZE)
    rooms = []
    for step in range(5):
        rooms.append(out.room())
        assert not any(np.shares_memory(rooms[-1], other) for other in rooms[:-1])
        out.seal(step)
    assert not any(room.flags.writeable for room in rooms)


def test_a_frame_is_not_copied():
    frame = np.frombuffer(payload(0), np.uint8)
    lease = FramesIn(SIZE).lease(0, None, [frame])
    assert np.shares_memory(lease.memory, frame)


# ---------------------------------------------------------------- who goes which way


def exchange_of(payload: str = "auto", size: int = 10) -> Exchange:
    return Exchange(NumpyMaster(size), payload=payload, wire_dtype="float32", workers=3)


@pytest.fixture
def exchange():
    made = exchange_of()
    yield made
    made.close()


@shared_memory
def test_parameters_are_written_each_way_that_somebody_wants_and_no_other(exchange):
    version = Version(0, {})
    for name, way in (("a", "shm"), ("b", "tcp")):
        exchange.offer(name, "")
        exchange.agree(name, way)
        before = dict(version.sealed)
        exchange.write(version, exchange.wanted("ab"))
        assert set(version.sealed) == exchange.wanted("ab") == {way, *before}
        assert all(version.sealed[one] is sealed for one, sealed in before.items()), "what is sealed stays"
    assert exchange.wanted("b") == {"tcp"}, "that of nobody else"
    exchange.forget("a")
    assert exchange.wanted("ab") == {"tcp"}
    assert (exchange.way("a"), exchange.way("b")) == ("tcp", "tcp")


def test_without_shared_memory_none_is_offered_and_none_is_taken():
    over_tcp = exchange_of("tcp")
    assert over_tcp.offer("a", "local") == {"payload": "tcp", "wire_dtype": "float32"}
    with pytest.raises(WireError, match="one of the ways that it is offered for payloads: got shm, offered tcp"):
        over_tcp.agree("a", "shm")
    assert over_tcp.wanted("a") == frozenset()


def test_where_there_is_no_shared_memory_auto_does_without_and_shm_is_refused(monkeypatch):
    monkeypatch.setattr(exchanges.memory, "why_not_here", lambda: "it is not Linux")
    assert not exchange_of("auto").shares
    with pytest.raises(ConfigError, match=r'net\.payload="shm" cannot be had here: it is not Linux\. Use "auto"'):
        exchange_of("shm")


def test_a_gradient_before_it_is_agreed_which_way_it_goes_is_refused(exchange):
    durations = {"wait": 0.0, "compute": 0.0, "delay": 0.0}
    about = {"run": "r", "master": "m", "worker": 0, "incarnation": "a"}
    header = wire.Gradient(step=0, ages=[0], fresh=[0], losses=[0.5], norm=1.0, **durations, **about)
    with pytest.raises(WireError, match="after it was agreed which way"):
        exchange.lease("a", header, [])
    exchange.agree("a", "tcp")
    assert exchange.lease("a", header, [bytes(40)]).memory.tobytes() == bytes(40)
    exchange.forget("a")
    with pytest.raises(WireError, match="after it was agreed which way"):
        exchange.lease("a", header, [bytes(40)])


# ---------------------------------------------------------------- whole runs

WORKERS, STEPS = 4, 10
PARTS = ("tcp", "shm", "mixed")


def parts_of(part: str) -> str:
    return "auto" if part == "mixed" else part


@pytest.fixture
def mixed(monkeypatch):
    """Odd workers take TCP whatever they are offered."""
    choose = "pgczmq.net.life.choose"
    monkeypatch.setattr(choose, lambda welcome: "tcp" if welcome.worker % 2 or welcome.process is None else "shm")


def build(name: str):
    settings = {"stragglers": 1}
    if "gc" in name:
        settings["load"] = 2
    if name == "is-gc-hr":
        settings |= {"groups": 2, "local_load": 1}
    return scheme(name, WORKERS, **settings)


def timeless(command):
    """A command without the moments at which things happened."""
    if not isinstance(command, Apply):
        return command
    moments = {"published_at", "closed_at", "arrived_at"}
    closed = {name: value for name, value in vars(command.closed).items() if name not in moments}
    return (command.step, command.weights, closed)


class Recorder:
    """What the engine says in a run, step by step; who is used, in whatever order they came."""

    def __init__(self) -> None:
        self.said, self.used = [], []

    def __call__(self, cluster: Cluster) -> None:
        handle = cluster.engine.handle

        def recording(event):
            commands = handle(event)
            for command in commands:
                self.note(command)
            return commands

        cluster.engine.handle = recording

    def note(self, command) -> None:
        if isinstance(command, Use):
            self.used.append((command.step, command.worker, command.fold))
        if isinstance(command, Publish | Apply | Evaluate | Checkpoint | Finish):
            self.said.append(timeless(command))
        if isinstance(command, Note) and command.kind not in {"ready", "joined"}:
            self.said.append(command)


@shared_memory
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCHEMES)
async def test_the_way_of_payloads_changes_no_decision_and_no_bit(name, request):
    results, weights = [], set()
    for part in PARTS:
        if part == "mixed":
            request.getfixturevalue("mixed")
        cluster = Cluster(
            build(name),
            rules(STEPS, deterministic=True, seed=3, eval_every=4, checkpoint_every=5),
            size=100,
            delay=ExponentialDelay(3, 0.5),
            payload=parts_of(part),
        )
        recorder, ways = Recorder(), []
        watch(cluster, ways)
        ending = await run(cluster, opened=recorder)
        assert (ending.exit_code, ending.steps) == (0, STEPS)
        assert set(ways) == {frozenset({"tcp", "shm"} if part == "mixed" else {part})}
        assert np.array_equal(cluster.compute.params, recomputed(cluster))
        results.append((recorder.said, sorted(recorder.used), cluster.evaluated, cluster.saved))
        weights.add(cluster.compute.sha256())
    assert results[0] == results[1] == results[2]
    assert len(weights) == 1


def watch(cluster: Cluster, ways: list) -> None:
    """The ways of the parameters of every step that is combined."""
    apply = cluster.compute.apply

    def applying(*arguments):
        ways.append(cluster.master._wanted_ways())
        return apply(*arguments)

    cluster.compute.apply = applying


@shared_memory
@pytest.mark.timeout(60)
async def test_gradients_are_read_where_their_workers_wrote_them():
    """Nothing is copied on the way to the sum, and nothing but headers goes through sockets."""
    cluster = Cluster(build("dgd"), rules(5), payload="shm")
    apply, bases, frames = cluster.compute.apply, set(), []

    def applying(step, messages, plan):
        bases.update(gradient.__array_interface__["data"][0] for _, _, gradient, _ in messages)
        assert not any(gradient.flags.owndata for _, _, gradient, _ in messages)
        return apply(step, messages, plan)

    def opened(cluster):
        send = cluster.hub._send_now
        cluster.hub._send_now = lambda socket, parts: (frames.append(len(parts)), send(socket, parts))[1]

    cluster.compute.apply = applying
    await run(cluster, opened=opened)
    assert len(bases) == WORKERS, "one block for each worker, whatever the step"
    assert max(frames) == 2, "an identity and a header"


@shared_memory
@pytest.mark.timeout(60)
async def test_a_worker_that_comes_later_another_way_is_served_too(mixed):
    """Nobody's payloads went over TCP until then; the open step is written for it as it is."""
    cluster = Cluster(scheme("dgd", 3), rules(10_000), payload="auto")
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        await scene.lives[1].kill()
        await cluster.saw(is_event("waiting"))
        assert cluster.master._wanted_ways() == {"shm"}, "the dead need nothing"
        step = cluster.engine.open_step
        del cluster.master._combiner.version.sealed["tcp"]
        scene.start(1)
        await cluster.saw(is_step(step + 2))
        cluster.master.stop("enough")
        await scene.ended()
    assert [record.step for record in cluster.steps] == list(range(len(cluster.steps)))
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["dgd", "pgc-cr"])
async def test_rounded_parameters_and_gradients_lead_near_the_same_place(name):
    ends = []
    for dtype in ("float32", "bfloat16"):
        cluster = Cluster(build(name), rules(STEPS), payload="tcp", wire_dtype=dtype)
        await run(cluster)
        assert {record.bytes for record in cluster.steps} <= {
            count * cluster.size * (4 if dtype == "float32" else 2) for count in range(1, WORKERS + 1)
        }
        ends.append(cluster.compute.params)
    if name == "dgd":
        assert np.linalg.norm(ends[1] - ends[0]) < 0.02 * np.linalg.norm(ends[0])
    assert not np.array_equal(*ends)
