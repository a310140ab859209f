"""Actors and the object store of Ray, as its users write a parameter server."""

import logging

import numpy as np
import ray

from pgczmq.bench.transport.turn import Clock, Turn, serve
from pgczmq.bench.transport.work import FloatArray

STORE_BYTES_AT_LEAST = 200 * 2**20
SETS_OF_GRADIENTS = 3
"""That the object store has room for: Ray frees an object some time after its last reference is gone."""


class Actor:
    """One worker.

    Args:
        turn: that it takes part in.
        number: of the worker.
    """

    def __init__(self, turn: Turn, number: int) -> None:
        self._work = turn.work
        self._number = number
        self._out = turn.work.start()

    def gradient(self, step: int, params: FloatArray) -> FloatArray:
        """The gradient; Ray copies it into its store."""
        self._work.gradient(self._number, step, params, out=self._out)
        return self._out


def run(turn: Turn) -> list[float]:
    """A turn."""
    ray.init(
        num_cpus=turn.workers,
        object_store_memory=max(STORE_BYTES_AT_LEAST, SETS_OF_GRADIENTS * turn.work.payload_bytes("float32") // 2),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=turn.scratch,
    )
    try:
        return steps(turn)
    finally:
        ray.shutdown()


def steps(turn: Turn) -> list[float]:
    """Parameters into the store, gradients added up as they come, update."""
    remote = ray.remote(Actor)
    actors = [remote.remote(turn, number) for number in range(turn.workers)]
    params, total = turn.work.start(), turn.work.start()
    ray.get([actor.__ray_ready__.remote() for actor in actors])
    clock = Clock()
    clock.start()
    for step in range(turn.steps):
        total.fill(0)
        ref = ray.put(params)
        waiting = [actor.gradient.remote(step, ref) for actor in actors]
        while waiting:
            (first, *_), waiting = ray.wait(waiting)
            total += ray.get(first)
        total /= np.float32(turn.workers)
        params -= total
        clock.lap()
    turn.work.check(params, turn.steps)
    return clock.seconds


if __name__ == "__main__":
    serve(run)
