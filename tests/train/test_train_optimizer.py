import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from roomed import Roomed
from torch import nn

from pgczmq.config import OptimizerConfig
from pgczmq.errors import ConfigError, WireError
from pgczmq.train import blocks, half
from pgczmq.train.data import ArraySamples, Partitions
from pgczmq.train.evaluate import Evaluator
from pgczmq.train.flat import build_model
from pgczmq.train.optimizer import Learner, Message, Update, learning_rate
from pgczmq.train.task import Task, load_task

N = 4


def cluster(task: Task, batch: int = 20) -> list[Roomed]:
    cut = Partitions(len(task.train), N, batch_size=batch, seed=1)
    return [Roomed(task, held=[j], coefficients=[1.0], partitions=cut, seed=1) for j in range(N)]


def train(learner: Learner, workers: Sequence[Roomed], steps: range) -> list[Update]:
    """Plain distributed gradient descent: every worker, each with weight 1/n."""
    updates = []
    for step in steps:
        params, buffers = learner.snapshot()
        messages: list[Message] = []
        for number, gradients in reversed(list(enumerate(workers))):
            gradients.load(params, buffers)
            gradients.evaluate(step, 0, 1.0)
            coded, _, packed = gradients.coded()
            messages.append((number, 1 / N, coded.tobytes(), packed.tobytes()))
        updates.append(learner.apply(step, messages))
    return updates


OPTIMIZERS = [
    OptimizerConfig(lr=0.1),
    OptimizerConfig(lr=0.1, momentum=0.9, weight_decay=0.01, schedule="cosine", warmup=3),
    OptimizerConfig(name="adam", lr=0.003, weight_decay=0.01),
    OptimizerConfig(name="adamw", lr=0.003, weight_decay=0.1, schedule="step", step_every=4),
]


def plain(config: OptimizerConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if config.name == "sgd":
        return torch.optim.SGD(
            parameters, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, foreach=False
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.name]
    return kind(parameters, config.lr, weight_decay=config.weight_decay, foreach=False)


@pytest.mark.parametrize("config", OPTIMIZERS, ids=lambda config: f"{config.name}-{config.schedule}")
def test_dgd_is_a_single_process_training_loop(config: OptimizerConfig) -> None:
    task = load_task("digits-mlp", {}, 1)
    learner = Learner(task, config=config, steps=12, seed=1)
    module = build_model(task, 1).module
    optimizer = plain(config, list(module.parameters()))
    cut = Partitions(len(task.train), N, batch_size=20, seed=1)
    for step in range(12):
        chosen = np.concatenate([cut.minibatch(partition, step) for partition in range(N)])
        inputs, target = task.train.batch(torch.from_numpy(chosen))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs.float() / 8), target).backward()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, 12)
        optimizer.step()
    updates = train(learner, cluster(task), range(12))
    assert all(update.finite for update in updates)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    # Adam divides by gradients near 0 in its first steps, which enlarges the rounding of their sum.
    tolerance = 1e-6 if config.name == "sgd" else 1e-4
    assert np.linalg.norm(learner.snapshot()[0] - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("config", OPTIMIZERS, ids=lambda config: f"{config.name}-{config.schedule}")
def test_the_fused_optimizer_is_the_plain_one_on_equal_estimates(config: OptimizerConfig) -> None:
    learner = quadratic(config)
    reference = nn.Parameter(torch.from_numpy(learner.snapshot()[0].copy()))
    optimizer = plain(config, [reference])
    rng = np.random.default_rng(0)
    for step in range(10):
        gradient = rng.standard_normal(3, dtype=np.float32)
        reference.grad = torch.from_numpy(gradient.copy())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, 10)
        optimizer.step()
        learner.apply(step, [(0, 1.0, gradient, b"")])
    np.testing.assert_allclose(learner.snapshot()[0], reference.detach().numpy(), rtol=2e-6, atol=1e-7)


def quadratic(config: OptimizerConfig | None = None) -> Learner:
    task = Task(lambda: nn.Linear(2, 1), ArraySamples(torch.zeros(4, 2), torch.zeros(4)))
    return Learner(task, config=config or OptimizerConfig(lr=0.5), steps=10, seed=3)


WIDE = 2 * blocks.BLOCK + 5


def wide(threads: int) -> Learner:
    """A model of several blocks."""
    task = Task(lambda: nn.Linear(WIDE, 1, bias=False), ArraySamples(torch.zeros(4, 2), torch.zeros(4)))
    return Learner(task, config=OptimizerConfig(lr=0.1, momentum=0.9), steps=10, seed=3, threads=threads)


def message(worker: int, weight: float, *values: float) -> Message:
    return worker, weight, np.array(values, np.float32).tobytes(), b""


