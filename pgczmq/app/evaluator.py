"""Evaluation beside the steps: a process of its own, at the lowest priority, fed with snapshots over a pipe."""

import asyncio
import contextlib
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
        self._busy = False
        self._waiting: asyncio.Future[bool] | None = None

    async def evaluate(self, step: int, snapshot: Snapshot) -> tuple[float, float | None, float] | None:
        """Loss, metric and seconds it took; None when a newer snapshot came before this one's turn.

        Raises:
            ClusterError: the process failed; says how.
        """
        if not await self._turn():
            return None
        try:
            begun = time.monotonic()
            answer = await asyncio.get_running_loop().run_in_executor(None, self._ask, snapshot)
            if isinstance(answer, str):
                raise ClusterError(f"the evaluation after {step} steps failed: {answer}")
            return (*answer, time.monotonic() - begun)
        finally:
            self._pass_on()

    async def _turn(self) -> bool:
        """Wait for the process to be free; False when somebody newer waits instead."""
        if not self._busy:
            self._busy = True
            return True
        if self._waiting is not None:
            self._waiting.set_result(False)
        self._waiting = asyncio.get_running_loop().create_future()
        return await self._waiting

    def _pass_on(self) -> None:
        waiting, self._waiting = self._waiting, None
        self._busy = waiting is not None and not waiting.done()
        if waiting is not None and self._busy:
            waiting.set_result(True)

    def hurry(self) -> None:
        """Nobody trains any more: evaluate at normal priority."""
        if self._process.pid is not None:
            processes.normal_priority(self._process.pid)

    def _ask(self, snapshot: Snapshot) -> tuple[float, float | None] | str:
        params, buffers = snapshot
        try:
            self._pipe.send_bytes(params.data.cast("B"))
            self._pipe.send_bytes(buffers.tobytes())
            answer: tuple[float, float | None] | str = self._pipe.recv()
        except (EOFError, OSError):
            return self._last_words()
        return answer

    def _last_words(self) -> str:
        try:
            words = self._pipe.recv() if self._pipe.poll() else ""
        except (EOFError, OSError):
            words = ""
        return words if isinstance(words, str) and words else "the evaluating process has ended"

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
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return
    with contextlib.suppress(EOFError):
        while True:
            params, buffers = pipe.recv_bytes(), pipe.recv_bytes()
            try:
                answer = evaluator.evaluate(params, buffers)
            except Exception as error:  # the user's metric, for example; the next snapshot may fare better
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)


def _build(config: RunConfig):  # type: ignore[no-untyped-def]  # its type would import torch in the parent
    import torch

    from pgczmq.train.evaluate import Evaluator
    from pgczmq.train.task import load_task

    torch.set_num_threads(1)
    return Evaluator(load_task(config.task.name, config.task.args, config.seed), config.seed)
