"""Whoever watches a run from elsewhere: what they see, and that they cost it nothing."""

import asyncio
import contextlib
import math
import socket as system
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgpack
import msgspec
import pytest
import zmq
from cluster import MASTER, RUN, Asked, Cluster, Scene, is_step, rules, running, scheme, unexpected
from hypothesis import given, settings
from hypothesis import strategies as st

from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.errors import AuthenticationFailed, ConfigError, WireError
from pgczmq.net import showing, wire
from pgczmq.net import viewer as module
from pgczmq.net.auth import PLAIN, CurveClient, CurveServer, Security, new_pair
from pgczmq.net.line import Line
from pgczmq.net.ports import neighbours
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.viewer import Viewer
from pgczmq.picture import EVENTS, HISTORY, RECENT, Numbers, Picture, Seen, WorkerPicture
from pgczmq.runlog import EventRecord, Result, RunRecord

EVER = 10**6
HERE = "127.0.0.1"
ENOUGH = 20.0
WORKER = WorkerPicture(
    3, "computing", 5, "vm-3", 1.5, 0.25, 0.2, (0.25, math.nan), "ul", 0.1, 0.0, 0.1, 1, 0, 1, 1, (0, 1)
)
PICTURE = Picture(
    run=RunRecord("try", "runs/try", "pgc-cr", "soak", 4, 1, 100, 1000),
    at=1.5,
    steps_done=2,
    steps_seen=2,
    loss=Numbers(0.5, math.nan, (1.0, 0.5)),
    workers=(WORKER,),
    events=(EventRecord(1.0, "left", "\x1b[31mworker 3\n is gone", 3),),
    last_missing=(3,),
)


@contextmanager
def looking(port: int, security: Security = PLAIN, **changes: object) -> Iterator[Viewer]:
    with Viewer(HERE, port, security, **changes) as viewer:  # type: ignore[arg-type]
        yield viewer


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH):
        while not wanted():  # noqa: ASYNC110  # a viewer is a thread
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def going_on(cluster: Cluster) -> AsyncIterator[Scene]:
    """A run that ends when the test has seen enough."""
    async with running(cluster) as scene:
        yield scene
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_viewers_get_whole_pictures_however_many_there_are() -> None:
    cluster = Cluster(scheme("dgd", 2), rules(EVER))
    async with going_on(cluster) as scene:
        await cluster.saw(is_step(5))
        with contextlib.ExitStack() as stack:
            viewers = [stack.enter_context(looking(cluster.hub.ports.control)) for _ in range(3)]
            for viewer in viewers:
                await until(lambda viewer=viewer: viewer.seen().picture.steps_seen > 5)  # type: ignore[misc]
                seen = viewer.seen()
                assert seen.note == ""
                assert [worker.worker for worker in seen.picture.workers] == [0, 1]
                assert seen.now >= seen.picture.at > 0
            await scene.lives[0].kill()
            await until(lambda: viewers[2].seen().picture.workers[0].state == "gone")


@pytest.mark.timeout(60)
async def test_no_picture_is_made_while_nobody_watches() -> None:
    cluster = Cluster(scheme("dgd", 2), rules(EVER))
    made = 0

    def source() -> Seen:
        nonlocal made
        made += 1
        return cluster.intake.seen()

    cluster.source = source
    async with going_on(cluster):
        await cluster.saw(is_step(5))
        await asyncio.sleep(2 * showing.EVERY_SECONDS)
        assert made == 0
        with looking(cluster.hub.ports.control) as viewer:
            await until(viewer.news.is_set)
            assert 0 < made < 10
        await until(lambda: not cluster.hub.watched.is_set())
        before = made
        await asyncio.sleep(2 * showing.EVERY_SECONDS)
        assert made <= before + 1  # it may have been due


@pytest.mark.timeout(60)
async def test_a_source_that_fails_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(scheme("dgd", 2), rules(EVER))
    cluster.source = lambda: Seen(PICTURE, 1 / 0)
    async with going_on(cluster):
        with looking(cluster.hub.ports.control):
            await until(cluster.hub.watched.is_set)
            await until(lambda: "viewers miss a picture of this run" in caplog.text)
            await cluster.sees(is_step(0))


@pytest.mark.timeout(60)
async def test_whoever_says_falsely_that_nobody_watches_is_not_believed_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 2 * showing.EVERY_SECONDS + 0.2)
    cluster = Cluster(scheme("dgd", 2), rules(EVER))
    async with going_on(cluster):
        with looking(cluster.hub.ports.control) as viewer:
            await until(viewer.news.is_set)
            with await asyncio.to_thread(Peer.subscriber, HERE, cluster.hub.ports.metrics) as stranger:
                stranger.send([b"x", b"y"], [b""], [b"\x00y"], [b"x", b"\x00"], [b"\x00"], [b"\x00"])
                await until(lambda: not cluster.hub.watched.is_set())
                at = viewer.seen().picture.at
                await until(lambda: viewer.seen().picture.at > at + 1)


