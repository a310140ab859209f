"""Where computing is done, and what the master has done there: order, errors, and which thread."""

import asyncio
import threading

import numpy as np
import pytest
from cluster import shared_memory
from numpy_task import NumpyMaster

from pgczmq.core.decoders import Weights
from pgczmq.core.events import Apply, ClosedStep
from pgczmq.net import beside, combiner, wire
from pgczmq.net.beside import SHORT_BEFORE, Beside
from pgczmq.net.combiner import FOLD_TOGETHER, Combiner
from pgczmq.net.exchange import Exchange
from pgczmq.net.payload import FramesIn, Size
from pgczmq.net.reception import Arrival

EVERYTHING_IS_SHORT, NOTHING_IS_SHORT = 1e9, -1.0  # a difference of processor times may be -1e-17


class Calls:
    """Calls by number, which say on which thread they were made; results and errors as they come back."""

    def __init__(self) -> None:
        self.made, self.results, self.failures = [], [], []
        self.beside = Beside(self.failures.append)

    def make(self, number: int) -> int:
        self.made.append((number, "loop" if threading.current_thread() is threading.main_thread() else "thread"))
        return number

    async def run(self, kind: str, times: int) -> list[str]:
        """So many calls one after the other: where they were made."""
        for number in range(times):
            assert await self.beside.start(kind, self.make, number) == number
        return [where for _, where in self.made[-times:]]


@pytest.fixture
def calls():
    made = Calls()
    yield made
    made.beside.close()


async def test_calls_that_were_short_often_enough_are_made_on_the_loop(calls, monkeypatch):
    monkeypatch.setattr(beside, "SHORT_SECONDS", EVERYTHING_IS_SHORT)
    where = await calls.run("fold", SHORT_BEFORE + 5)
    assert where == ["thread"] * SHORT_BEFORE + ["loop"] * 5


async def test_long_calls_are_always_made_on_the_thread(calls, monkeypatch):
    monkeypatch.setattr(beside, "SHORT_SECONDS", NOTHING_IS_SHORT)
    assert await calls.run("fold", 3 * SHORT_BEFORE) == ["thread"] * 3 * SHORT_BEFORE


async def test_calls_that_become_long_go_back_to_the_thread_and_stay_there(calls, monkeypatch):
    monkeypatch.setattr(beside, "SHORT_SECONDS", EVERYTHING_IS_SHORT)
    await calls.run("fold", 1000)
    monkeypatch.setattr(beside, "SHORT_SECONDS", NOTHING_IS_SHORT)
    where = await calls.run("fold", 20)
    assert where == ["loop"] + ["thread"] * 19, "one is enough"
    monkeypatch.setattr(beside, "SHORT_SECONDS", EVERYTHING_IS_SHORT)
    assert (await calls.run("fold", 4))[0] == "thread", "one short call does not bring it back"


async def test_one_kind_of_call_says_nothing_of_another(calls, monkeypatch):
    monkeypatch.setattr(beside, "SHORT_SECONDS", EVERYTHING_IS_SHORT)
    assert (await calls.run("fold", SHORT_BEFORE + 1))[-1] == "loop"
    assert await calls.run("update", 1) == ["thread"]
    assert await calls.run("fold", 1) == ["loop"]


async def test_nothing_overtakes_a_call_that_is_on_the_thread(calls, monkeypatch):
    """However short: they would use the same memory at once."""
    monkeypatch.setattr(beside, "SHORT_SECONDS", EVERYTHING_IS_SHORT)
    await calls.run("fold", SHORT_BEFORE + 1)
    begun, may = threading.Event(), threading.Event()

    def long() -> int:
        begun.set()
        assert may.wait(30)
        return calls.make(100)

    calls.made.clear()
    calls.beside.call("update", calls.results.append, long)
    for number in (101, 102):
        calls.beside.call("fold", calls.results.append, calls.make, number)
    assert begun.wait(30)
    assert calls.made == []
    may.set()
    assert await calls.beside.start("fold", calls.make, 103) == 103
    assert calls.made == [(number, "thread") for number in (100, 101, 102, 103)]
    assert calls.results == [100, 101, 102]
    assert await calls.run("fold", 1) == ["loop"], "the thread is free again"


