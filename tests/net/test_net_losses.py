"""What the network and the workers may lose, repeat or spoil, and the run goes on and is right.

Each guard here has a test that fails without it; which, says the README of this folder.
"""

import logging
import os
import re
import threading
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq
from cluster import (
    Cluster,
    Intercepted,
    Stranger,
    both_payloads,
    is_event,
    is_step,
    rules,
    run,
    running,
    scheme,
    shared_memory,
)
from numpy_task import NumpyMaster, NumpyWorker
from test_net_runs import recomputed

from pgczmq.net import wire
from pgczmq.net.hub import Hub
from pgczmq.net.memory import NOTHING, Block
from pgczmq.net.sockets import Sockets
from pgczmq.runlog import LatencyRecord, WorkerRecord

QUICK = 0.05  # seconds between beats, where a test waits for several


def is_answer(worker):
    return lambda record: isinstance(record, LatencyRecord) and record.worker == worker


def exactly_once(cluster, steps):
    assert [step for step, _ in cluster.compute.applied] == list(range(steps))
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


# ---------------------------------------------------------------- the broadcast


@pytest.mark.timeout(60)
@both_payloads
@pytest.mark.parametrize("name", ["dgd", "pgc-cr"])
async def test_a_broadcast_that_drops_all_parameters_still_ends_in_a_finished_run(name, payload, monkeypatch):
    """X7, X20, report 1: PUB is the fast path, not the promise."""
    dropped = []
    monkeypatch.setattr(Hub, "publish_params", lambda self, message, version: dropped.append(message.step))
    cluster = Cluster(scheme(name, 3), rules(6, heartbeat=QUICK), payload=payload)
    ending = await run(cluster)
    assert ending.exit_code == 0
    assert dropped == list(range(6))
    exactly_once(cluster, 6)


@pytest.mark.timeout(60)
async def test_a_lost_farewell_on_one_socket_comes_over_the_other(monkeypatch):
    monkeypatch.setattr(Hub, "publish", _without(wire.Bye, Hub.publish))
    ending = await run(Cluster(scheme("dgd", 2), rules(3)))
    assert ending.exit_code == 0
    monkeypatch.undo()
    monkeypatch.setattr(Hub, "send_control", _without(wire.Bye, Hub.send_control))
    ending = await run(Cluster(scheme("dgd", 2), rules(3)))
    assert ending.exit_code == 0


def _without(kind, send):
    def sent(self, *arguments):
        if any(isinstance(argument, kind) for argument in arguments):
            return True
        return send(self, *arguments)

    return sent


# ---------------------------------------------------------------- single messages


class Losing:
    """Loses the first message of a kind from each worker on one of the master's sockets."""

    def __init__(self, kind, attribute):
        self.kind, self.attribute, self.lost = kind, attribute, []

    def __call__(self, cluster):
        socket = getattr(cluster.hub, self.attribute)
        setattr(cluster.hub, self.attribute, Intercepted(socket, self.swallow))

    def swallow(self, frames):
        message = wire.to_master(frames[1].bytes)
        if isinstance(message, self.kind) and frames[0].bytes not in self.lost:
            self.lost.append(frames[0].bytes)
            return True
        return False


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "attribute"),
    [(wire.Hello, "_control"), (wire.Prepared, "_control"), (wire.Gradient, "_gradients")],
)
@both_payloads
async def test_what_was_lost_on_the_way_to_the_master_is_said_again(kind, attribute, payload):
    cluster = Cluster(scheme("dgd", 3), rules(5, heartbeat=QUICK), payload=payload)
    losing = Losing(kind, attribute)
    ending = await run(cluster, opened=losing)
    assert (ending.exit_code, ending.reason) == (0, "done")
    assert len(losing.lost) == 3
    exactly_once(cluster, 5)


@pytest.mark.timeout(60)
@both_payloads
async def test_a_lost_welcome_is_repeated(payload, monkeypatch):
    send, lost = Hub.send_control, set()

    def lose_first(self, incarnation, message):
        if isinstance(message, wire.Welcome) and incarnation not in lost:
            lost.add(incarnation)
            return True
        return send(self, incarnation, message)

    monkeypatch.setattr(Hub, "send_control", lose_first)
    cluster = Cluster(scheme("dgd", 3), rules(5), payload=payload)
    ending = await run(cluster, order=(None, 2, None))  # whoever has no number keeps the one it was to have
    assert len(lost) == 3
    assert ending.exit_code == 0
    exactly_once(cluster, 5)