@pytest.mark.timeout(60)
async def test_a_viewer_that_takes_nothing_costs_two_pictures_and_holds_nobody_up() -> None:
    many = replace(PICTURE, workers=(WORKER,) * 500)
    frame = wire.pack(wire.Metrics(now=1.0, picture=many, run=RUN, master=MASTER))
    with Sockets() as sockets, Sockets() as others:
        line, port = sockets.showing(HERE, 0)
        xpub, got = Asked(line), list[object]()
        others.viewer(endpoint(HERE, port)).listen(got.append, unexpected)
        with await asyncio.to_thread(Peer.subscriber, HERE, port) as slow:
            assert [await xpub.recv(), await xpub.recv()] == [b"\x01", b"\x01"]
            for _ in range(200):
                xpub.send_now([frame])
                await asyncio.sleep(0.02)
            held = len(slow.drain())
        assert len(got) > 150
        assert held < 100


# ---------------------------------------------------------------- masters that go and come


class Pretended:
    """A master of which there are pictures only."""

    def __init__(self, port: int = 0, run: str = RUN) -> None:
        self.sockets = Sockets()
        self._run = run
        line, self._port = self.sockets.showing(HERE, port)
        self._socket = Asked(line)

    @property
    def control(self) -> int:
        return self._port - 3

    @property
    def metrics(self) -> int:
        return self._port

    async def show(self, *frames: bytes) -> None:
        await self._socket.send_multipart(frames)

    async def show_picture(self, picture: Picture, now: float = 1.5) -> None:
        await self.show(wire.pack(wire.Metrics(now=now, picture=picture, run=self._run, master=MASTER)))

    async def watched(self) -> None:
        assert await self._socket.recv() == b"\x01"

    async def no_longer_watched(self) -> None:
        assert await self._socket.recv() == b"\x00"

    def close(self) -> None:
        self.sockets.farewell = 1.0
        self.sockets.__exit__(None, None, None)


@pytest.mark.timeout(60)
async def test_a_viewer_says_that_there_is_no_news_and_finds_the_master_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWS_SECONDS", 0.5)
    first = Pretended()
    with looking(first.control) as viewer:
        assert viewer.seen() == Seen(
            Picture(), 0.0, f"no news from tcp://{HERE}:{first.control} for 0 s; looking for it"
        )
        await first.watched()
        await first.show_picture(PICTURE)
        await until(viewer.news.is_set)
        assert repr(viewer.seen().picture) == repr(PICTURE)
        assert viewer.seen().note == ""
        await until(lambda: viewer.seen().note != "")
        assert "no news from" in viewer.seen().note
        assert viewer.seen().now == 2.0  # the time stands still
        first.close()
        second = Pretended(first.metrics, run="another")
        await second.watched()
        await second.show_picture(replace(PICTURE, steps_done=77))
        await until(lambda: viewer.seen().picture.steps_done == 77)
        assert viewer.seen().note == ""
        second.close()


@pytest.mark.timeout(60)
async def test_the_last_picture_of_a_run_that_is_over_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWS_SECONDS", 0.1)
    result = Result("dgd", 2, 0, 5, 1.0, 0.5, None, 0.0, False, "", 0, "done", "runs/try")
    master = Pretended()
    with looking(master.control) as viewer:
        await master.watched()
        await master.show_picture(replace(PICTURE, result=result))
        master.close()
        await until(viewer.news.is_set)
        await asyncio.sleep(0.3)
        assert viewer.seen() == Seen(viewer.seen().picture, 1.5)
        assert viewer.seen().picture.result == result


@pytest.mark.timeout(60)
async def test_nothing_that_a_peer_sends_ends_a_viewer() -> None:
    master = Pretended()
    whole = wire.pack(wire.Metrics(now=1.5, picture=PICTURE, run=RUN, master=MASTER))
    other = msgspec.msgpack.encode(msgspec.msgpack.decode(whole) | {"v": 77})
    with looking(master.control) as viewer:
        await master.watched()
        for frames, said in (
            ([b"\xff"], "is no picture: "),
            ([other], "the peer speaks protocol version 77"),
            ([wire.pack(wire.Beacon(run=RUN, master=MASTER))], "protocol"),
            ([b"x" * 100, whole], "is no picture: "),
        ):
            await master.show(*frames)
            await until(lambda said=said: said in viewer.seen().note)  # type: ignore[misc]
        await master.show(bytes(wire.HEADER_BYTES_AT_MOST + 1))  # the connection ends, and is made anew
        await master.no_longer_watched()
        await master.watched()
        await master.show_picture(PICTURE)
        await until(viewer.news.is_set)
        assert viewer.seen().note == ""
    master.close()


