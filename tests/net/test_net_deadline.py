"""A deadline over real sockets: the master looks at its clock in time, and not before it has read what came."""

import asyncio
import time

import pytest
from cluster import Cluster, is_step, rules, running, scheme

from pgczmq.core.pace import ANSWERS_AT_LEAST

EVER = 10**9


@pytest.mark.timeout(60)
async def test_a_stopped_worker_costs_a_deadline_and_not_its_heartbeats():
    """The master's ticks are 1 s apart here: twenty steps would take that many seconds without the alarm."""
    sure = scheme("dgd", 3, stragglers=0, shortfall="partial", deadline=5.0)
    cluster = Cluster(sure, rules(EVER, heartbeat=4.0, start_timeout=50.0))
    async with running(cluster) as scene:
        await cluster.saw(is_step(3 * ANSWERS_AT_LEAST))
        await scene.lives[2].kill()
        await cluster.sees(is_step(cluster.steps[-1].step + 20))
        assert 2 in cluster.steps[-1].missing  # and others, where this machine is busy
        cluster.master.stop("enough")
        await scene.ended()


@pytest.mark.timeout(60)
async def test_what_came_while_the_loop_was_blocked_counts():
    """Answers take 0.1 s and the deadline is after 0.4 s, in the middle of a blocked second: all are used."""
    sure = scheme("dgd", 3, stragglers=0, shortfall="partial", deadline=30.0)
    cluster = Cluster(sure, rules(EVER, heartbeat=4.0, start_timeout=50.0))
    async with running(cluster, seconds=0.1) as scene:
        await cluster.saw(is_step(ANSWERS_AT_LEAST))
        for _ in range(3):
            step = (await cluster.sees(is_step(0))).step + 1
            await asyncio.sleep(0.05)  # the workers have begun
            assert cluster.engine.open_step == step
            assert 0.3 < cluster.engine.deadline - cluster.engine._current.opened_at < 0.9
            time.sleep(1.0)  # noqa: ASYNC251 - a blocked loop is what this is about
            await cluster.saw(is_step(step))
        assert not [step for step in cluster.steps if step.missing]
        cluster.master.stop("enough")
        await scene.ended()
