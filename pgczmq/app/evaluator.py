"""Evaluation beside the steps: a process of its own, at the lowest priority, fed with snapshots over a pipe."""

import asyncio
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

from pgczmq.app import processes
from pgczmq.config import RunConfig, loads
from pgczmq.errors import ClusterError
from pgczmq.net.compute import Snapshot


class EvaluatorProcess:
    """The parent's end. One evaluation at a time; of several that wait, the newest is done and the others are not."""

    def __init__(self, context: ForkServerContext, config: RunConfig) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = processes.spawn(context, _serve, config.to_toml(), theirs)
        theirs.close()
        self._lock = asyncio.Lock()
        self._newest = -1

    async def evaluate(self, step: int, snapshot: Snapshot) -> tuple[float, float | None, float] | None:
        """Loss, metric and seconds it took; None when a newer snapshot was there before this one's turn.

        Raises:
            ClusterError: the process failed; says how.
        """
        self._newest = max(self._newest, step)
        async with self._lock:
            if step < self._newest:
                return None
            begun = time.monotonic()
            answer = await asyncio.get_running_loop().run_in_executor(None, self._ask, snapshot)
            if isinstance(answer, str):
                raise ClusterError(f"the evaluation after {step} steps failed: {answer}")
            return (*answer, time.monotonic() - begun)

    def _ask(self, snapshot: Snapshot) -> tuple[float, float | None] | str:
        params, buffers = snapshot
        try:
            self._pipe.send_bytes(params.data.cast("B"))
            self._pipe.send_bytes(buffers.tobytes())
            answer: tuple[float, float | None] | str = self._pipe.recv()
        except (EOFError, OSError):
            return "the evaluating process ended"
        return answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(config_toml: str, pipe: Connection) -> None:
    """In the process: evaluate until the other end is closed."""
    processes.lowest_priority()
    try:
        evaluator = _build(loads(config_toml))
        while True:
            params = pipe.recv_bytes()
            buffers = pipe.recv_bytes()
            pipe.send(evaluator.evaluate(params, buffers))
    except EOFError:
        return
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _build(config: RunConfig):  # type: ignore[no-untyped-def]  # its type would import torch in the parent
    import torch

    from pgczmq.train.evaluate import Evaluator
    from pgczmq.train.task import load_task

    torch.set_num_threads(1)
    return Evaluator(load_task(config.task.name, config.task.args, config.seed), config.seed)
