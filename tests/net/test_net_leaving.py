"""Workers that go, masters that go, and runs that end early: who is told what, and what is saved."""

import asyncio
import socket
import threading
import time

import numpy as np
import pytest
from cluster import Cluster, both_payloads, is_event, is_step, rules, run, running, scheme
from numpy_task import NumpyMaster, NumpyWorker
from test_net_runs import recomputed

from pgczmq.errors import MasterUnreachable
from pgczmq.net.sockets import Sockets
from pgczmq.net.worker import Worker

EVER = 100_000


# ---------------------------------------------------------------- too few


@pytest.mark.timeout(60)
@both_payloads
async def test_more_than_s_gone_is_said_within_three_heartbeats_and_the_run_resumes(payload):
    """Report 38: a closed connection is known at once, silence after three heartbeats."""
    cluster = Cluster(scheme("pgc-cr", 4), rules(EVER), payload=payload)
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        await scene.lives[1].kill()
        left = await cluster.saw(is_event("left", 1))
        assert not cluster.events("waiting"), "one may be missing"
        await cluster.sees(is_step(0))
        gone_at = cluster.master._now()
        await scene.lives[3].kill()
        waiting = await cluster.saw(is_event("waiting"))
        text = f"step {waiting.step} cannot close: pgc-cr needs 3 of 4 workers; missing 1, 3; the run ends"
        assert waiting.text.startswith(text)
        # Generous: the clock here is that of a test machine, and a beat is 0.2 s.
        assert waiting.at - gone_at < 3 * cluster.rules.heartbeat + 2.0
        assert left.at < waiting.at
        scene.start(1)
        resumed = await cluster.saw(is_event("enough"))
        closed = await cluster.sees(is_step(waiting.step))
        assert closed.step == resumed.step == waiting.step
        assert 1 in closed.used
        cluster.master.stop("enough")
        await scene.ended()
    assert len(cluster.events("waiting")) == len(cluster.events("enough")) == 1
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


@pytest.mark.timeout(60)
async def test_step_timeout_ends_the_run_with_74_the_missing_and_a_checkpoint():
    cluster = Cluster(scheme("pgc-cr", 3), rules(EVER, step_timeout=0.8))
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        for number in (0, 2):
            await scene.lives[number].kill()
        ending = await scene.ended()
        bye = scene.lives[1].task.result()
    assert ending.exit_code == bye.exit == 74
    assert ending.reason == bye.reason
    step = ending.steps
    text = f"no usable set of workers for step {step} within step_timeout=0.8 s; pgc-cr needs 2 of 3 workers; missing"
    assert ending.reason.startswith(text)
    assert {"0", "2"} & set(ending.reason.removeprefix(text).replace(",", " ").split())
    assert cluster.saved == [step]


@pytest.mark.timeout(60)
async def test_start_timeout_ends_the_run_with_74_and_the_missing():
    """Report 47."""
    cluster = Cluster(scheme("dgd", 3), rules(EVER, start_timeout=2.0))
    async with running(cluster, workers=(1,)) as scene:
        ending = await scene.ended()
        assert scene.lives[0].task.result().exit == 74
    assert ending.exit_code == 74
    assert ending.reason == "only 1 of 3 workers were ready within start_timeout=2 s; missing 0, 2"
    assert cluster.saved == []


# ---------------------------------------------------------------- workers that leave


@pytest.mark.timeout(60)
async def test_a_worker_that_says_goodbye_is_not_waited_for():
    """Reports 35, 43: re-planned at once, not after three silent heartbeats (here half a minute)."""
    cluster = Cluster(scheme("pgc-cr", 3), rules(EVER, heartbeat=10.0, start_timeout=50.0))
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        scene.lives[2].worker.leave("signal SIGTERM", 143)
        left = await cluster.saw(is_event("left", 2))
        assert left.text == "worker 2 left: signal SIGTERM"
        assert (await scene.lives[2].task).exit == 143
        await cluster.sees(is_step(0))
        scene.lives[1].worker.leave("signal SIGTERM", 143)
        assert (await cluster.saw(is_event("waiting"))).text.partition("; the run")[0].endswith("missing 1, 2")
        scene.start(2)
        await cluster.saw(is_event("enough"))
        await cluster.sees(is_step(0))
        cluster.master.stop("enough")
        await scene.ended()