# ---------------------------------------------------------------- keys


@pytest.mark.timeout(60)
@pytest.mark.parametrize("listed", [True, False])
async def test_a_viewer_needs_a_key_that_is_on_the_list(listed: bool) -> None:
    (public, secret), (mine, own) = new_pair(), new_pair()
    server = CurveServer(secret, {mine: "vm-1"}.get if listed else {}.get)
    with Sockets(security=server) as sockets:
        line, port = sockets.showing(HERE, 0)
        xpub = Asked(line)
        with looking(port - 3, CurveClient(public, own)) as viewer:
            if listed:
                assert await xpub.recv() == b"\x01"
                await xpub.send(wire.pack(wire.Metrics(now=1.5, picture=PICTURE, run=RUN, master=MASTER)))
            await until(viewer.news.is_set)
            assert (viewer.failure is None) == listed
            if not listed:
                assert isinstance(viewer.failure, AuthenticationFailed)
                assert "does not know this viewer's key" in viewer.seen().note


# ---------------------------------------------------------------- frames


def test_a_picture_comes_back_as_it_was() -> None:
    metrics = wire.Metrics(now=1.5, picture=PICTURE, run=RUN, master=MASTER)
    assert repr(wire.to_viewer(wire.pack(metrics))) == repr(msgspec.structs.replace(metrics, v=wire.PROTOCOL))


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": Numbers(history=(0.0,) * (HISTORY + 1))},
        {"workers": (replace(WORKER, recent=(0.0,) * (RECENT + 1)),)},
        {"workers": (replace(WORKER, outcomes="u" * (RECENT + 1)),)},
        {"workers": (WorkerPicture(0),) * (wire.WATCHED_AT_MOST + 1)},
        {"events": PICTURE.events * (EVENTS + 1)},
    ],
)
def test_a_picture_is_bounded(changed: dict[str, object]) -> None:
    frame = encoded(replace(PICTURE, **changed))  # type: ignore[arg-type]
    with pytest.raises(WireError, match="at most"):
        wire.to_viewer(frame)


def encoded(picture: Picture) -> bytes:
    """A frame of a master that keeps no bounds."""
    whole = msgspec.msgpack.decode(wire.pack(wire.Metrics(now=1.5, picture=PICTURE, run=RUN, master=MASTER)))
    return msgspec.msgpack.encode(whole | {"picture": msgspec.to_builtins(picture)})


FRAME = wire.pack(wire.Metrics(now=1.5, picture=PICTURE, run=RUN, master=MASTER))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(FRAME) - 1), st.integers(0, 255))
def test_fuzz_one_byte_of_a_picture(place: int, value: int) -> None:
    with contextlib.suppress(WireError):
        wire.to_viewer(FRAME[:place] + bytes([value]) + FRAME[place + 1 :])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(vars(PICTURE))), st.from_type(type(None)) | st.integers() | st.text() | st.lists(st.floats())
)
def test_fuzz_one_value_of_a_picture(field: str, value: object) -> None:
    whole = msgpack.unpackb(FRAME)
    with contextlib.suppress(WireError, OverflowError):
        wire.to_viewer(msgpack.packb(whole | {"picture": whole["picture"] | {field: value}}))


# ---------------------------------------------------------------- ports


def test_a_master_at_any_port_has_four_neighbours() -> None:
    cluster = Cluster(scheme("dgd", 2), rules(1))
    with Sockets() as sockets, contextlib.closing(cluster):
        cluster.open(sockets)
        ports = cluster.hub.ports
        assert [ports.gradients, ports.params, ports.metrics] == [ports.control + offset for offset in (1, 2, 3)]


def test_where_a_neighbour_is_taken_others_are_looked_for() -> None:
    with Sockets() as sockets, system.socket() as somebody:
        taken: list[int] = []

        def second(port: int) -> tuple[Line, int]:
            if not taken:  # somebody else is there just then
                somebody.bind((HERE, port))
                somebody.listen()
                taken.append(port)
            return sockets.bulk_router(HERE, port, 10)

        made, first = neighbours(sockets, 0, [lambda port: sockets.control_router(HERE, port), second])
        assert first + 1 != taken[0]
        bound = [int(one.socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]) for one in made]
        assert bound == [first, first + 1]
        with pytest.raises(ConfigError, match=f"port {taken[0]}"):
            neighbours(sockets, taken[0], [lambda port: sockets.control_router(HERE, port)])
