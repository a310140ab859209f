"""Replicas of a partition agree to the bit, whichever worker and process evaluates them, in whatever order."""

import hashlib
from multiprocessing.connection import Connection

import numpy as np

from pgczmq.app import processes
from pgczmq.core import seeds

PARTITIONS, SEED = 8, 1
TASK = ("digits-cnn", {"dropout": 0.3, "augment": True, "batchnorm": True})


def pairs() -> list[tuple[int, int]]:
    """20 random (partition, step)."""
    draw = seeds.rng(5, "pairs")
    return [(int(draw.integers(PARTITIONS)), int(draw.integers(1000))) for _ in range(20)]


def evaluate(order: list[int], held: list[int], pipe: Connection) -> None:
    """In a process of its own: the hashes of the 20 gradients and losses, evaluated in the given order."""
    import torch

    from pgczmq.train.data import Partitions
    from pgczmq.train.gradient import Gradients
    from pgczmq.train.task import load_task

    torch.set_num_threads(1)
    task = load_task(TASK[0], TASK[1], SEED)
    cut = Partitions(len(task.train), PARTITIONS, batch_size=21, seed=SEED)
    hashes: dict[tuple[int, int], str] = {}
    for number in order:
        partition, step = pairs()[number]
        place = held.index(partition)
        one_hot = [float(at == place) for at in range(len(held))]
        gradients = Gradients(task, held=held, coefficients=one_hot, partitions=cut, seed=SEED)
        room = np.empty(4 * gradients.parameter_count, np.uint8)
        for other in range(len(held)):  # another worker's evaluations before it must not matter
            if other != place:
                gradients.evaluate(step + 1, other, 1.0, room)
        loss = gradients.evaluate(step, place, 1.0, room)
        gradients.encode(room, np.empty(gradients.buffer_bytes, np.uint8))
        hashes[partition, step] = hashlib.sha256(room.tobytes() + np.float64(loss).tobytes()).hexdigest()
    pipe.send(hashes)


def test_replicas_agree_in_shuffled_processes() -> None:
    context = processes.start_helper("digits-cnn")
    answers = []
    for number in range(3):
        order = seeds.rng(number, "order").permutation(20).tolist()
        held = np.roll(np.arange(PARTITIONS), number * 3).tolist()
        mine, theirs = context.Pipe()
        processes.spawn(context, evaluate, order, held, theirs)
        theirs.close()
        answers.append(mine)
    first, *others = [pipe.recv() for pipe in answers]
    assert len(set(first.values())) == len(set(pairs()))
    assert all(other == first for other in others)