# ---------------------------------------------------------------- the master ends


@pytest.mark.timeout(60)
@both_payloads
async def test_stop_ends_everything_with_75_and_a_checkpoint(payload):
    """Reports 34, 49."""
    cluster = Cluster(scheme("pgc-cr", 4), rules(EVER), payload=payload)
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        cluster.master.stop("interrupted by SIGTERM")
        ending = await scene.ended()
        byes = [life.task.result() for life in scene.lives]
    assert (ending.exit_code, ending.reason) == (75, "interrupted by SIGTERM")
    assert {(bye.exit, bye.reason) for bye in byes} == {(75, "interrupted by SIGTERM")}
    assert cluster.saved == [ending.steps] == [len(cluster.compute.applied)]


class Gated(NumpyMaster):
    """Applies the update of one step only when it may."""

    def __init__(self, size, step):
        super().__init__(size)
        self.step, self.may = step, threading.Event()
        self.begun = threading.Event()

    def apply(self, step, messages, plan):
        if step == self.step:
            self.begun.set()
            assert self.may.wait(30)
        return super().apply(step, messages, plan)


@pytest.mark.timeout(60)
@both_payloads
async def test_a_stop_during_an_update_saves_what_the_parameters_really_contain(payload):
    """The checkpoint's number and its content must agree, or a resumed run would apply a step twice."""
    cluster = Cluster(scheme("pgc-cr", 3), rules(EVER), payload=payload)
    cluster.compute = Gated(cluster.size, step=2)
    async with running(cluster) as scene:
        await asyncio.get_running_loop().run_in_executor(None, cluster.compute.begun.wait, 30)
        assert cluster.engine.phase == "applying"
        cluster.master.stop("now")
        cluster.compute.may.set()
        ending = await scene.ended()
    assert ending.exit_code == 75
    assert [step for step, _ in cluster.compute.applied] == [0, 1, 2]
    assert cluster.saved == [3] == [ending.steps]
    assert cluster.events("checkpoint")[-1].step == 3


@pytest.mark.timeout(60)
async def test_a_second_stop_does_not_wait_for_evaluations():
    cluster = Cluster(scheme("dgd", 2), rules(3))
    begun = asyncio.Event()

    async def endless(step, snapshot):
        begun.set()
        await asyncio.Event().wait()

    cluster._evaluate = endless
    async with running(cluster) as scene:
        await begun.wait()
        cluster.master.stop("now")
        ending = await scene.ended()
    assert (ending.exit_code, ending.steps) == (0, 3)


@pytest.mark.timeout(60)
async def test_a_checkpoint_that_cannot_be_written_is_said_and_the_last_one_decides():
    failing = True

    def save(step):
        if failing:
            raise OSError("no space left")
        return f"step_{step}"

    cluster = Cluster(scheme("dgd", 2), rules(EVER, checkpoint_every=2))
    cluster._save = save
    async with running(cluster) as scene:  # training goes on, and a later checkpoint may find room again
        told = await cluster.saw(is_event("checkpoint", text="a checkpoint could not be written: no space left"))
        assert told
        failing = False
        cluster.master.stop("now")
        ending = await scene.ended()
    assert (ending.exit_code, ending.reason) == (75, "now")
    cluster = Cluster(scheme("dgd", 2), rules(3))
    failing, cluster._save = True, save
    ending = await run(cluster)
    assert ending.exit_code == 70
    assert ending.reason == "done; a checkpoint could not be written: no space left"


@pytest.mark.timeout(60)
async def test_workers_hear_of_it_when_the_master_fails():
    class Broken(NumpyMaster):
        def apply(self, step, messages, plan):
            raise RuntimeError("a bug")

    cluster = Cluster(scheme("dgd", 2), rules(EVER))
    cluster.compute = Broken(cluster.size)
    async with running(cluster) as scene:
        with pytest.raises(RuntimeError, match="a bug"):
            await scene.ended()
        byes = await asyncio.gather(*(life.task for life in scene.lives))
    assert {bye.exit for bye in byes} == {70}


# ---------------------------------------------------------------- a silent master