@pytest.mark.parametrize("short", [EVERYTHING_IS_SHORT, NOTHING_IS_SHORT])
async def test_an_error_is_told_and_the_next_call_is_made(calls, monkeypatch, short):
    monkeypatch.setattr(beside, "SHORT_SECONDS", short)
    where = (await calls.run("fold", SHORT_BEFORE + 1))[-1]
    assert where == ("loop" if short == EVERYTHING_IS_SHORT else "thread")

    def fails() -> None:
        raise ValueError("a bug")

    calls.beside.call("fold", calls.results.append, fails)
    assert await calls.beside.start("fold", calls.make, 7) == 7
    assert [str(error) for error in calls.failures] == ["a bug"]
    assert calls.results == []


async def test_an_error_in_what_follows_a_call_is_told_too(calls):
    """Else it would end in the event loop's log, and whoever waits would wait for ever."""

    def fails(_: int) -> None:
        raise ValueError("a bug")

    calls.beside.call("fold", fails, calls.make, 1)
    assert await calls.beside.start("fold", calls.make, 2) == 2
    assert [str(error) for error in calls.failures] == ["a bug"]


async def test_whoever_awaits_a_call_gets_its_error(calls):
    def fails() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await calls.beside.start("capture", fails)
    assert calls.failures == []


async def test_after_the_end_nothing_more_is_begun(calls):
    begun, may = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        assert may.wait(30)

    calls.beside.call("update", calls.results.append, long)
    calls.beside.call("update", calls.results.append, calls.make, 1)
    assert begun.wait(30)
    calls.beside.close()  # and does not wait
    may.set()
    calls.beside._thread.shutdown(wait=True)
    assert calls.made == []


# ---------------------------------------------------------------- the combiner

SIZE = 6


class Counting(NumpyMaster):
    """Notes which messages were added up together."""

    def __init__(self, size):
        super().__init__(size)
        self.together = []

    def fold(self, step, messages):
        super().fold(step, messages)
        self.together.append((step, tuple(worker for worker, _ in messages)))


class Scene:
    """A combiner, and messages that are ones times something."""

    def __init__(self, payload="tcp"):
        self.compute = Counting(SIZE)
        self.exchange = Exchange(self.compute, payload=payload, wire_dtype="float32", workers=12)
        self.failures, self.leases = [], {}
        self.combiner = Combiner(self.compute, self.exchange, self.failures.append, lambda: frozenset({"tcp"}))

    def close(self):
        self.combiner.close()
        self.exchange.close()

    def hold(self, worker, value=1.0, step=0):
        vector = np.full(SIZE, value, np.float32)
        about = {"run": "r", "master": "m", "worker": worker, "incarnation": str(worker)}
        durations = {"wait": 0.0, "compute": 0.0, "delay": 0.0}
        header = wire.Gradient(step=step, ages=[0], fresh=[worker], losses=[0.5], norm=1.0, **durations, **about)
        self.leases[worker] = FramesIn(Size(4 * SIZE, 0)).lease(step, None, [vector.tobytes()])
        self.combiner.hold(Arrival(header, self.leases[worker]))

    async def apply(self, workers, step=0):
        """Combine these with one weight; what became of it."""
        done = asyncio.get_running_loop().create_future()
        weights = Weights.uniform(tuple(workers), 1 / len(workers))
        command = Apply(step, weights, closed(step, workers))
        self.combiner.apply(command, lambda update, spent: done.set_result(update))
        return await done

    @property
    def released(self):
        return {worker for worker, lease in self.leases.items() if not len(lease.memory)}


def closed(step, workers):
    return ClosedStep(
        step=step,
        published_at=0.0,
        closed_at=1.0,
        k=len(workers),
        batch_fraction=1.0,
        loss=1.0,
        arrived=tuple(workers),
        arrived_at=(1.0,) * len(workers),
        used=tuple(workers),
        spare=(),
        missing=(),
        weights=(1 / len(workers),) * len(workers),
        ages=((0,),) * len(workers),
        recovered=1.0,
        max_alpha=1.0,
        fresh=1,
    )


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()


async def begin(scene, ways=("tcp",)):
    for number, way in enumerate(ways):
        scene.exchange.offer(f"w{number}", "")
        scene.exchange.agree(f"w{number}", way)
    await scene.combiner.begin()


async def test_arrivals_are_added_up_some_at_a_time_while_others_are_waited_for(scene, monkeypatch):
    monkeypatch.setattr(combiner, "QUIET_SECONDS", 0.0)
    await begin(scene)
    for worker in range(2 * FOLD_TOGETHER + 1):
        scene.hold(worker)
        scene.combiner.fold(0, worker)
        await until_quiet()
    made = await scene.apply(range(2 * FOLD_TOGETHER + 1))
    assert made.finite
    halves = tuple(range(FOLD_TOGETHER)), tuple(range(FOLD_TOGETHER, 2 * FOLD_TOGETHER))
    assert scene.compute.together == [*[(0, half) for half in halves], (0, ())], "the last one is added by the update"
    assert scene.compute.applied == [(0, tuple(range(2 * FOLD_TOGETHER + 1)))]
    assert scene.released == set(range(2 * FOLD_TOGETHER + 1))


