"""Shared memory under torture: nothing torn is ever used, memory is bounded, and nothing is left behind.

Each guard is taken out once, and the scenario that passes with it fails.
"""

import asyncio
import contextlib
import gc
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster, Scene, is_step, rules, running
from lease_worker import HEARTBEAT, SCHEME, SIZE
from leased import held_anywhere, memory_files, rounded
from test_net_runs import recomputed
from torture import NBYTES, Readers
from torture_gradients import Writers

from pgczmq.core.schemes import build
from pgczmq.net import memory
from pgczmq.net.memory import NOTHING, Block

pytestmark = [
    pytest.mark.skipif(not memory.AVAILABLE, reason="shared memory needs Linux"),
    pytest.mark.timeout(150),
]
READERS, BLOCKS, WRITERS = 6, 5, 5
STEPS, OF_MUTANTS = 240, 160


def readers(steps, mutant=""):
    return Readers(1, readers=READERS, blocks=BLOCKS, mutant=mutant).run(steps)


def writers(steps, mutant=""):
    return Writers(1, writers=WRITERS, mutant=mutant).run(steps)


def finds(scenario):
    """Whether chance brings what is looked for in one of a few tries: a mutant lives through one of five."""
    return any(scenario() for _ in range(8))


# ---------------------------------------------------------------- parameters


def test_readers_stopped_and_killed_in_every_state_never_use_torn_parameters():
    """The writer waits for none of them, or it would hang here: at times all are stopped."""
    found = readers(STEPS)
    assert (found.torn, found.unnoticed, found.unfair) == (0, 0, 0)
    assert found.reads > STEPS // 10 and found.discarded > 0, "the scenario must have happened"
    assert found.most_bytes <= BLOCKS * rounded(NBYTES)
    assert not found.inodes & held_anywhere()


def test_without_looking_whether_the_lease_holds_torn_parameters_are_used():
    found = readers(OF_MUTANTS, "trusts every lease")
    assert found.torn > 0 and found.unnoticed > 0 and found.discarded == 0


def test_without_the_readers_lock_versions_are_written_over_that_somebody_reads():
    assert finds(lambda: readers(OF_MUTANTS, "locks nothing").unfair > 0)


def test_without_the_writers_lock_versions_are_written_over_that_somebody_reads(monkeypatch):
    def take(self):
        self.stamp = NOTHING
        return True

    monkeypatch.setattr(Block, "try_to_write", take)
    assert finds(lambda: readers(OF_MUTANTS).unfair > 0)


def test_without_clearing_the_stamp_half_written_parameters_are_used(monkeypatch):
    monkeypatch.setattr(Block, "take_back", lambda self: None)
    assert finds(lambda: readers(OF_MUTANTS).torn > 0)


# ---------------------------------------------------------------- gradients


def test_gradients_of_writers_stopped_and_killed_in_every_state_are_whole_while_they_are_leased():
    found = writers(STEPS)
    assert (found.torn, found.unfair) == (0, 0)
    assert found.reads > 10, "the scenario must have happened"
    assert not found.inodes & held_anywhere()


@pytest.mark.parametrize("mutant", ["waits for nobody", "leaves the stamp"])
def test_without_the_guards_of_gradients_they_are_torn(mutant):
    assert finds(lambda: writers(OF_MUTANTS, mutant).torn > 0)


# ---------------------------------------------------------------- a whole run


class Crew:
    """Worker processes of a run in this process, and what they say."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, number: int, pauses_at: int = -1) -> asyncio.subprocess.Process:
        file = str(Path(__file__).with_name("lease_worker.py"))
        arguments = (file, str(self._cluster.hub.ports.control), str(number), str(pauses_at))
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        self.processes.append(await asyncio.create_subprocess_exec(sys.executable, *arguments, **pipes))
        return self.processes[-1]

    async def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def hears(process: asyncio.subprocess.Process, *kinds: str) -> list:
    """The next of these lines."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        said = json.loads(line)
        if said[0] in kinds:
            return said
    raise AssertionError(f"the worker ended without saying {kinds}")


@contextlib.asynccontextmanager
async def run_of_processes(pauses_at: int) -> AsyncIterator[tuple[Cluster, Scene, Crew]]:
    """A shared run whose worker 3 pauses at a step; all its processes are gone at the end."""
    cluster = Cluster(build(SCHEME), rules(1_000_000, heartbeat=HEARTBEAT), size=SIZE, payload="shm")
    async with running(cluster, workers=()) as scene:
        crew = Crew(cluster)
        try:
            for number in range(4):
                await crew.start(number, pauses_at if number == 3 else -1)
            yield cluster, scene, crew
        finally:
            await crew.end()


async def test_a_worker_that_is_cut_off_discards_and_goes_on_and_a_killed_one_comes_back():
    before = memory_files().keys()
    async with run_of_processes(pauses_at=20) as (cluster, scene, crew):
        cluster.hub.exchange._shared.slots.at_most = 2  # the open step's, and the one that is written
        sleeper = crew.processes[3]
        _, step = await hears(sleeper, "pauses")
        sleeper.send_signal(signal.SIGSTOP)
        await cluster.saw(is_step(step + 60))
        sleeper.send_signal(signal.SIGCONT)
        sleeper.stdin.write(b"\n")
        assert await hears(sleeper, "lost", "answers") == ["lost", step]
        _, answered = await hears(sleeper, "lost", "answers")
        assert answered >= step + 60, "it goes on with what is open now"
        inodes = memory_files().keys() - before
        assert len(inodes) == 1 + 2 + 4, "the card, versions, and a block for each worker"
        sleeper.kill()
        await cluster.saw(is_step(cluster.steps[-1].step + 20))
        again = await crew.start(3)
        await hears(again, "answers")
        inodes |= memory_files().keys() - before
        assert max(memory_files().values()) <= rounded(4 * SIZE)
        cluster.master.stop("enough")
        ending = await scene.ended()
        for process in (*crew.processes[:3], again):
            assert (await hears(process, "bye"))[1] == ending.exit_code == 75
    assert np.array_equal(cluster.compute.params, recomputed(cluster))
    del cluster, scene, crew
    gc.collect()
    assert not inodes & held_anywhere()