def test_plain_sgd_is_params_minus_lr_times_estimate() -> None:
    learner = quadratic()
    before = learner.snapshot()[0]
    update = learner.apply(0, [message(3, 0.5, 4, 0, 2), message(0, 0.25, 4, 8, 0)])
    assert np.array_equal(learner.snapshot()[0], before - np.float32(0.5) * np.array([3, 2, 1], np.float32))
    assert update == Update(True, (), pytest.approx(math.sqrt(14)))


def test_messages_are_summed_by_worker_number_in_whatever_order_they_came() -> None:
    rng = np.random.default_rng(0)
    messages = [(worker, 0.1 * worker + 0.05, rng.standard_normal(3, dtype=np.float32), b"") for worker in range(6)]
    digests = set()
    for order in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]):
        learner = quadratic()
        learner.apply(0, [messages[i] for i in order])
        digests.add(learner.sha256())
    assert len(digests) == 1
    estimate = np.zeros(3, np.float32)
    for _, weight, vector, _ in messages:
        estimate += np.float32(weight) * vector
    assert np.array_equal(learner._estimate.numpy(), estimate)


def test_messages_that_are_not_finite_are_named_and_nothing_is_applied() -> None:
    for config in (OptimizerConfig(), OptimizerConfig(momentum=0.9), OptimizerConfig(name="adam")):
        learner, untouched = quadratic(config), quadratic(config)
        good = message(0, 0.5, 1, 2, 3)
        bad = learner.apply(0, [message(5, 0.1, 1, math.inf, 1), good, message(2, 0.1, math.nan, 1, 1)])
        assert not bad.finite and bad.culprits == (2, 5) and not math.isfinite(bad.norm)
        assert learner.sha256() == untouched.sha256()
        for one in (learner, untouched):
            one.apply(0, [good])
        assert learner.sha256() == untouched.sha256()  # neither moments nor step counts moved


def test_a_sum_that_overflows_has_no_culprit() -> None:
    learner = quadratic()
    before = learner.sha256()
    huge = float(np.finfo(np.float32).max)
    update = learner.apply(0, [message(0, 1, huge, 0, 0), message(1, 1, huge, 0, 0)])
    assert (update.finite, update.culprits, update.norm) == (False, (), math.inf)
    assert learner.sha256() == before


def test_parameters_that_overflow_are_noticed() -> None:
    learner = quadratic(OptimizerConfig(lr=1e6))
    update = learner.apply(0, [message(0, 1, 1e38, 0, 0)])
    assert (update.finite, update.culprits) == (False, ()) and math.isfinite(update.norm)


