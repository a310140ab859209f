"""Who is let in and who is not: numbers, second lives, strangers, and peers that say what they are not."""

import logging

import msgpack
import numpy as np
import pytest
import zmq
from cluster import Cluster, Stranger, both_payloads, is_event, is_step, rules, running, scheme
from numpy_task import NumpyMaster, NumpyWorker
from test_net_runs import recomputed

from pgczmq.errors import JoinRefused
from pgczmq.net import wire
from pgczmq.net.exchange import Version
from pgczmq.net.hub import Hub
from pgczmq.net.payload import Sealed
from pgczmq.runlog import LatencyRecord, StepRecord

EVER = 100_000  # steps of a run that the test ends


def cluster_of(workers=3, **changes):
    return Cluster(scheme("pgc-cr", workers), rules(EVER, **{"start_timeout": 2.0} | changes))


async def stop_and_check(scene):
    """End the run; whatever happened, each step was applied once and from its workers' gradients alone."""
    cluster = scene.cluster
    await cluster.sees(is_step(0))  # it still goes on
    cluster.master.stop("enough")
    ending = await scene.ended()
    assert ending.exit_code == 75
    assert [step for step, _ in cluster.compute.applied] == list(range(len(cluster.steps)))
    assert np.array_equal(cluster.compute.params, recomputed(cluster))


# ---------------------------------------------------------------- one number, two workers


@pytest.mark.timeout(60)
async def test_a_second_live_worker_with_the_same_number_is_refused_and_the_first_is_undisturbed():
    """X3, reports 7 and 9."""
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(is_step(3))
        first = cluster.hub.incarnation(1)
        second = scene.start(1)
        with pytest.raises(JoinRefused, match=r"worker 1 is already in this run and alive; choose another --id"):
            await second.task
        assert cluster.hub.incarnation(1) == first
        assert not cluster.events("left")
        mine = await cluster.sees(lambda record: isinstance(record, LatencyRecord) and record.worker == 1)
        assert mine.incarnation == first
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_a_worker_answers_its_master_beside_its_own_heartbeat(monkeypatch):
    """Which comes as seldom as a rival waits: here not at all."""
    cluster = cluster_of(start_timeout=40.0)
    admit = Hub.admit
    monkeypatch.setattr(Hub, "admit", lambda self, worker, incarnation, _: admit(self, worker, incarnation, 3600.0))
    async with running(cluster, workers=(1,)) as scene:  # it waits for the others and has nothing else to say
        await cluster.saw(is_event("ready", 1))
        second = scene.start(1)
        with pytest.raises(JoinRefused, match="worker 1 is already in this run and alive"):
            await second.task
        assert not cluster.events("left")
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_the_number_of_a_dead_worker_is_free_at_once():
    """Its connection is closed: the probe fails, long before its silence would tell."""
    cluster = cluster_of(heartbeat=5.0, start_timeout=30.0)
    async with running(cluster) as scene:
        await cluster.saw(is_step(3))
        await scene.lives[1].kill()
        scene.start(1)
        left = await cluster.saw(is_event("left", 1))
        assert left.text == "worker 1 can no longer be reached"
        await cluster.saw(lambda r: is_event("ready", 1)(r) and r.at > left.at)
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_a_silent_holder_is_replaced():
    """It keeps its connection but says nothing more."""
    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as silent:
            await silent.be_ready()
            await cluster.saw(is_event("ready", 2))
            scene.start(2)
            left = await cluster.saw(is_event("left", 2))
            assert "has been silent for" in left.text
            await cluster.saw(lambda r: isinstance(r, LatencyRecord) and r.worker == 2)
            # The one that was replaced is told so when it speaks again, and changes nothing.
            await silent.say(wire.Heartbeat(state="idle", step=0, **silent.mine))
            rejected = await silent.hear(wire.Rejected)
            assert rejected.reason == f"worker 2 of incarnation {silent.incarnation} is not in this run"
            await silent.send(silent.gradient(cluster.engine.open_step), bytes(4 * cluster.size))
            await stop_and_check(scene)
    incarnations = {r.incarnation for r in cluster.latencies if r.worker == 2}
    assert silent.incarnation not in incarnations


# ---------------------------------------------------------------- numbers