def lone_worker(sockets, port, **changes):
    told = {"host": "127.0.0.1", "number": 0, "prepare": lambda welcome: None, "master_timeout": 0.5}
    return Worker(sockets, port=port, **told | changes)


@pytest.mark.timeout(60)
async def test_nobody_there():
    """Report 46."""
    with Sockets() as sockets, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(MasterUnreachable) as info:
            await lone_worker(sockets, port).run()
    text = str(info.value)
    assert text.startswith(f"the master at tcp://127.0.0.1:{port} has not answered for ")
    assert text.endswith("Is it running there, and is the port open?")


@pytest.mark.timeout(60)
async def test_a_master_that_goes_silent_is_given_up_after_patience():
    cluster = Cluster(scheme("pgc-cr", 2), rules(EVER))
    async with running(cluster, workers=(0,)) as scene:
        with Sockets() as sockets:
            worker = cluster.worker(sockets, 1)
            worker._master_timeout = 1.0
            task = asyncio.create_task(worker.run())
            await cluster.saw(is_step(2))
            scene.ending.cancel()  # its sockets stay open, but nobody is behind them
            with pytest.raises(MasterUnreachable, match="has not answered for"):
                await task


@pytest.mark.timeout(60)
async def test_patience_is_for_listening_and_not_for_sleeping():
    """After a suspension it takes a moment until the network brings what the master said."""
    with Sockets() as sockets, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        task = asyncio.create_task(lone_worker(sockets, taken.getsockname()[1], master_timeout=2.0).run())
        await asyncio.sleep(0.2)
        time.sleep(3.5)  # noqa: ASYNC251
        await asyncio.sleep(0.3)
        assert not task.done()
        with pytest.raises(MasterUnreachable):
            await task


@pytest.mark.timeout(60)
async def test_a_worker_that_was_asleep_itself_does_not_blame_its_master():
    """A suspended machine: what the master said meanwhile is still in the socket. Nobody is expired either."""
    cluster = Cluster(scheme("pgc-cr", 2), rules(EVER))
    async with running(cluster) as scene:
        for life in scene.lives:
            life.worker._master_timeout = 1.0
        await cluster.saw(is_step(2))
        time.sleep(2.5)  # noqa: ASYNC251  the whole loop, longer than patience and than three heartbeats
        for _ in range(3):
            await cluster.sees(is_step(0))
        assert not any(life.task.done() for life in scene.lives)
        assert not cluster.events("left")
        stall = cluster.events("stall")
        assert any("the event loop was blocked for 2." in event.text for event in stall)
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_worker_whose_task_cannot_be_built_fails_with_that_reason():
    cluster = Cluster(scheme("pgc-cr", 2), rules(EVER, start_timeout=1.0))
    async with running(cluster, workers=(0,)) as scene:
        with Sockets() as sockets:
            sockets.farewell = 1.0

            def prepare(welcome):
                raise ValueError("no such data")

            worker = Worker(
                sockets,
                host="127.0.0.1",
                port=cluster.hub.ports.control,
                number=1,
                prepare=prepare,
                master_timeout=20.0,
            )
            with pytest.raises(ValueError, match="no such data"):
                await worker.run()
            worker.leave("ValueError: no such data")
            left = await cluster.saw(is_event("left", 1))
            assert left.text == "worker 1 left: ValueError: no such data"
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_slow_preparation_is_not_silence():
    """Report 44: signs of life do not depend on what is computed."""

    class Slow(NumpyWorker):
        def __init__(self, *arguments):
            time.sleep(3.0)
            super().__init__(*arguments)

    cluster = Cluster(scheme("pgc-cr", 2, load=2, stragglers=1), rules(EVER, heartbeat=0.5))
    async with running(cluster, workers=(0,)) as scene:
        scene.start(1, make=Slow)
        await cluster.saw(is_event("ready", 1))
        assert not cluster.events("left")
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_a_long_evaluation_is_not_silence():
    cluster = Cluster(scheme("dgd", 2), rules(1, heartbeat=0.2))
    async with running(cluster, seconds=2.0) as scene:
        ending = await scene.ended()
    assert ending.exit_code == 0
    assert not cluster.events("left")