def test_buffers_are_averaged_by_worker_number_and_checked() -> None:
    task = load_task("digits-cnn", {"batchnorm": True}, 1)
    learner = Learner(task, config=OptimizerConfig(), steps=10, seed=1)
    zero = np.zeros(learner.parameter_count, np.float32)
    floats = (2 * 16 + 2 * 32) * 4

    def packed(value: float, count: int) -> bytes:
        return np.full(floats // 4, value, np.float32).tobytes() + np.full(2, count, np.int64).tobytes()

    learner.apply(0, [(3, 0.5, zero, packed(2, 9)), (1, 0.1, zero, packed(1, 4))])
    buffers = learner.snapshot()[1]
    assert np.all(buffers[:floats].view(np.float32) == 1.5)
    assert buffers[floats:].copy().view(np.int64).tolist() == [4, 4]
    update = learner.apply(1, [(3, 0.5, zero, packed(2, 9)), (1, 0.1, zero, packed(math.nan, 4))])
    assert (update.finite, update.culprits) == (False, (1,))
    assert np.array_equal(learner.snapshot()[1], buffers)


class Masked(nn.Linear):
    """With a causal mask among its buffers, as models of language have it."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("mask", torch.triu(torch.full((4, 4), -math.inf), 1))
        self.register_buffer("hole", torch.tensor([math.nan, 1.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores = inputs.unsqueeze(2) * inputs.unsqueeze(1) + self.get_buffer("mask")
        return super().forward((scores.softmax(-1) @ inputs.unsqueeze(2)).squeeze(2))


def test_a_buffer_that_never_was_finite_stays_as_it_is_and_spoils_nothing() -> None:
    task = Task(Masked, ArraySamples(torch.randn(80, 4), torch.arange(80) % 4))
    learner = Learner(task, config=OptimizerConfig(lr=0.1), steps=3, seed=1)
    before = learner.snapshot()[1]
    updates = train(learner, cluster(task), range(3))
    assert [(update.finite, update.culprits) for update in updates] == [(True, ())] * 3
    assert np.array_equal(learner.snapshot()[1], before)
    zero = np.zeros(learner.parameter_count, np.float32)
    for place, wrong in ((0, math.inf), (1, math.inf), (1, math.nan), (17, math.nan)):
        changed = before.copy().view(np.float32)
        changed[place] = wrong
        update = learner.apply(3, [(0, 0.5, zero, before), (1, 0.5, zero, changed.view(np.uint8))])
        assert (update.finite, update.culprits) == (False, (1,)), (place, wrong)


def test_a_message_of_the_wrong_size_is_a_wire_error() -> None:
    learner = quadratic()
    before = learner.sha256()
    for wrong in (message(0, 1, 1, 2), (0, 1.0, bytes(12), b"1")):
        with pytest.raises(WireError):
            learner.apply(0, [message(1, 1, 1, 2, 3), wrong])
    assert learner.sha256() == before


def test_a_snapshot_does_not_change_with_the_next_step() -> None:
    learner = quadratic()
    params, _ = learner.snapshot()
    kept = params.copy()
    learner.apply(0, [message(0, 1, 1, 2, 3)])
    assert np.array_equal(params, kept) and not params.flags.writeable


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_folding_changes_the_order_of_addition_and_nothing_else(threads: int) -> None:
    rng = np.random.default_rng(0)
    vectors = list(rng.standard_normal((4, WIDE), dtype=np.float32))
    messages = [(worker, 0.25, vector, b"") for worker, vector in enumerate(vectors)]
    learner, plain = wide(threads), wide(1)
    for step in range(3):
        learner.fold(step, [(2, vectors[2])])
        learner.fold(step, [(0, vectors[0]), (3, vectors[3].tobytes())])
        update = learner.apply(step, messages)
        plain.apply(step, messages)
        folded = np.float32(0.25) * (vectors[2] + vectors[0] + vectors[3])
        assert np.array_equal(learner._estimate.numpy(), folded + np.float32(0.25) * vectors[1])
        assert update.finite and update.norm == pytest.approx(np.linalg.norm(learner._estimate.numpy()), rel=1e-5)
    np.testing.assert_allclose(learner.snapshot()[0], plain.snapshot()[0], atol=1e-6)


def test_no_bit_depends_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    messages = [(worker, 0.1 * worker + 0.1, rng.standard_normal(WIDE, dtype=np.float32), b"") for worker in range(4)]
    digests, norms = set(), set()
    for threads in (1, 2, 3):
        learner = wide(threads)
        norms.add(tuple(learner.apply(step, messages).norm for step in range(2)))
        digests.add(learner.sha256())
    assert len(digests) == len(norms) == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_folded_message_that_is_not_finite_is_named_and_the_others_are_applied_as_if_it_had_not_come(
    odd: float,
) -> None:
    learner, fresh = quadratic(), quadratic()
    good = [message(0, 0.5, 1, 2, 3), message(2, 0.5, 4, 5, 7)]
    bad = message(1, 0.5, 1, odd, 1)
    learner.fold(0, [(worker, gradient) for worker, _, gradient, _ in (good[1], bad)])
    update = learner.apply(0, [*good, bad])
    assert (update.finite, update.culprits) == (False, (1,)) and learner.sha256() == fresh.sha256()
    assert learner.apply(0, good).finite and fresh.apply(0, good).finite
    assert learner.sha256() == fresh.sha256()


def test_a_folded_message_of_a_wrong_size_is_a_wire_error_and_none_is_added() -> None:
    learner = quadratic()
    good = [message(worker, 0.5, 1, 2, 3) for worker in range(2)]
    learner.fold(0, [(0, good[0][2])])
    with pytest.raises(WireError):
        learner.fold(0, [(1, good[1][2]), (2, bytes(8))])
    learner.apply(0, good)
    assert np.array_equal(learner._estimate.numpy(), [1, 2, 3])


def test_gradients_are_float32_or_bfloat16_by_their_size() -> None:
    learner, other = quadratic(), quadratic()
    values = np.array([1.5, -2.0, 0.375], np.float32)  # exact in either
    narrow = np.empty(3, np.uint16)
    half.to_bfloat16(values, narrow)
    learner.fold(0, [(1, narrow.tobytes())])
    learner.apply(0, [(0, 0.5, narrow.tobytes(), b""), (1, 0.5, narrow.tobytes(), b""), (2, 0.5, values, b"")])
    other.apply(0, [(worker, 0.5, values, b"") for worker in range(3)])
    assert learner.sha256() == other.sha256()
    half.to_bfloat16(np.array([1, math.nan, 1], np.float32), narrow)
    update = learner.apply(1, [(0, 0.5, values, b""), (4, 0.5, narrow, b"")])
    assert (update.finite, update.culprits) == (False, (4,))


@pytest.mark.parametrize("threads", [1, 2])
def test_parameters_are_written_as_float32_or_bfloat16_by_the_size_of_the_memory(threads: int) -> None:
    learner = wide(threads)
    params, _ = learner.snapshot()
    memory, narrow, none = np.empty(4 * WIDE, np.uint8), np.empty(2 * WIDE, np.uint8), np.empty(0, np.uint8)
    learner.write(memory, none)
    assert np.array_equal(memory.view(np.float32), params)
    learner.write(narrow, none)
    expected = np.empty(WIDE, np.uint16)
    half.to_bfloat16(params.copy(), expected)
    assert np.array_equal(narrow.view(np.uint16), expected)
    with pytest.raises(WireError):
        learner.write(memory[4:], none)


def test_buffers_are_written_beside_the_parameters() -> None:
    learner = Learner(load_task("digits-cnn", {"batchnorm": True}, 1), config=OptimizerConfig(), steps=10, seed=1)
    memory, buffers = np.empty(4 * learner.parameter_count, np.uint8), np.empty(learner.buffer_bytes, np.uint8)
    learner.write(memory, buffers)
    assert buffers.size == (2 * 16 + 2 * 32) * 4 + 2 * 8 and np.array_equal(buffers, learner.snapshot()[1])


def test_learning_rates() -> None:
    def rates(steps: int, **keys: object) -> list[float]:
        config = OptimizerConfig.model_validate({"lr": 2.0, **keys})
        return [learning_rate(config, step, steps) for step in range(steps)]

    assert rates(3) == [2, 2, 2]
    assert rates(5, warmup=4) == [0.5, 1, 1.5, 2, 2]
    assert rates(4, schedule="cosine") == pytest.approx([2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5)])
    assert rates(6, schedule="cosine", warmup=2)[:4] == pytest.approx([1, 2, 2, 1 + math.sqrt(0.5)])
    assert rates(5, schedule="step", step_every=2, step_factor=0.5) == [2, 2, 1, 1, 0.5]
    assert all(rate > 0 for rate in rates(3, schedule="cosine", warmup=10))


def test_an_evaluation_is_of_the_whole_test_set_and_leaves_no_trace() -> None:
    task = load_task("digits-cnn", {"batchnorm": True, "dropout": 0.5, "augment": True}, 1)
    learner = Learner(task, config=OptimizerConfig(lr=0.05), steps=40, seed=1)
    evaluator = Evaluator(task, 1)
    loss, accuracy = evaluator.evaluate(*learner.snapshot())
    train(learner, cluster(task), range(40))
    better, higher = evaluator.evaluate(*learner.snapshot())
    assert accuracy is not None and higher is not None and better < loss and higher > accuracy
    assert evaluator.evaluate(*learner.snapshot()) == (better, higher)
    assert task.test is not None
    module = learner._flat.module.eval()
    inputs, target = task.test.batch(torch.arange(len(task.test)))
    with torch.inference_mode():
        output = module(inputs.float() / 8)
    assert better == pytest.approx(float(nn.functional.cross_entropy(output, target)), rel=1e-5)
    assert higher == pytest.approx(float((output.argmax(1) == target).double().mean()))


def test_there_may_be_no_metric_but_there_must_be_test_data() -> None:
    task = load_task("linear-regression", {"samples": 50}, 1)
    loss, metric = Evaluator(task, 1).evaluate(*build_model(task, 1).snapshot())
    assert loss > 0 and metric is None
    with pytest.raises(ConfigError, match="no test set"):
        Evaluator(Task(task.model, task.train), 1)


@pytest.mark.parametrize("config", OPTIMIZERS, ids=lambda config: f"{config.name}-{config.schedule}")
def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(config: OptimizerConfig, tmp_path: Path) -> None:
    task = load_task("digits-cnn", {"batchnorm": True, "dropout": 0.2}, 1)
    learner = Learner(task, config=config, steps=8, seed=1)
    train(learner, cluster(task), range(4))
    learner.write_files(tmp_path, learner.checkpoint_state())
    train(learner, cluster(task), range(4, 8))
    resumed = Learner(task, config=config, steps=8, seed=1)
    resumed.restore(tmp_path)
    train(resumed, cluster(task), range(4, 8))
    assert resumed.sha256() == learner.sha256()
    assert np.array_equal(resumed.snapshot()[1], learner.snapshot()[1])


def test_another_optimizer_or_model_is_refused(tmp_path: Path) -> None:
    saved = quadratic()
    saved.write_files(tmp_path, saved.checkpoint_state())
    with pytest.raises(ConfigError, match=r"optimizer.name = sgd, the configuration has adam"):
        quadratic(OptimizerConfig(name="adam")).restore(tmp_path)
    other = Learner(load_task("digits-mlp", {}, 1), config=OptimizerConfig(), steps=1, seed=1)
    with pytest.raises(ConfigError, match="weights are of another model"):
        other.restore(tmp_path)