@pytest.mark.timeout(60)
async def test_a_number_out_of_range_is_refused():
    cluster = cluster_of()
    async with running(cluster) as scene:
        for number in (3, 10**9):
            with pytest.raises(JoinRefused, match=f"worker numbers run from 0 to 2 in this run: got {number}"):
                await scene.start(number).task
        with Stranger(cluster) as negative:
            await negative.say(negative.hello(worker=-1))
            assert "got -1" in (await negative.hear(wire.Rejected)).reason
        with pytest.raises(JoinRefused, match="all 3 worker numbers are taken"):
            await cluster.saw(is_step(0)) and await scene.start(None).task
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_the_lowest_free_number_is_given():
    cluster = cluster_of()
    async with running(cluster, workers=(1,)) as scene:
        await cluster.saw(is_event("ready", 1))
        with Stranger(cluster) as first, Stranger(cluster) as second:
            assert (await first.join()).worker == 0
            assert (await second.join()).worker == 2
            assert list((await _again(first)).held) == list(cluster.scheme.placement.held[0])
        cluster.master.stop("enough")
        await scene.ended()


async def _again(stranger):
    """A repeated hello gets the same welcome."""
    await stranger.say(stranger.hello(worker=None))
    return await stranger.hear(wire.Welcome)


# ---------------------------------------------------------------- another program, model, data, run


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", [1, 99])
async def test_another_protocol_version_is_refused_and_named(version, caplog):
    cluster = cluster_of()
    async with running(cluster) as scene:
        with Stranger(cluster, 0) as old:
            await old.say(msgpack.packb(dict(wire.unpack(wire.pack(old.hello()))) | {"v": version}))
            told = await old.hear(wire.Rejected)
            assert told.reason.startswith(f"this master speaks protocol version {wire.PROTOCOL};")
        await stop_and_check(scene)
    assert f"the peer speaks protocol version {version}, this program version {wire.PROTOCOL}" in caplog.text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["model", "data", "torch"])
async def test_a_worker_that_would_compute_something_else_is_refused(key):
    class Other(NumpyWorker):
        fingerprint = {**NumpyMaster.fingerprint, key: "another"}  # noqa: RUF012

    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        own = NumpyMaster.fingerprint[key]
        with pytest.raises(JoinRefused, match=f"its {key} differs: the run has {own}, the worker another"):
            await scene.start(2, make=Other).task
        assert key in cluster.events("refused")[0].text
        assert not [event for event in cluster.events("ready") if event.worker == 2]
        right = scene.start(2)  # the number is free for one that does fit
        await cluster.saw(is_event("ready", 2))
        assert not right.task.done()
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_workers_of_another_device_than_the_first_are_refused():
    class OnCuda(NumpyWorker):
        fingerprint = {**NumpyMaster.fingerprint, "device": "cuda"}  # noqa: RUF012

    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        await cluster.saw(is_event("ready", 0))
        with pytest.raises(JoinRefused, match="its device differs: the run has cpu, the worker cuda"):
            await scene.start(2, make=OnCuda).task
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_a_worker_that_asks_for_another_run_is_refused():
    cluster = cluster_of()
    async with running(cluster) as scene:
        with Stranger(cluster, 0) as lost:
            await lost.say(lost.hello(run="run-0"))
            assert (await lost.hear(wire.Rejected)).reason == "this master runs run-1, the worker asks for run run-0"
        await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_a_doctor_hears_what_is_run_and_nobody_hears_of_it(caplog):
    caplog.set_level(logging.INFO)
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(is_step(0))
        caplog.clear()
        with Stranger(cluster, 0) as doctor:
            await doctor.say(doctor.hello(run=wire.DOCTOR))
            answer = await doctor.hear(wire.Rejected)
        assert (answer.reason, answer.fingerprint) == ("this master runs run-1", NumpyMaster.fingerprint)
        await stop_and_check(scene)
    assert not cluster.events("refused") and "doctor" not in caplog.text and "not let in" not in caplog.text


# ---------------------------------------------------------------- who says what it is not


@pytest.mark.timeout(60)
async def test_messages_for_another_master_are_refused_counted_and_named_once(caplog):
    """X10: what an earlier master's workers still say. Here the sender is a worker of this run too."""
    caplog.set_level(logging.WARNING)
    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as stale:
            await stale.be_ready()
            await cluster.saw(is_step(1))
            poison = np.full(cluster.size, 1e9, dtype=np.float32)
            for changes in ({"master": "master-0"}, {"run": "run-0"}, {"incarnation": "former"}):
                for _ in range(3):
                    await stale.send(stale.gradient(cluster.engine.open_step, **changes), poison)
                mine = stale.mine | changes
                await stale.say(wire.Heartbeat(state="idle", step=0, **mine))
                assert "not to this one" in (reason := (await stale.hear(wire.Rejected)).reason) or "former" in reason
            await stale.send(stale.gradient(cluster.engine.open_step + 10**6), poison)
            await stale.hear(wire.Refused)  # everything before it on this socket has been looked at
            await stop_and_check(scene)
    assert np.abs(cluster.compute.params).max() < 100
    assert cluster.hub.blamed.peers == {f"2:{stale.incarnation}".encode(): 12}
    assert caplog.text.count("refused a message of peer") == 1