@pytest.mark.timeout(60)
async def test_an_answer_that_overtakes_prepared_is_not_lost_for_its_step():
    """The two sockets have no common order. A worker that was told "refused" would never send it again."""
    cluster = Cluster(scheme("pgc-cr", 3), rules(10_000, start_timeout=0.3))
    async with running(cluster, workers=(0, 1)) as scene:
        await cluster.saw(is_step(2))
        await scene.lives[1].kill()
        await cluster.saw(is_event("waiting", text="missing 1, 2"))
        step = cluster.engine.open_step
        with Stranger(cluster, 2) as hasty:
            await hasty.join()
            answer = hasty.gradient(step), np.zeros(cluster.size, dtype=np.float32)
            await hasty.send(*answer)
            await hasty.send(wire.Pull(**hasty.mine))  # behind it on the same socket
            assert wire.to_worker((await hasty.bulk.recv_multipart())[0]).step == step
            assert cluster.engine.open_step == step
            await hasty.say(wire.Prepared(fingerprint=dict(NumpyMaster.fingerprint), payload="tcp", **hasty.mine))
            heard = []
            while not heard or not getattr(heard[-1], "ready", False):
                heard.append(wire.to_worker((await hasty.control.recv_multipart())[0]))
            assert not any(isinstance(message, wire.Refused) for message in heard)
            await hasty.send(*answer)
            closed = await cluster.saw(is_step(step))
            assert 2 in closed.used
            cluster.master.stop("enough")
            await scene.ended()


@pytest.mark.timeout(60)
async def test_parameters_are_as_good_a_beacon_as_any_and_are_not_answered_too_early(monkeypatch):
    cluster = Cluster(scheme("pgc-cr", 3), rules(10_000, start_timeout=0.3))
    async with running(cluster, workers=(0, 1)) as scene:
        await cluster.saw(is_step(0))
        monkeypatch.setattr(Hub, "publish", _without(wire.Beacon, Hub.publish))
        scene.start(2, seconds=0.3)
        ready = await cluster.saw(is_event("ready", 2))
        await cluster.saw(lambda record: isinstance(record, LatencyRecord) and record.worker == 2)
        before = cluster.records[: cluster.records.index(ready)]
        assert not any(isinstance(r, WorkerRecord) and r.worker == 2 and r.state == "computing" for r in before)
        cluster.master.stop("enough")
        await scene.ended()
    assert not cluster.hub.blamed.refused


@pytest.mark.timeout(60)
@both_payloads
async def test_an_answer_sent_many_times_counts_once(payload):
    """Every frame list that leaves a worker on the gradients socket arrives three times."""

    def triple(cluster):
        cluster.hub._gradients = Tripled(cluster.hub._gradients)

    cluster = Cluster(scheme("pgc-cr", 4), rules(30), payload=payload)
    ending = await run(cluster, opened=triple)
    assert ending.exit_code == 0
    exactly_once(cluster, 30)
    pairs = [(record.worker, record.step) for record in cluster.latencies]
    assert len(pairs) == len(set(pairs)) == cluster.engine.messages
    late = [(event.worker, event.step) for event in cluster.events("late")]
    assert len(late) == len(set(late)) == cluster.engine.late


class Tripled:
    """A network that delivers everything three times, the copies after the next message."""

    def __init__(self, line):
        self._line, self._again = line, []

    def listen(self, take, failed):
        def deliver(frames):
            again, self._again = self._again, [frames, frames]
            for each in (frames, *again):
                take(each)

        self._line.listen(deliver, failed)

    def __getattr__(self, name):
        return getattr(self._line, name)