async def test_what_was_not_added_up_early_is_not_taken_for_the_next_steps(scene):
    await begin(scene)
    for worker in range(FOLD_TOGETHER - 1):
        scene.hold(worker)
        scene.combiner.fold(0, worker)
    await scene.apply(range(FOLD_TOGETHER - 1))
    for worker in range(FOLD_TOGETHER):
        scene.hold(worker, step=1)
        scene.combiner.fold(1, worker)
    await scene.apply(range(FOLD_TOGETHER), step=1)
    assert scene.compute.together == [(0, ()), (1, ())], "they came so fast that none was added up early"


async def until_quiet():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_messages_are_held_until_the_update_is_made(scene):
    await begin(scene)
    for worker in (0, 1, 2):
        scene.hold(worker)
    assert scene.combiner.held_bytes == 3 * 4 * SIZE
    assert scene.released == set()
    await scene.apply((0, 2))
    assert scene.released == {0, 1, 2}, "a spare one, too"
    assert (scene.combiner.held, scene.combiner.held_bytes) == ({}, 0)


async def test_a_spoiled_step_keeps_all_but_the_culprit_and_changes_nothing(scene):
    await begin(scene)
    before = scene.combiner.version
    for worker, value in ((0, 1.0), (1, np.nan), (2, 3.0)):
        scene.hold(worker, value)
    made = await scene.apply((0, 1, 2))
    assert (made.finite, made.culprits) == (False, (1,))
    assert (scene.released, set(scene.combiner.held)) == ({1}, {0, 2})
    assert scene.combiner.version is before
    assert not scene.compute.params.any()
    made = await scene.apply((0, 2))
    assert made.finite
    assert scene.combiner.version.step == 1
    assert scene.released == {0, 1, 2}
    assert (await scene.combiner.capture(scene.compute.params.copy)).any()
    np.testing.assert_allclose(scene.compute.params, -scene.compute.lr * 2.0, rtol=1e-6)


async def test_each_update_is_written_as_the_next_version(scene):
    await begin(scene)
    scene.hold(0, 10.0)
    await scene.apply((0,))
    version = scene.combiner.version
    assert (version.step, set(version.sealed)) == (1, {"tcp"})
    assert version.sealed["tcp"].frames[0].tobytes() == scene.compute.params.tobytes()
    params, buffers = await scene.combiner.snapshot()
    assert np.array_equal(params, scene.compute.params)
    assert not params.flags.writeable
    assert buffers.size == 0


async def test_an_error_in_an_update_is_told(scene, monkeypatch):
    monkeypatch.setattr(scene.compute, "apply", lambda *_: 1 / 0)
    await begin(scene)
    scene.hold(0)
    scene.combiner.apply(Apply(0, Weights.uniform((0,), 1.0), closed(0, (0,))), lambda update, spent: None)
    await scene.combiner.snapshot()
    assert [type(error) for error in scene.failures] == [ZeroDivisionError]


@shared_memory
async def test_the_open_step_is_written_another_way_when_somebody_comes_that_wants_it():
    scene = Scene("auto")
    try:
        await begin(scene)
        scene.hold(0, 10.0)
        await scene.apply((0,))
        version = scene.combiner.version
        first = version.sealed["tcp"]
        await scene.combiner.add_ways(frozenset({"shm"}))
        assert scene.combiner.version is version
        assert set(version.sealed) == {"tcp", "shm"}
        assert version.sealed["tcp"] is first
        block = next(one for one in scene.exchange._shared.slots._blocks if one.stamp == 1)
        assert block.payload.tobytes() == first.frames[0].tobytes()
    finally:
        scene.close()


@shared_memory
async def test_parameters_that_have_moved_on_are_not_written_as_an_earlier_version():
    """The update is made before, although what it gave is not yet handed back."""
    scene = Scene("auto")
    try:
        await begin(scene)
        scene.hold(0, 10.0)
        version = scene.combiner.version
        await asyncio.gather(scene.apply((0,)), scene.combiner.add_ways(frozenset({"shm"})))
        assert (version.step, set(version.sealed)) == (0, {"tcp"})
        assert scene.combiner.version.step == 1
    finally:
        scene.close()
