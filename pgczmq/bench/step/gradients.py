"""How long gradients take when nothing else is done: no parameters come, no answer is sent, nobody waits.

Both figures are seconds of one core for one gradient, its minibatch included. ``alone`` has as many processes as there
are cores, which share the memory's bandwidth as real workers do, but no core. ``together`` has as many as workers: that
they take turns on the cores, and push each other's data out of the caches, costs something without any transport.
"""

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from statistics import mean, median
from typing import TypeAlias

from pgczmq.app import processes
from pgczmq.app.gradients import gradient_of
from pgczmq.config import RunConfig
from pgczmq.errors import PgcError

ALONE_GRADIENTS, TOGETHER_GRADIENTS = 6, 3
"""Of each process, at least."""
LEAST_SECONDS = 0.5
"""A process goes on that long."""

Taken: TypeAlias = list[tuple[float, float]]
"""Of each gradient of a process: seconds, and processor seconds."""


@dataclass(frozen=True)
class Baseline:
    """Seconds of one core that one gradient takes.

    Args:
        alone: median; each process has a core.
        low, high: least and largest of these.
        processor: median of the processor's seconds of these: less, as far as somebody else had the cores too.
        together: all workers share the cores; total time times cores, over the number of gradients.
    """

    alone: float
    low: float
    high: float
    processor: float
    together: float


def busy_cores(workers: int) -> int:
    """Cores that so many workers can keep busy."""
    return min(processes.cores(), workers)


def baseline(config: RunConfig) -> Baseline:
    """Evaluate gradients of the run's own minibatches, at its first parameters, in fresh processes.

    Raises:
        ConfigError: something about the task does not work.
        PgcError: a process was killed.
    """
    cores = busy_cores(config.workers)
    _, taken = _side_by_side(config, cores, ALONE_GRADIENTS)
    seconds, processor = zip(*(pair for each in taken for pair in each), strict=True)
    total, together = _side_by_side(config, config.workers, TOGETHER_GRADIENTS)
    shared = total * cores / sum(map(len, together))
    return Baseline(median(seconds), min(seconds), max(seconds), median(processor), shared)


def between(before: Baseline, after: Baseline) -> Baseline:
    """What held, as far as is known, for a run between the two."""
    return Baseline(
        alone=mean([before.alone, after.alone]),
        low=min(before.low, after.low),
        high=max(before.high, after.high),
        processor=mean([before.processor, after.processor]),
        together=mean([before.together, after.together]),
    )


def _side_by_side(config: RunConfig, count: int, gradients: int) -> tuple[float, Sequence[Taken]]:
    """Seconds until all are done, and what each process took; they begin at the same time."""
    context = processes.start_helper(config.task.name)
    with ExitStack() as stack:
        pipes = [stack.enter_context(_process(context, config, number, gradients)) for number in range(count)]
        for pipe in pipes:
            _answer(pipe)
        begun = time.perf_counter()
        for pipe in pipes:
            pipe.send(None)
        taken = [_answer(pipe) for pipe in pipes]
        return time.perf_counter() - begun, taken


@contextmanager
def _process(context: ForkServerContext, config: RunConfig, number: int, gradients: int) -> Iterator[Connection]:
    ours, theirs = context.Pipe()
    process = processes.spawn(context, _work, theirs, config, number, gradients)
    theirs.close()  # so that the process's end is the pipe's
    try:
        yield ours
    finally:
        process.kill()
        process.join()
        ours.close()


def _answer(pipe: Connection) -> Taken:
    try:
        taken, error = pipe.recv()
    except EOFError:
        raise PgcError(
            "a process that evaluated gradients was killed, perhaps for lack of memory. Start again."
        ) from None
    if error is not None:
        raise error
    found: Taken = taken
    return found


def _work(pipe: Connection, config: RunConfig, number: int, gradients: int) -> None:
    """In the process: say when it is ready, wait for the word, evaluate, and say how long it took."""
    try:
        _evaluate(pipe, config, number, gradients)
    except PgcError as error:
        pipe.send(([], error))
    except Exception:
        pipe.send(([], RuntimeError(traceback.format_exc())))


def _evaluate(pipe: Connection, config: RunConfig, number: int, gradients: int) -> None:
    processes.keep_large_blocks()  # as workers do
    processes.long_slices()
    gradient = gradient_of(config)
    out = gradient.empty()
    partition = number % config.workers
    gradient.evaluate(0, partition, out=out)
    pipe.send(([], None))
    pipe.recv()
    taken: Taken = []
    begun = time.perf_counter()
    while len(taken) < gradients or time.perf_counter() - begun < LEAST_SECONDS:
        since, processor = time.perf_counter(), time.process_time()
        gradient.evaluate(1 + len(taken), partition, out=out)
        taken.append((time.perf_counter() - since, time.process_time() - processor))
    pipe.send((taken, None))