@pytest.mark.timeout(60)
async def test_a_late_answer_is_counted_and_never_applied():
    cluster = Cluster(scheme("is-sgd", 3, stragglers=1), rules(10_000))
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as slow:
            await slow.be_ready()
            await cluster.saw(is_step(3))
            poison = np.full(cluster.size, 1e6, dtype=np.float32)
            for _ in range(3):
                await slow.send(slow.gradient(1), poison)
            await cluster.saw(is_event("late", 2))
            await slow.send(slow.gradient(10**6), poison)  # a step that was never published
            refused = await slow.hear(wire.Refused)
            assert refused.step == 10**6
            assert refused.reason == "step 1000000 was never published"
            await cluster.sees(is_step(0))
            cluster.master.stop("enough")
            await scene.ended()
    assert [(e.worker, e.step) for e in cluster.events("late") if e.worker == 2] == [(2, 1)]
    assert np.abs(cluster.compute.params).max() < 100
    assert all(2 not in used for _, used in cluster.compute.applied)
    exactly_once(cluster, len(cluster.steps))


# ---------------------------------------------------------------- not finite


class Spoiling(NumpyWorker):
    """One element of each coded gradient is no number; ``honest`` says whether its norm tells."""

    honest = True

    def encode(self, room, buffers):
        norm = super().encode(room, buffers)
        room.view(np.float32)[self.parameter_count // 2] = np.nan
        return float("nan") if self.honest else norm


class Lying(Spoiling):
    honest = False


class Overflowing(NumpyWorker):
    """Every element is a number and the norm, it says, is not: what a worker says of itself counts."""

    def encode(self, room, buffers):
        super().encode(room, buffers)
        return float("inf")


@pytest.mark.timeout(60)
async def test_whoever_asks_for_a_step_that_is_being_applied_has_it_if_it_opens_again(monkeypatch):
    """Its broadcast was lost, so the worker has nothing to do, and asks once: it may be the one that is needed."""
    cluster = Cluster(scheme("is-sgd", 3, stragglers=1), rules(5))
    gate, apply = threading.Event(), cluster.compute.apply

    def apply_later(*arguments):
        assert gate.wait(20)
        return apply(*arguments)

    monkeypatch.setattr(cluster.compute, "apply", apply_later)
    good, bad = np.ones(cluster.size, np.float32), np.full(cluster.size, np.nan, np.float32)
    async with running(cluster, workers=()) as scene:
        with Stranger(cluster, 0) as one, Stranger(cluster, 1) as liar, Stranger(cluster, 2) as deaf:
            for each in (one, liar, deaf):
                await each.be_ready()
            await cluster.saw(is_event("ready", 2))
            await one.send(one.gradient(0), good)
            await liar.send(liar.gradient(0), bad)
            await cluster.saw(is_answer(1))
            assert cluster.engine.phase == "applying"
            await deaf.send(wire.Pull(**deaf.mine))
            await deaf.send(deaf.gradient(0, norm=None))  # behind it: when this is in, the master has read that
            await cluster.saw(is_answer(2))
            gate.set()
            header, _ = await deaf.bulk.recv_multipart()
            assert wire.to_worker(header).step == 0
            cluster.master.stop("enough")
            await scene.ended()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [Spoiling, Lying, Overflowing])
@both_payloads
async def test_one_worker_that_sends_nan_is_refused_and_the_others_go_on(make, payload, caplog):
    cluster = Cluster(scheme("pgc-cr", 4), rules(8), payload=payload)
    async with running(cluster, workers=(0, 1, 2)) as scene:
        scene.start(3, make=make)
        ending = await scene.ended()
    assert (ending.exit_code, ending.diverged) == (0, False)
    exactly_once(cluster, 8)
    assert np.isfinite(cluster.compute.params).all()
    assert all(3 not in used for _, used in cluster.compute.applied)
    assert cluster.events("refused")[0].worker == 3
    assert "is not finite" in cluster.events("refused")[0].text
    told = [r.getMessage() for r in caplog.records if "refused the answer" in r.getMessage()]
    assert told, "the worker was not told"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [Spoiling, Lying])
