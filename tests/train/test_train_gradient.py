import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from roomed import Roomed
from torch import Tensor, nn

from pgczmq.errors import ConfigError, PgcError, WireError
from pgczmq.train import blocks
from pgczmq.train.data import ArraySamples, Partitions
from pgczmq.train.flat import build_model
from pgczmq.train.gradient import resolve_device
from pgczmq.train.task import Task, load_task

RANDOM_ARGS = {"dropout": 0.3, "augment": True, "batchnorm": True}


def worker(task: Task, held: list[int], *, coefficients: list[float] | None = None, batch: int = 20) -> Roomed:
    cut = Partitions(len(task.train), 4, batch_size=batch, seed=1)
    return Roomed(task, held=held, coefficients=coefficients or [1.0] * len(held), partitions=cut, seed=1)


def start(task: Task) -> tuple[np.ndarray, np.ndarray]:
    return build_model(task, 11).snapshot()


def coded_digest(gradients: Roomed) -> str:
    coded, _, buffers = gradients.coded()
    return hashlib.sha256(coded.tobytes() + buffers.tobytes()).hexdigest()


def one_partition_digest() -> str:
    task = load_task("digits-cnn", RANDOM_ARGS, 1)
    gradients = worker(task, [2])
    gradients.load(*start(task))
    gradients.evaluate(5, 0, 0.7)
    return coded_digest(gradients)


def test_replicas_agree_to_the_bit_whatever_else_their_workers_do() -> None:
    task = load_task("digits-cnn", RANDOM_ARGS, 1)
    first, second = worker(task, [1, 2]), worker(load_task("digits-cnn", RANDOM_ARGS, 1), [2, 3, 1])
    for gradients in (first, second):
        gradients.load(*start(task))
    losses = {1: first.evaluate(5, 0, 1.0), 2: first.evaluate(5, 1, 1.0)}
    torch.rand(7)
    second.evaluate(4, 1, 1.0)
    again = {1: second.evaluate(5, 2, 1.0), 2: second.evaluate(5, 0, 1.0)}
    assert losses == again
    for one, other in ((0, 2), (1, 0)):
        assert torch.equal(first._retained[one], second._retained[other])  # type: ignore[arg-type]


def test_the_order_of_evaluation_leaves_no_trace() -> None:
    task = load_task("digits-cnn", RANDOM_ARGS, 1)
    digests = set()
    for order in ([0, 1, 2], [2, 0, 1]):
        gradients = worker(task, [0, 1, 3], coefficients=[1.0, -0.7, 2.5])
        gradients.load(*start(task))
        for place in order:
            gradients.evaluate(3, place, 1.0)
        digests.add(coded_digest(gradients))
    assert len(digests) == 1


def test_replicas_agree_to_the_bit_between_processes() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_train_gradient as t; "
    printed = subprocess.run(
        [sys.executable, "-c", code + "t.torch.set_num_threads(1); print(t.one_partition_digest())"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ).stdout
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert printed.strip() == one_partition_digest()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("args", [{"dropout": 0.5}, {"augment": True}])
def test_random_numbers_depend_on_seed_partition_and_step(args: dict[str, object]) -> None:
    task = load_task("digits-mlp", args, 1)
    # One minibatch for all, so that what differs comes from dropout and augmentation alone.
    cut = Partitions(len(task.train), 4, batch_size=20, sampler="fixed-batch", seed=1)
    losses = []
    for seed, step in ((1, 0), (1, 1), (2, 0), (1, 0)):
        gradients = Roomed(task, held=[0], coefficients=[1.0], partitions=cut, seed=seed)
        gradients.load(*start(task))
        losses.append(gradients.evaluate(step, 0, 1.0))
    assert losses[0] == losses[3] and len(set(losses)) == 3


def test_a_gradient_is_autograds_own() -> None:
    task = load_task("digits-cnn", {}, 1)
    gradients = worker(task, [3])
    gradients.load(*start(task))
    loss = gradients.evaluate(2, 0, 1.0)
    coded, norm, _ = gradients.coded()
    module = build_model(task, 11).module
    cut = Partitions(len(task.train), 4, batch_size=20, seed=1)
    inputs, target = task.train.batch(torch.from_numpy(cut.minibatch(3, 2)))
    expected_loss = nn.functional.cross_entropy(module(inputs.float() / 8), target)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(expected_loss, list(module.parameters()))])
    assert loss == pytest.approx(expected_loss.item(), rel=1e-6)
    torch.testing.assert_close(torch.from_numpy(coded), expected, rtol=1e-5, atol=1e-7)
    assert norm == blocks.norm(coded) == pytest.approx(float(expected.norm()), rel=1e-5)


