import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from pgczmq.errors import ConfigError, PgcError
from pgczmq.train.data import ArraySamples, DatasetSamples, HeldSamples, Partitions, adapt
from pgczmq.train.task import Task


@st.composite
def cuts(draw: st.DrawFn) -> Partitions:
    count = draw(st.integers(1, 12))
    samples = draw(st.integers(count, 200))
    batch = draw(st.integers(1, samples // count))
    return Partitions(samples, count, batch_size=batch, seed=draw(st.integers(0, 2**63 - 1)))


@given(cuts())
@settings(max_examples=60, deadline=None)
def test_partitions_cover_the_samples_once_and_differ_in_size_by_at_most_one(cut: Partitions) -> None:
    parts = [cut.indices(partition) for partition in range(cut.count)]
    assert sorted(np.concatenate(parts)) == list(range(cut.samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(cuts(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_an_epoch_draws_no_sample_twice_and_only_from_the_partition(cut: Partitions, epoch: int) -> None:
    length = cut.steps_per_epoch
    for partition in range(cut.count):
        batches = [cut.minibatch(partition, epoch * length + place) for place in range(length)]
        drawn = np.concatenate(batches)
        assert {len(batch) for batch in batches} == {cut.batch_size}
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= set(cut.indices(partition))


def test_the_partition_is_seen_whole_when_the_batch_divides_it() -> None:
    cut = Partitions(60, 3, batch_size=5, seed=1)
    drawn = np.concatenate([cut.minibatch(2, step) for step in range(4, 8)])
    assert sorted(drawn) == sorted(cut.indices(2))


def test_minibatches_do_not_depend_on_what_was_asked_before() -> None:
    forward, backward = (Partitions(100, 4, batch_size=7, seed=5) for _ in range(2))
    asked = [(partition, step) for partition in range(4) for step in (0, 9, 3, 4)]
    one = {key: forward.minibatch(*key).tolist() for key in asked}
    other = {key: backward.minibatch(*key).tolist() for key in reversed(asked)}
    assert one == other


def test_epochs_and_partitions_are_shuffled_each_in_its_own_way() -> None:
    cut = Partitions(100, 2, batch_size=50, seed=5)
    assert cut.minibatch(0, 0).tolist() != cut.minibatch(0, 1).tolist()
    assert set(cut.minibatch(0, 0)) == set(cut.minibatch(0, 1))
    assert cut != Partitions(100, 2, batch_size=50, seed=6)


def test_fixed_batch_is_slice_0_of_epoch_0_at_every_step() -> None:
    fixed = Partitions(100, 4, batch_size=7, sampler="fixed-batch", seed=5)
    first = Partitions(100, 4, batch_size=7, seed=5).minibatch(1, 0)
    assert all(np.array_equal(fixed.minibatch(1, step), first) for step in (0, 1, 17))


@pytest.mark.parametrize(("fraction", "size"), [(1.0, 10), (0.3, 3), (0.1 * 3, 3), (0.31, 4), (1e-12, 1), (0.95, 10)])
def test_a_batch_fraction_takes_the_first_samples_rounded_up(fraction: float, size: int) -> None:
    cut = Partitions(100, 4, batch_size=10, seed=5)
    assert cut.minibatch(1, 2, batch_fraction=fraction).tolist() == cut.minibatch(1, 2).tolist()[:size]


def test_a_minibatch_is_the_callers_own() -> None:
    cut = Partitions(20, 2, batch_size=5, seed=5)
    cut.minibatch(0, 0)[:] = -1
    assert cut.minibatch(0, 0).min() >= 0
    with pytest.raises(ValueError, match="read-only"):
        cut.indices(0)[0] = 3


@pytest.mark.parametrize(("samples", "advice"), [(70, "Use at most 8."), (5, "Use at most workers = 5.")])
def test_a_batch_that_does_not_fit_is_refused_with_what_does(samples: int, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        Partitions(samples, 8, batch_size=9, seed=1)


def test_user_data_is_adapted() -> None:
    inputs, targets = torch.arange(12.0).view(6, 2), torch.arange(6)
    chosen = torch.tensor([4, 1])
    for data in (TensorDataset(inputs, targets), list(zip(inputs, targets.tolist(), strict=True))):
        task = Task(lambda: torch.nn.Linear(2, 6), data)  # type: ignore[arg-type]
        got_inputs, got_targets = task.train.batch(chosen)
        assert torch.equal(got_inputs, inputs[chosen]) and torch.equal(got_targets, targets[chosen])
    samples = ArraySamples(inputs, targets)
    assert adapt(samples) is samples


def test_python_floats_as_targets_become_float32() -> None:
    _, targets = DatasetSamples([(torch.zeros(2), 0.5), (torch.zeros(2), 1.5)]).batch(torch.tensor([1, 0]))
    assert targets.dtype == torch.float32 and targets.tolist() == [1.5, 0.5]


def test_data_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="map-style torch Dataset"):
        adapt(iter([1, 2]))
    with pytest.raises(ConfigError, match=r"is \(input, target\).*Got \(Tensor\[2\], int, int\)"):
        DatasetSamples([(torch.zeros(2), 1, 2)]).batch(torch.tensor([0]))
    with pytest.raises(ConfigError, match="3 inputs and 2 targets"):
        ArraySamples(torch.zeros(3), torch.zeros(2))


def test_held_samples_keep_their_own_and_give_back_the_rest() -> None:
    inputs = torch.arange(40, dtype=torch.uint8).reshape(20, 2)
    samples = HeldSamples(inputs, torch.arange(20))
    samples.hold(torch.tensor([3, 5, 11]))
    images, targets = samples.batch(torch.tensor([11, 3]))
    assert targets.tolist() == [11, 3]
    assert torch.equal(images, inputs[[11, 3]])
    assert len(samples) == 20
    assert samples._inputs.untyped_storage().nbytes() == 6
    with pytest.raises(PgcError, match="does not hold sample 4"):
        samples.batch(torch.tensor([3, 4]))
