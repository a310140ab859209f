"""The bound on one host: every worker writes its gradient into shared memory once, the master adds them up.

No messages, only semaphores; parameters are shared, too, and the sum goes in cache-sized blocks on two threads.
"""

import mmap
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np

from pgczmq.bench.transport.turn import Clock, Crew, Turn, serve
from pgczmq.bench.transport.work import SUM_BLOCK, FloatArray

THREADS = 2


def run(turn: Turn) -> list[float]:
    """A turn."""
    context = multiprocessing.get_context("fork")
    params, *gradients = [shared(turn.params) for _ in range(turn.workers + 1)]
    begun = [context.Semaphore(0) for _ in range(turn.workers)]
    done = context.Semaphore(0)

    def worker(turn: Turn, number: int, pipe: Connection) -> None:
        for step in range(turn.steps):
            begun[number].acquire()
            turn.work.gradient(number, step, params, out=gradients[number])
            done.release()

    crew = Crew(turn, worker, range(turn.workers))
    middle = turn.params // 2 if turn.params > SUM_BLOCK else 0  # a thread has to be worth waking
    clock = Clock()
    with ThreadPoolExecutor(THREADS - 1) as other:
        clock.start()
        for _ in range(turn.steps):
            for semaphore in begun:
                semaphore.release()
            for _ in range(turn.workers):
                done.acquire()
            lower = other.submit(turn.work.update, params, gradients, 0, middle) if middle else None
            turn.work.update(params, gradients, middle, turn.params)
            if lower is not None:
                lower.result()
            clock.lap()
    crew.join()
    turn.work.check(params, turn.steps)
    return clock.seconds


def shared(size: int) -> FloatArray:
    """A float32 (size,) of zeros that forked processes share."""
    return np.frombuffer(mmap.mmap(-1, 4 * size), np.float32)


if __name__ == "__main__":
    serve(run)