def test_retained_gradients_stay_until_they_are_evaluated_again() -> None:
    task = load_task("digits-mlp", {}, 1)
    gradients = worker(task, [0, 1], coefficients=[2.0, -0.5])
    gradients.load(*start(task))
    gradients.evaluate(0, 0, 1.0)
    with pytest.raises(PgcError, match=r"\[1\] have none"):
        gradients.coded()
    gradients.evaluate(0, 1, 1.0)
    before, _, _ = gradients.coded()
    params, buffers = start(task)
    gradients.load(params + np.float32(0.01), buffers)
    assert np.array_equal(gradients.coded()[0], before)
    gradients.evaluate(1, 0, 1.0)
    after, _, _ = gradients.coded()
    assert not np.array_equal(after, before)
    gradients.forget(1)
    with pytest.raises(PgcError, match=r"\[1\] have none"):
        gradients.coded()
    gradients.evaluate(1, 1)
    gradients.coded()


def test_an_evaluation_that_fails_leaves_no_half_gradient() -> None:
    broken = []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if broken:
            raise RuntimeError("no luck")
        return output.square().mean()

    task = Task(lambda: nn.Linear(2, 2), ArraySamples(torch.ones(8, 2), torch.zeros(8)), loss=loss)
    gradients = worker(task, [0], batch=2)
    gradients.evaluate(0, 0)
    broken.append(True)
    with pytest.raises(RuntimeError, match="no luck"):
        gradients.evaluate(1, 0)
    with pytest.raises(PgcError, match=r"\[0\] have none"):
        gradients.coded()


def test_every_evaluation_starts_from_the_buffers_that_came_with_the_step() -> None:
    task = load_task("digits-cnn", {"batchnorm": True}, 1)
    params, buffers = start(task)
    alone = []
    for partition in (0, 1):
        gradients = worker(task, [partition])
        gradients.load(params, buffers)
        gradients.evaluate(0, 0, 1.0)
        alone.append(gradients.coded()[2])
    both = worker(task, [0, 1])
    both.load(params, buffers)
    both.evaluate(0, 1, 1.0)
    both.evaluate(0, 0, 1.0)
    mean = both.coded()[2]
    floats = len(mean) - 2 * 8
    expected = np.mean([part[:floats].view(np.float32) for part in alone], axis=0, dtype=np.float64)
    assert np.array_equal(mean[:floats].view(np.float32), expected.astype(np.float32))
    assert mean[floats:].view(np.int64).tolist() == [1, 1]
    # At the next step only what was evaluated then counts, and nothing evaluated leaves the buffers as they are.
    both.load(params, buffers)
    assert np.array_equal(both.coded()[2], buffers)
    both.evaluate(0, 1, 1.0)
    assert np.array_equal(both.coded()[2], alone[1])


def test_a_model_without_buffers_sends_none() -> None:
    task = load_task("digits-mlp", {}, 1)
    gradients = worker(task, [0])
    gradients.load(*start(task))
    gradients.evaluate(0, 0, 1.0)
    assert gradients.coded()[2].size == 0


def _scramble(noise: int) -> None:
    """Leave the global streams where other work might have left them."""
    torch.manual_seed(noise)
    random.seed(noise)
    np.random.seed(noise)


def test_dropout_does_not_depend_on_how_the_samples_were_read() -> None:
    class Restless(ArraySamples):
        draws = 0

        def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
            torch.rand(self.draws)  # such as a cache that augments only what it reads for the first time
            return super().batch(indices)

    samples = Restless(torch.ones(40, 8), torch.zeros(40, dtype=torch.int64))
    task = Task(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 2)), samples)
    gradients = worker(task, [1], batch=5)
    losses = []
    for samples.draws in (0, 3):
        losses.append(gradients.evaluate(3, 0))
    assert losses[0] == losses[1]


