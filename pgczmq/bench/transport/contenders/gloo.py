"""torch.distributed over gloo: an all-reduce among the workers, or broadcast and reduce with a master."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from pgczmq.bench.transport.turn import Clock, Crew, Turn, serve

Step = Callable[[Turn, int, int, torch.Tensor, torch.Tensor], None]
"""One rank's part of a step: the turn, its rank, the step, parameters and gradient float32 (P,)."""


def all_reduce(turn: Turn, rank: int, step: int, params: torch.Tensor, gradient: torch.Tensor) -> None:
    """Every rank is a worker and updates its own copy of the parameters."""
    turn.work.gradient(rank, step, params.numpy(), out=gradient.numpy())
    dist.all_reduce(gradient)
    params.add_(gradient, alpha=-1 / turn.workers)


def broadcast_and_reduce(turn: Turn, rank: int, step: int, params: torch.Tensor, gradient: torch.Tensor) -> None:
    """Rank 0 is the master and has the parameters, the others are workers."""
    dist.broadcast(params, src=0)
    if rank:
        turn.work.gradient(rank - 1, step, params.numpy(), out=gradient.numpy())
    else:
        gradient.zero_()
    dist.reduce(gradient, dst=0)
    if not rank:
        params.add_(gradient, alpha=-1 / turn.workers)


STEPS: dict[str, Step] = {"gloo-allreduce": all_reduce, "gloo-ps": broadcast_and_reduce}


def run(turn: Turn) -> list[float]:
    """A turn, as rank 0."""
    crew = Crew(turn, worker, range(1, _ranks(turn)))
    seconds = take_part(turn, 0)
    crew.join()
    return seconds


def worker(turn: Turn, number: int, pipe: Connection) -> None:
    """Another rank."""
    take_part(turn, number)


def take_part(turn: Turn, rank: int) -> list[float]:
    """All steps of one rank; every one of them checks what it can."""
    torch.set_num_threads(1)
    store = (Path(turn.scratch) / "gloo").as_uri()
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=_ranks(turn))
    params, gradient = torch.zeros(turn.params), torch.zeros(turn.params)
    take, clock = STEPS[turn.variant], Clock()
    dist.barrier()
    clock.start()
    for step in range(turn.steps):
        take(turn, rank, step, params, gradient)
        clock.lap()
    if rank == 0 or take is all_reduce:
        turn.work.check(params.numpy(), turn.steps)
    dist.barrier()
    dist.destroy_process_group()
    return clock.seconds


def _ranks(turn: Turn) -> int:
    return turn.workers + (turn.variant == "gloo-ps")


if __name__ == "__main__":
    serve(run)
