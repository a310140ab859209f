import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from roomed import Roomed
from torch import Tensor, nn

from pgczmq.train.data import ArraySamples, Partitions
from pgczmq.train.flat import build_model
from pgczmq.train.minibatches import KEPT
from pgczmq.train.task import Task, load_task

SAMPLES, BATCH = 40, 5


class Noisy(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Items that draw from all three global streams; ``on_read`` is called after each."""

    def __init__(self) -> None:
        self.on_read: Callable[[], None] = lambda: None
        self.reads = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        item = torch.rand(4) + random.random() + float(np.random.rand())
        self.reads += 1
        self.on_read()
        return item, index % 2


class Restless(nn.Module):
    """Draws from the global streams before and after ``between`` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(4, 2)
        self.between: Callable[[], None] = lambda: None

    def forward(self, inputs: Tensor) -> Tensor:
        begun = self.drop(inputs) * random.random()
        self.between()
        return self.last(self.drop(begun) * random.random() * float(np.random.rand()))  # type: ignore[no-any-return]


class Door:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock = threading.RLock()
        self._waits = waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def noisy_worker() -> tuple[Roomed, Noisy, Restless]:
    data = Noisy()
    gradients = worker(Task(Restless, data))  # type: ignore[arg-type]
    module = gradients._gradient._flat.module
    assert isinstance(module, Restless)
    return gradients, data, module


def worker(task: Task, held: tuple[int, ...] = (1,), batch: int = BATCH) -> Roomed:
    cut = Partitions(len(task.train), 4, batch_size=batch, seed=1)
    gradients = Roomed(task, held=held, coefficients=[1.0] * len(held), partitions=cut, seed=1)
    gradients.load(*build_model(task, 1).snapshot())
    return gradients


def answer(gradients: Roomed, step: int) -> tuple[float, bytes]:
    return gradients.evaluate(step, 0), gradients.coded()[0].tobytes()


def plain_answers(steps: range) -> list[tuple[float, bytes]]:
    gradients, _, _ = noisy_worker()
    return [answer(gradients, step) for step in steps]


def test_data_of_a_users_own_is_not_read_while_the_model_draws_from_the_same_streams() -> None:
    gradients, data, module = noisy_worker()
    met = threading.Event()
    gradients._gradient._minibatches._reading = Door(met)  # type: ignore[assignment]
    readers: list[threading.Thread] = []

    def read_beside() -> None:
        met.clear()
        data.on_read = met.set  # never at this moment, or the bits below are others
        readers.append(threading.Thread(target=gradients.read_ahead, args=(len(readers) + 1, 0)))
        readers[-1].start()
        met.wait()

    module.between = read_beside
    answers = []
    for step in range(4):
        answers.append(answer(gradients, step))
        readers[-1].join()
    assert answers == plain_answers(range(4))
    assert data.reads == SAMPLES + 5 * BATCH  # all of them for the fingerprint; no minibatch twice


def test_seeding_and_reading_are_one() -> None:
    gradients, data, _ = noisy_worker()
    begun, met = threading.Event(), threading.Event()
    gradients._gradient._minibatches._reading = Door(met)  # type: ignore[assignment]

    def wait_for_the_other() -> None:
        data.on_read = met.set
        begun.set()
        met.wait()

    data.on_read = wait_for_the_other
    reader = threading.Thread(target=gradients.read_ahead, args=(1, 0))
    reader.start()
    begun.wait()
    answers = [answer(gradients, 0)]
    reader.join()
    assert [*answers, answer(gradients, 1)] == plain_answers(range(2))


def test_built_in_data_is_read_beside_an_evaluation() -> None:
    args = {"dropout": 0.3, "augment": True, "batchnorm": True}
    task = load_task("digits-cnn", args, 1)
    alone, helped = worker(task, (1, 2), 20), worker(task, (1, 2), 20)

    def read_beside(module: nn.Module, inputs: Any) -> None:
        reader = threading.Thread(target=lambda: [helped.read_ahead(step, place, 0.7) for step, place in coming])
        reader.start()
        reader.join()

    first = next(module for module in helped._gradient._flat.module.modules() if isinstance(module, nn.Dropout))
    first.register_forward_pre_hook(read_beside)
    for step in range(3):
        for place in (0, 1):
            coming = [(step, 1)] if place == 0 else [(step + 1, 0), (step + 1, 1)]
            assert helped.evaluate(step, place, 0.7) == alone.evaluate(step, place, 0.7)
        assert helped.coded()[0].tobytes() == alone.coded()[0].tobytes()


def test_only_what_is_asked_for_is_taken_and_little_is_kept() -> None:
    gradients, data, _ = noisy_worker()
    expected = plain_answers(range(6))
    for step in (1, 2, 3, 5):
        gradients.read_ahead(step, 0, 1.0)
    assert len(gradients._gradient._minibatches._ready) == KEPT
    gradients.read_ahead(4, 0, 0.5)
    data.reads = 0
    assert answer(gradients, 5) == expected[5] and data.reads == 0
    assert answer(gradients, 4) == expected[4] and data.reads == BATCH  # not that with another fraction
    assert answer(gradients, 5) == expected[5] and data.reads == 2 * BATCH  # a model may write to its inputs
    gradients.read_ahead(4, 0, 0.5)
    assert data.reads == 2 * BATCH


class Breaking(ArraySamples):
    fails = 0

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        if self.fails:
            self.fails -= 1
            raise OSError("the disk is gone")
        return super().batch(indices)


def test_what_fails_beforehand_fails_where_it_is_needed_and_only_there() -> None:
    data = Breaking(torch.ones(SAMPLES, 4), torch.zeros(SAMPLES, dtype=torch.int64))
    gradients = worker(Task(lambda: nn.Linear(4, 2), data))
    data.fails = 2
    gradients.read_ahead(0, 0)
    with pytest.raises(OSError, match="the disk is gone"):
        gradients.evaluate(0, 0)
    data.fails = 1
    gradients.read_ahead(1, 0)
    assert gradients.evaluate(1, 0) == worker(Task(lambda: nn.Linear(4, 2), data)).evaluate(1, 0)


def test_data_of_a_users_own_is_read_ahead_after_an_evaluation() -> None:
    gradients, data, _ = noisy_worker()
    gradients.prefetch(1, 0)
    assert gradients._loading is None
    answers = [answer(gradients, 0)]
    assert gradients._loading is not None
    gradients._loading.result()
    data.reads = 0
    assert [*answers, answer(gradients, 1)] == plain_answers(range(2)) and data.reads == 0


def test_built_in_data_is_read_ahead_at_once_on_another_thread() -> None:
    task = load_task("digits-cnn", {}, 1)
    gradients = worker(task, (1,), 20)
    with gradients._gradient._minibatches._reading:
        gradients.prefetch(0, 0)
        gradients.prefetch(1, 0)  # left out, the one before is still being read
        assert gradients._loading is not None and not gradients._loading.done()
    gradients._loading.result()
    assert list(gradients._gradient._minibatches._ready) == [(0, 1, 1.0)]
    assert gradients.evaluate(0, 0) == worker(task, (1,), 20).evaluate(0, 0)