def test_data_sets_that_augment_with_global_streams_agree_too() -> None:
    class Noisy(torch.utils.data.Dataset[tuple[Tensor, int]]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.rand(4) + random.random() + float(np.random.rand()), index % 2

    task = Task(lambda: nn.Linear(4, 2), Noisy())  # type: ignore[arg-type]
    results = []
    for noise in (1, 2):
        _scramble(noise)
        gradients = worker(task, [1], batch=5)
        _scramble(noise)
        gradients.evaluate(3, 0, 1.0)
        results.append((coded_digest(gradients), gradients.fingerprint["data"]))
    assert results[0] == results[1]


def test_one_gradient_goes_straight_into_the_room_and_several_are_summed_into_it() -> None:
    task = load_task("digits-cnn", {}, 1)
    single, pair = worker(task, [2]), worker(task, [2, 0], coefficients=[2.0, -0.5])
    parts = []
    for partition in (2, 0):
        alone = worker(task, [partition], coefficients=[1.0])
        alone.evaluate(4, 0)
        parts.append(alone.coded()[0])
    single.evaluate(4, 0)
    assert single.room.tobytes() == parts[0].tobytes()  # before it is asked for
    assert single.coded()[1] == blocks.norm(parts[0])
    for place in (1, 0):
        pair.evaluate(4, place)
        assert (pair.room == 255).all()
    coded, norm, _ = pair.coded()
    assert np.array_equal(coded, np.float32(2) * parts[0] + np.float32(-0.5) * parts[1]) and norm == blocks.norm(coded)


@pytest.mark.parametrize("coefficients", [[1.0], [2.0, -0.5]])
def test_a_room_of_half_the_size_gets_bfloat16(coefficients: list[float]) -> None:
    task = load_task("digits-cnn", {}, 1)
    gradients = worker(task, [2, 0][: len(coefficients)], coefficients=coefficients)
    room = np.empty(2 * gradients.parameter_count, np.uint8)
    for place in range(len(coefficients)):
        gradients.evaluate(4, place, 1.0, room)
    norm = gradients.encode(room, np.empty(0, np.uint8))
    for place in range(len(coefficients)):
        gradients.evaluate(4, place)
    coded, exact_norm, _ = gradients.coded()
    assert norm == exact_norm
    assert torch.equal(torch.from_numpy(room).view(torch.bfloat16), torch.from_numpy(coded).bfloat16())


def test_rooms_that_are_not_meant_are_refused() -> None:
    gradients = worker(load_task("digits-mlp", {}, 1), [0])
    gradients.evaluate(0, 0)
    with pytest.raises(PgcError, match="other memory"):
        gradients.encode(gradients.room.copy(), np.empty(0, np.uint8))
    with pytest.raises(PgcError, match="bytes: got 12"):
        gradients.encode(np.empty(12, np.uint8), np.empty(0, np.uint8))


def test_replicas_agree_wherever_their_parameters_are_in_memory() -> None:
    task = load_task("digits-mlp", {"hidden": 129}, 1)  # with one sample, a product that depends on the alignment
    params, buffers = start(task)
    digests = set()
    for offset in range(0, 64, 4):
        raw = np.empty(params.nbytes + 128, np.uint8)
        begin = -raw.ctypes.data % 64 + offset
        raw[begin : begin + params.nbytes] = params.view(np.uint8)
        gradients = worker(task, [1], batch=1)
        gradients.load(raw[begin : begin + params.nbytes], buffers)
        gradients.evaluate(1, 0)  # the first one is on a copy
        gradients.evaluate(0, 0)
        digests.add(coded_digest(gradients))
    assert len(digests) == 1


def test_a_worker_computes_on_memory_that_it_cannot_write(tmp_path: Path) -> None:
    task = load_task("digits-cnn", RANDOM_ARGS, 1)
    params, buffers = start(task)
    (tmp_path / "params").write_bytes(params.tobytes())
    mapped = np.memmap(tmp_path / "params", np.uint8, "r")
    one, other = worker(task, [1, 2]), worker(task, [1, 2])
    for step in range(2):
        one.load(mapped, buffers)
        other.load(params.tobytes(), buffers)
        for place in (0, 1):
            assert one.evaluate(step, place) == other.evaluate(step, place)
        assert coded_digest(one) == coded_digest(other)


class Writing(nn.Module):
    """Keeps its weights small by itself, in one of two ways."""

    def __init__(self, *, by_data: bool) -> None:
        super().__init__()
        self.layer, self.by_data = nn.Linear(2, 2), by_data

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            (self.layer.weight.data if self.by_data else self.layer.weight).clamp_(-0.01, 0.01)
        return self.layer(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("by_data", [True, False])
def test_a_model_that_writes_to_its_parameters_is_refused_and_does_not_get_at_them(by_data: bool) -> None:
    task = Task(lambda: Writing(by_data=by_data), ArraySamples(torch.ones(8, 2), torch.zeros(8, dtype=torch.int64)))
    gradients = worker(task, [0], batch=2)
    params, buffers = start(task)
    kept = params.copy()
    gradients.load(params, buffers)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"optimizer's step alone: Writing writes"):
            gradients.evaluate(0, 0)
    assert np.array_equal(params, kept) and np.array_equal(gradients._gradient._flat.params.numpy(), kept)


def test_wrong_sizes_are_a_wire_error_and_wrong_losses_the_users() -> None:
    task = load_task("digits-mlp", {}, 1)
    gradients = worker(task, [0])
    params, buffers = start(task)
    with pytest.raises(WireError, match="parameters take"):
        gradients.load(params[1:], buffers)
    with pytest.raises(WireError, match="buffers take 0 bytes: got 4"):
        gradients.load(params, b"1234")
    vector = Task(task.model, task.train, loss=lambda output, target: output.sum(1), transform=task.transform)
    with pytest.raises(ConfigError, match=r"a scalar tensor: got shape \(20,\)"):
        worker(vector, [0]).evaluate(0, 0, 1.0)


def test_fingerprints_tell_what_differs() -> None:
    mine = worker(load_task("digits-cnn", {}, 1), [0]).fingerprint
    assert set(mine) == {"model", "data", "torch", "device"} and mine["device"] == "cpu"
    assert mine["data"].startswith("1438 samples, ")
    assert worker(load_task("digits-cnn", {}, 1), [3, 1]).fingerprint == mine
    other_model = worker(load_task("digits-cnn", {"batchnorm": True}, 1), [0]).fingerprint
    assert other_model["model"] != mine["model"] and other_model["data"] == mine["data"]
    other_data = worker(load_task("digits-cnn", {}, 2), [0]).fingerprint
    assert other_data["data"] != mine["data"] and other_data["model"] == mine["model"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused() -> None:
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        resolve_device("cuda")
