"""Evaluation beside the steps: one at a time, the newest of those that wait, and failures with their reason."""

import asyncio
import threading

import numpy as np
import pytest

from pgczmq.app.evaluator import EvaluatorProcess
from pgczmq.errors import ClusterError

SNAPSHOT = (np.zeros(3, dtype=np.float32), np.zeros(0, dtype=np.uint8))


class Gated(EvaluatorProcess):
    """The parent's end without a process: an evaluation ends when the test says so."""

    def __init__(self, answer: object = (1.0, 0.5)) -> None:
        self._busy = False
        self._waiting = None
        self.answer = answer
        self.gate = threading.Semaphore(0)
        self.begun: list[int] = []

    def _ask(self, snapshot):  # type: ignore[no-untyped-def]
        self.begun.append(1)
        assert self.gate.acquire(timeout=20)
        return self.answer


async def test_of_those_that_wait_the_newest_is_evaluated_and_the_others_say_so_at_once() -> None:
    evaluator = Gated()
    first, second, third = (asyncio.create_task(evaluator.evaluate(step, SNAPSHOT)) for step in (1, 2, 3))
    assert await second is None  # while the first is still under way
    assert not first.done() and not third.done()
    evaluator.gate.release(2)
    assert (await first)[:2] == (await third)[:2] == (1.0, 0.5)  # type: ignore[index]
    assert len(evaluator.begun) == 2
    evaluator.gate.release()
    assert await evaluator.evaluate(4, SNAPSHOT) is not None


async def test_a_failure_tells_why_and_the_next_one_has_its_turn() -> None:
    evaluator = Gated("ValueError: no metric")
    evaluator.gate.release(2)
    with pytest.raises(ClusterError, match="after 7 steps failed: ValueError: no metric"):
        await evaluator.evaluate(7, SNAPSHOT)
    evaluator.answer = (2.0, None)
    answer = await evaluator.evaluate(8, SNAPSHOT)
    assert answer is not None and answer[:2] == (2.0, None)