@both_payloads
async def test_a_run_in_which_nobody_sends_a_number_has_diverged(make, payload):
    cluster = Cluster(scheme("pgc-cr", 4), rules(20), payload=payload)
    async with running(cluster, workers=()) as scene:
        for number in range(4):
            scene.start(number, make=make)
        ending = await scene.ended()
    assert (ending.exit_code, ending.diverged) == (0, True)
    assert "diverged at step 0" in ending.reason
    assert not cluster.compute.applied
    assert not cluster.compute.params.any()


@pytest.mark.timeout(60)
async def test_nonfinite_abort_ends_the_run():
    cluster = Cluster(scheme("pgc-cr", 4), rules(20, nonfinite="abort"))
    async with running(cluster, workers=(0, 1, 2)) as scene:
        scene.start(3, make=Spoiling)
        ending = await scene.ended()
    assert ending.exit_code == 70
    assert ending.reason == "worker 3 sent a gradient that is not finite (nonfinite=abort)"


# ---------------------------------------------------------------- not of this model


@pytest.mark.timeout(60)
async def test_answers_that_do_not_fit_are_refused_told_and_never_applied(caplog):
    caplog.set_level(logging.WARNING)
    cluster = Cluster(scheme("pgc-cr", 4, load=2), rules(10_000))
    good = np.ones(cluster.size, dtype=np.float32)
    async with running(cluster, workers=(0, 1, 2)) as scene:
        with Stranger(cluster, 3) as odd:
            await odd.be_ready()
            await cluster.saw(is_event("ready", 3))
            wrong = [
                (odd.gradient(0), [good[1:]], r"one frame of 4000 bytes: got \[3996\]"),
                (odd.gradient(0), [np.ones(cluster.size + 1, dtype=np.float32)], r"bytes: got \[4004\]"),
                (odd.gradient(0), [b"x", good], r"bytes: got \[1, 4000\]"),
                (odd.gradient(0), [b"", good], r"bytes: got \[0, 4000\]"),
                (odd.gradient(0), [], r"bytes: got \[\]"),
                (odd.gradient(0, block=5), [good], r"bytes: got \[4000\] and a block of shared memory"),
                (odd.gradient(0, block=5), [], r"bytes: got \[\] and a block of shared memory"),
                (odd.gradient(0, ages=[0]), [good], "has 2 ages: got 1"),
                (odd.gradient(0, ages=[0, 0, 0]), [good], "has 2 ages: got 3"),
                (odd.gradient(0, ages=[0, 1], fresh=[3], losses=[0.1]), [good], r"the ages \[0, 1\] at step 0"),
                (odd.gradient(3, ages=[1, 1]), [good], r"the ages \[1, 1\] at step 3 are not those of 2 fresh"),
                (odd.gradient(0, fresh=[3, 1], losses=[0.1, 0.1]), [good], "fresh partition it holds"),
                (odd.gradient(0, evaluations=[0.1]), [good], "one duration for each fresh partition"),
                (odd.gradient(0, losses=[0.1]), [good], "one loss for each"),
                (odd.gradient(1, **_dropped(evaluated=3)), [good], "at most 2 partitions at a step it drops"),
            ]
            for header, frames, sentence in wrong:
                await odd.send(header, *frames)
                refused = await odd.hear(wire.Refused)
                assert refused.step == header.step
                assert re.search(sentence, refused.reason), (sentence, refused.reason)
            await cluster.sees(is_step(0))
            cluster.master.stop("enough")
            await scene.ended()
    assert all(3 not in used for _, used in cluster.compute.applied)
    assert not any(isinstance(record, LatencyRecord) and record.worker == 3 for record in cluster.records)
    exactly_once(cluster, len(cluster.steps))
    named = [r.getMessage() for r in caplog.records if "refused a message of peer" in r.getMessage()]
    assert len(named) == 1, "a peer is named once"
    assert sum(cluster.hub.blamed.peers.values()) == len(wrong)


