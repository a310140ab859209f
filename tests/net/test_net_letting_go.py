"""Memory that is shared with a master is let go of when that master is lost, and not when the collector finds time."""

import contextlib
import gc
import os
from pathlib import Path

import numpy as np
import pytest
from leased import fill, memory_files
from test_net_lives import cluster_of, free_ports, is_step, lives_of, master_of

from pgczmq.net import memory
from pgczmq.net.memory import Block
from pgczmq.net.payload import BlockOut, BlocksIn, Size
from pgczmq.net.ways import Ends

pytestmark = [
    pytest.mark.skipif(not memory.AVAILABLE, reason="shared memory needs Linux"),
    pytest.mark.timeout(60),
]
NBYTES = 4096


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_ends_that_are_closed_hold_nothing_and_leave_the_blocks_to_their_owner(without_collector):
    size = Size(NBYTES, 0)
    params, gradients = Block.create(NBYTES), Block.create(NBYTES)
    fill(params.payload, 3)
    params.written(3)
    before = open_files()
    ends = Ends(
        size,
        BlocksIn(lambda descriptor: Block.open_to_read(os.getpid(), descriptor, NBYTES)),
        BlockOut(Block.open_to_write(os.getpid(), gradients.descriptor, NBYTES), gradients.descriptor),
    )
    lease = ends.incoming.lease(3, params.descriptor, [])
    seen = lease.memory
    lease.release()
    ends.outgoing.room()[:] = 7
    assert open_files() > before
    ends.close()
    del lease
    held = open_files()
    assert held <= before + 1  # as long as a model still looks at its parameters
    assert np.array_equal(seen, params.payload)
    del seen
    assert open_files() == before
    assert gradients.try_to_write()
    assert (gradients.payload == 7).all()
    for block in (params, gradients):
        block.retire()


async def test_a_worker_that_outlives_its_masters_keeps_no_memory_of_theirs(without_collector):
    port, clusters = free_ports(), [cluster_of(f"master-{number}", payload="shm") for number in range(3)]
    of_masters: list[set[int]] = []
    async with contextlib.AsyncExitStack() as stack:
        for cluster in clusters:
            async with master_of(cluster, port) as ending:
                if not of_masters:
                    await stack.enter_async_context(lives_of(cluster))
                await cluster.saw(is_step(5))
                here = set(memory_files())
                assert here.isdisjoint(set().union(*of_masters))
                of_masters.append(here)
                if cluster is clusters[-1]:
                    cluster.master.stop("enough")
                    await ending
    assert all(of_masters)