@pytest.mark.timeout(60)
async def test_nobody_speaks_for_another_worker(caplog):
    caplog.set_level(logging.WARNING)
    cluster = cluster_of()
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as thief:
            await thief.be_ready()
            await cluster.saw(is_step(1))
            victim = {"worker": 1, "incarnation": cluster.hub.incarnation(1)}
            poison = np.full(cluster.size, 1e9, dtype=np.float32)
            for _ in range(3):
                await thief.send(thief.gradient(cluster.engine.open_step, **victim), poison)
            await thief.say(wire.Leaving(reason="not me", **thief.mine | victim))
            assert "comes over another connection" in (await thief.hear(wire.Rejected)).reason
            await thief.say(thief.hello(**victim))  # would turn the victim's mail to the thief
            await thief.say(thief.hello(worker=9))  # and behind it one that is answered
            await thief.hear(wire.Rejected)
            await thief.send(thief.gradient(10**6), poison)
            refused = cluster.hub.blamed.peers[f"2:{thief.incarnation}".encode()]
            assert not cluster.events("left")
            assert cluster.hub._guests.identity(victim["incarnation"]) == f"1:{victim['incarnation']}".encode()
            await stop_and_check(scene)
    assert refused >= 2
    assert np.abs(cluster.compute.params).max() < 100
    assert caplog.text.count("refused a message of peer") == 1


@pytest.mark.timeout(60)
async def test_a_rival_that_changes_its_mind_does_not_end_the_master():
    """It is let in when the holder is found silent, although its last hello was turned away and forgotten."""
    cluster = cluster_of()
    async with running(cluster, workers=(0, 2)) as scene:
        with Stranger(cluster, 1) as holder, Stranger(cluster, 1) as rival:
            await holder.be_ready()
            await cluster.saw(is_event("ready", 1))
            await rival.say(rival.hello())
            await rival.say(rival.hello(worker=99))
            await rival.say(rival.hello(run="run-0"))
            left = await cluster.saw(is_event("left", 1))
            joined = await cluster.saw(lambda r: is_event("joined", text="worker 1 joined")(r) and r.at >= left.at)
            assert joined.text == "worker 1 joined from somewhere"
            await stop_and_check(scene)


@pytest.mark.timeout(60)
async def test_the_master_survives_whatever_a_peer_sends(caplog):
    """Report 25: count, drop, name once, never die."""
    caplog.set_level(logging.WARNING)
    cluster = cluster_of()
    random = np.random.default_rng(5)
    async with running(cluster, workers=(0, 1)) as scene:
        with Stranger(cluster, 2) as hostile:
            await hostile.be_ready()
            misplaced = [
                hostile.gradient(0),
                wire.Pull(**hostile.mine),
                wire.Beacon(run="run-1", master="master-1"),
                wire.Rejected(reason="you"),
            ]
            frames = [b"", b"\xc1", bytes(5000), b"\x91" * 3000, b"\xdf\xff\xff\xff\xff"]
            frames += [random.bytes(size) for size in (1, 2, 7, 50, 1000)]
            for frame in frames + [wire.pack(message) for message in misplaced]:
                await hostile.say(frame)
                await hostile.say(frame, b"more", b"frames")
            for frame in [
                *frames,
                wire.pack(hostile.hello()),
                wire.pack(wire.Heartbeat(state="x", step=0, **hostile.mine)),
            ]:
                await hostile.send(frame)
                await hostile.send(frame, bytes(4 * cluster.size))
            await hostile.control.send_multipart([b""])
            nameless = hostile.sockets._context.socket(zmq.DEALER)  # no identity, no header
            nameless.linger = 0
            nameless.connect(f"tcp://127.0.0.1:{cluster.hub.ports.control}")
            nameless.send(b"")
            await hostile.say(hostile.hello(worker=99))
            await hostile.hear(wire.Rejected)
            await hostile.send(hostile.gradient(10**6), bytes(4 * cluster.size))
            await hostile.hear(wire.Refused)
            await stop_and_check(scene)
            nameless.close()
    known = cluster.hub.blamed.peers[f"2:{hostile.incarnation}".encode()]
    assert known == 2 * (len(frames) + len(misplaced)) + 2 * (len(frames) + 2) + 1 + 1  # and a hello in vain
    assert caplog.text.count("refused a message of peer") <= 2


