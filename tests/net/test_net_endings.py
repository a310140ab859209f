"""How a run ends: who is told, and when."""

import asyncio
from dataclasses import dataclass, field

from cluster import HANG_SECONDS, Cluster, Stranger, rules, run, running, scheme

from pgczmq.net import wire

STEPS = 5
TURNS = 50
"""Of the event loop; whatever is due is done by then."""


@dataclass
class Saving(Cluster):
    """Looks, while its last checkpoint is being written, whether anybody has been told yet that the run is over."""

    told: list[wire.Bye | None] = field(default_factory=list)

    def _save(self, step: int) -> str:
        asyncio.run_coroutine_threadsafe(self._look(), self.loop).result(HANG_SECONDS)
        return super()._save(step)

    async def _look(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.told.append(self.hub.bye)


@dataclass
class Evaluating(Cluster):
    """Its evaluation takes until it is let go."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.let_go = asyncio.Event()

    async def _evaluate(self, step: int, snapshot: object) -> None:
        await self.let_go.wait()


async def test_workers_hear_that_a_run_is_done_when_its_last_step_is_on_disk() -> None:
    """A master that is killed before that needs them again, and who has been told does not come back."""
    cluster = Saving(scheme("dgd", 2), rules(STEPS))
    cluster.loop = asyncio.get_running_loop()
    ending = await run(cluster)
    assert ending.exit_code == 0
    assert (cluster.saved, cluster.told) == ([STEPS], [None])


async def test_whoever_says_hello_to_a_run_that_is_over_is_told_so() -> None:
    """Not refused: a worker that had lost its master may have missed it."""
    cluster = Evaluating(scheme("dgd", 2), rules(STEPS, eval_every=STEPS))
    async with running(cluster) as scene:
        byes = await asyncio.gather(*(life.task for life in scene.lives))
        with Stranger(cluster, 1) as late:
            await late.say(late.hello())
            bye = await late.hear(wire.Bye)
            cluster.let_go.set()
            assert (await scene.ended()).exit_code == 0
    assert bye == byes[0]