@shared_memory
@pytest.mark.timeout(60)
async def test_answers_that_are_not_where_they_say_are_refused_and_late_ones_only_counted():
    """A header names a block of its sender's own, with the payload of its step; else nothing is read."""
    cluster = Cluster(scheme("pgc-cr", 4, load=2), rules(10_000, heartbeat=1.0, start_timeout=1.5), payload="auto")
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 3) as odd:
            mine = (await odd.join()).block
            await odd.say(wire.Prepared(fingerprint=dict(NumpyMaster.fingerprint), payload="shm", **odd.mine))
            await cluster.saw(is_event("waiting", text="starting without workers 2"))
            step = 0  # which stays open until the stranger answers
            theirs = cluster.hub.exchange._blocks[cluster.hub.incarnation(1)].descriptor
            good = np.ones(cluster.size, dtype=np.float32)
            wrong = [
                (odd.gradient(step, block=mine), [], f"the gradient of step {step} is not where its header says"),
                (odd.gradient(step, block=theirs), [], f"there is no shared block {theirs} for this worker"),
                (odd.gradient(step, block=10**6), [], "there is no shared block 1000000 for this worker"),
                (odd.gradient(step, block=mine), [good], "no frame but a block of shared memory: got 1 frames"),
                (odd.gradient(step), [good], "no frame but a block of shared memory: got 1 frames"),
                (odd.gradient(step), [], "no frame but a block of shared memory: got 0 frames"),
            ]
            for header, frames, sentence in wrong:
                await odd.send(header, *frames)
                assert sentence in (await odd.hear(wire.Refused)).reason
            assert cluster.engine.open_step == step
            block = Block.open_to_write(os.getpid(), mine, 4 * cluster.size)
            block.payload[:] = good.view(np.uint8)
            block.written(step)
            await odd.send(odd.gradient(step, block=mine))
            closed = await cluster.saw(is_step(step))
            assert 3 in closed.used
            scene.start(2)
            await cluster.saw(is_step(step + 2))
            for late, there in ((step + 1, step + 1), (step + 2, NOTHING)):
                assert block.try_to_write(), "whatever came before is not read any more"
                block.written(there)
                await odd.send(odd.gradient(late, block=mine))
                await cluster.saw(lambda record, late=late: is_event("late", 3)(record) and record.step == late)
            assert block.try_to_write()
            cluster.master.stop("enough")
            await scene.ended()
    assert [used for number, used in cluster.compute.applied if 3 in used] == [closed.used]
    assert sum(cluster.hub.blamed.peers.values()) == len(wrong)


@shared_memory
@pytest.mark.timeout(60)
async def test_a_new_life_of_one_that_was_refused_must_not_name_an_empty_block_either():
    """It may answer the open step again, so that its answer is looked at; and the master lives on."""
    cluster = Cluster(scheme("pgc-cr", 3), rules(10_000, heartbeat=5.0, start_timeout=30.0), payload="auto")
    async with running(cluster, workers=(0,)) as scene:
        with Stranger(cluster, 1) as silent, Stranger(cluster, 2) as first, Stranger(cluster, 2) as second:
            await silent.be_ready()
            await first.be_ready()
            await cluster.saw(is_event("ready", 2))
            await cluster.saw(lambda record: isinstance(record, LatencyRecord) and record.worker == 0)
            await first.send(first.gradient(0, norm=float("inf")), bytes(4 * cluster.size))
            await cluster.saw(is_event("refused", 2))
            await first.say(wire.Leaving(reason="broken", **first.mine))
            await cluster.saw(is_event("left", 2))
            block = (await second.join()).block
            await second.say(wire.Prepared(fingerprint=dict(NumpyMaster.fingerprint), payload="shm", **second.mine))
            await cluster.sees(is_event("ready", 2))
            await second.send(second.gradient(0, block=block))
            assert "is not where its header says" in (await second.hear(wire.Refused)).reason
            await silent.send(silent.gradient(0), bytes(4 * cluster.size))
            assert (await cluster.saw(is_step(0))).used == (0, 1)
            cluster.master.stop("enough")
            await scene.ended()


def _dropped(step=0, *, evaluated):
    """What is said of one step that was given up."""
    told = {"dropped": [step], "dropped_received_at": [9.0], "dropped_delay": [0.5], "dropped_evaluated": [evaluated]}
    return told | {"dropped_evaluations": [0.25] * evaluated}