@pytest.mark.timeout(60)
async def test_a_worker_survives_whatever_a_master_sends(caplog):
    caplog.set_level(logging.WARNING)
    cluster = cluster_of()
    async with running(cluster) as scene:
        await cluster.saw(is_step(1))
        hub, incarnation = cluster.hub, cluster.hub.incarnation(1)
        identity = f"1:{incarnation}".encode()
        for line in (hub._control, hub._gradients):
            for frames in ([b""], [b"\xc1"], [bytes(100)], [wire.pack(wire.Beacon(run="run-1", master="m"))]):
                hub._send_now(line, [identity, *frames])
        other = {"run": "run-0", "master": "master-0"}
        hub.send_control(incarnation, wire.Bye(exit=0, reason="not yours", **other))
        strange = wire.Params(step=10**6, k=1, batch_fraction=1.0, **other)
        hub.send_params(1, incarnation, strange, cluster.master._combiner.version)
        small = Version(10**6, {"tcp": Sealed(None, [np.zeros(12, dtype=np.uint8)])})
        params = wire.Params(step=10**6, k=1, batch_fraction=1.0, **hub.mine)
        hub.send_params(1, incarnation, params, small)
        hub.publish_params(params, small)
        hub.publish(wire.Beat(ready=True, open_step=0, arrived=[], **hub.mine))
        await cluster.sees(lambda r: isinstance(r, LatencyRecord) and r.worker == 1)
        while scene.lives[1].worker.life._refusals < 8:  # the messages come over three sockets, in no common order
            await cluster.sees(is_step(0))
        assert not any(life.task.done() for life in scene.lives)
        await stop_and_check(scene)
    assert caplog.text.count("refused a message: ") <= 3  # once a worker


# ---------------------------------------------------------------- again and again


def is_open(record, worker):
    """An answer of this worker to the step that was open then."""
    return isinstance(record, LatencyRecord) and record.worker == worker and record.outcome == "open"


@pytest.mark.timeout(60)
@both_payloads
async def test_a_worker_comes_back_twenty_times_in_one_run(payload):
    """Reports 36, 37, 40: it enters with full parameters at an open step, and first evaluates all that it holds."""
    cluster = Cluster(scheme("pgc-cr", 4, load=2), rules(EVER), payload=payload)
    async with running(cluster, seconds=0.004) as scene:
        await cluster.saw(lambda r: isinstance(r, StepRecord) and 3 in r.used)  # not before: it may be late at first
        life = scene.lives[3]
        for _ in range(20):
            await life.kill()
            earlier = {r.incarnation for r in cluster.latencies}  # of them an answer may still be on its way
            life = scene.start(3, seconds=0.004)
            await cluster.sees(lambda r, earlier=earlier: is_open(r, 3) and r.incarnation not in earlier)
        await stop_and_check(scene)
    mine = [record for record in cluster.latencies if record.worker == 3]
    lives = list(dict.fromkeys(record.incarnation for record in mine))
    assert len(lives) == 21
    used_at = {record.step: record for record in cluster.steps if 3 in record.used}
    for life_id in lives:
        answers = sorted((r for r in mine if r.incarnation == life_id), key=lambda r: r.step)
        assert answers[0].evaluated == cluster.scheme.load
        assert all(answer.evaluated == 1 for answer in answers[1:])
        first = next((r for r in answers if r.outcome == "open" and r.step in used_at), None)
        if first is not None:
            record = used_at[first.step]
            ages = record.ages[record.used.index(3)]
            assert min(ages) == first.newest_age == 0
    assert len(used_at) > 20


@pytest.mark.timeout(60)
@both_payloads
async def test_a_worker_that_comes_back_while_the_master_waits_is_sent_the_open_step(payload):
    cluster = Cluster(scheme("dgd", 3), rules(EVER), payload=payload)
    async with running(cluster) as scene:
        await cluster.saw(is_step(2))
        for number in (0, 1, 2):
            life = next(one for one in scene.lives if one.worker.number == number)
            await life.kill()
            waiting = await cluster.sees(is_event("waiting"))
            assert f"dgd needs 3 of 3 workers; missing {number}; the run ends" in waiting.text
            scene.start(number)
            await cluster.sees(is_step(0))
        await stop_and_check(scene)