@pytest.mark.timeout(60)
async def test_odd_steps_given_up_are_counted_and_named_and_hurt_nobody(caplog):
    """Said for the record alone, and refused all the same; its sender is named, and the run goes on."""
    caplog.set_level(logging.WARNING)
    cluster = Cluster(scheme("pgc-cr", 4, load=2), rules(10_000))
    good = np.ones(cluster.size, dtype=np.float32)
    async with running(cluster, workers=(0, 1, 2)) as scene:
        with Stranger(cluster, 3) as odd:
            await odd.be_ready()
            await cluster.saw(is_event("ready", 3))
            told = dict(wire.unpack(wire.pack(odd.gradient(5, **_dropped(4, evaluated=1)))))
            wrong = [{"dropped": [-7.5]}, {"dropped": [1e300]}, {"dropped_evaluations": [0.1] * 400_003}]
            for change in wrong:
                await odd.send(msgpack.packb(told | change), good)
            await cluster.saw(is_step(1))
            await odd.send(odd.gradient(1, **_dropped(evaluated=2)), good)
            answer = await cluster.saw(lambda record: isinstance(record, LatencyRecord) and record.worker == 3)
            cluster.master.stop("enough")
            await scene.ended()
    assert answer.dropped == ((0, 9.0, 0.5, 0.25, 0.25),)
    assert sum(cluster.hub.blamed.peers.values()) == len(wrong)
    named = [r.getMessage() for r in caplog.records if "refused a message of peer" in r.getMessage()]
    assert len(named) == 1 and "3:" in named[0]


# ---------------------------------------------------------------- large ones


class Remembering(NumpyWorker):
    """Checks that what it sent is not written again, and that what it loads is not a copy."""

    sent: list = []  # noqa: RUF012
    loaded: list = []  # noqa: RUF012

    def load(self, params, buffers):
        self.loaded.append(params)
        super().load(params, buffers)

    def encode(self, room, buffers):
        assert not any(np.shares_memory(room, other) for other, _ in self.sent)
        norm = super().encode(room, buffers)
        self.sent.append((room, room[:1000].copy()))
        return norm


@pytest.mark.timeout(60)
async def test_large_parameters_and_gradients_arrive_whole(monkeypatch):
    """X2, X17: 60 MB each way; sent arrays stay as they were, received ones are views of their frames."""
    monkeypatch.setattr(Remembering, "sent", [])
    monkeypatch.setattr(Remembering, "loaded", [])
    cluster = Cluster(scheme("dgd", 2), rules(3, heartbeat=1.0, step_timeout=80.0), size=15_000_000)
    applied = NumpyMaster.apply
    received = Remembering.loaded

    def looking(self, step, messages, plan):
        received.extend(gradient for _, _, gradient, _ in messages)
        return applied(self, step, messages, plan)

    monkeypatch.setattr(NumpyMaster, "apply", looking)
    async with running(cluster, workers=()) as scene:
        for number in range(2):
            scene.start(number, make=Remembering)
        ending = await scene.ended()
    assert ending.exit_code == 0
    assert len(received) == 12
    assert not any(array.flags.owndata for array in received)
    assert len(Remembering.sent) == 6
    assert all(np.array_equal(array[:1000], before) for array, before in Remembering.sent)
    assert not cluster.master._combiner.version.sealed["tcp"].frames[0].flags.writeable
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


@pytest.mark.timeout(60)
async def test_a_stopped_subscriber_costs_bounded_memory():
    """X6: 1.2 GB in messages of 8 MB to one who does not read: about the marks' worth is kept, not all of it."""
    with Sockets() as sockets:
        nbytes = 8_000_000
        pub, port = sockets.broadcast("127.0.0.1", 0, nbytes)
        sub = sockets.subscriber(f"tcp://127.0.0.1:{port}", nbytes)
        while not sub.socket.poll(10):  # subscriptions travel on their own
            pub.send_now([b"beacon"])
        before = resident_bytes()
        for version in range(150):
            pub.send_now([np.full(nbytes // 4, version, dtype=np.float32)])
        queued_at_most = pub.socket.getsockopt(zmq.SNDHWM) + sub.socket.getsockopt(zmq.RCVHWM)
        assert resident_bytes() - before < 2 * (queued_at_most + 4) * nbytes < 150 * nbytes / 3


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
