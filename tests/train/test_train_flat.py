import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pgczmq.errors import ConfigError, WireError
from pgczmq.train.data import ArraySamples
from pgczmq.train.flat import FlatModel, build_model
from pgczmq.train.task import Task


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.middle = nn.Linear(3, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.middle(self.embed(tokens))))


def batchnorm() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def test_parameters_are_views_in_order_and_tied_ones_count_once() -> None:
    module = Tied()
    expected = torch.cat([module.embed.weight.reshape(-1), module.middle.weight.reshape(-1), module.middle.bias])
    flat = FlatModel(module)
    assert len(flat) == 15 + 9 + 3
    assert flat.names() == ["embed.weight", "middle.weight", "middle.bias"]
    assert torch.equal(flat.params, expected.detach())
    flat.params.fill_(2)
    assert bool((module.out.weight == 2).all()) and bool((module.middle.bias == 2).all())


def test_tied_weights_are_one_tensor_in_the_state_dict() -> None:
    state = FlatModel(Tied()).state_dict()
    assert list(state) == ["embed.weight", "middle.weight", "middle.bias", "out.weight"]
    assert state["embed.weight"] is state["out.weight"]
    assert state["middle.weight"].untyped_storage().nbytes() == 36


def test_backward_accumulates_straight_into_the_attached_vector() -> None:
    reference, module = Tied(), Tied()
    flat = FlatModel(module)
    module.load_state_dict(reference.state_dict())
    gradient = torch.zeros_like(flat.params)
    flat.attach_gradient(gradient)
    tokens = torch.tensor([0, 1, 4])
    for model in (reference, module):
        nn.functional.cross_entropy(model(tokens), tokens).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in reference.parameters() if p.grad is not None])
    assert torch.equal(gradient, expected) and bool(gradient.any())


def test_frozen_parameters_stay_out_but_are_saved_and_fingerprinted() -> None:
    def build(value: float) -> FlatModel:
        module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        module[0].requires_grad_(False)
        module[0].weight.data.fill_(value)
        return FlatModel(module)

    assert build(1).names() == ["1.weight", "1.bias"]
    assert "0.weight" in build(1).state_dict()
    assert build(1).fingerprint() != build(2).fingerprint()


def test_the_fingerprint_is_of_names_and_shapes_and_not_of_trained_values() -> None:
    assert FlatModel(nn.Linear(2, 3)).fingerprint() == FlatModel(nn.Linear(2, 3)).fingerprint()
    others = [nn.Linear(3, 2), nn.Linear(2, 3, bias=False), nn.Sequential(nn.Linear(2, 3)), nn.Bilinear(1, 2, 3)]
    assert len({FlatModel(module).fingerprint() for module in [nn.Linear(2, 3), *others]}) == 5


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Embedding(4, 2, sparse=True), "gradients are dense.*sparse=True"),
        (nn.Sequential(nn.Linear(1, 1), nn.BatchNorm2d(3, momentum=None)), "1 has momentum=None"),
        (nn.Linear(2, 2).double(), "torch.float64 in weight"),
        (nn.Linear(2, 2).requires_grad_(False), "no parameter to train"),
        (nn.Sequential(nn.LazyLinear(3)), "0.weight has no shape"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(module: nn.Module, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FlatModel(module)


def test_buffers_of_other_kinds_are_refused_unless_they_stay_at_home() -> None:
    module = nn.Linear(1, 1)
    module.register_buffer("rough", torch.zeros(2, dtype=torch.float16))
    with pytest.raises(ConfigError, match=r"torch.float16 in rough.*persistent=False"):
        FlatModel(module)
    module = nn.Linear(1, 1)
    module.register_buffer("rough", torch.zeros(2, dtype=torch.float16), persistent=False)
    assert FlatModel(module).buffers.nbytes == 0


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (torch.zeros(3).expand(2, 3), r"of its own: table repeats some, .*clone\(\)"),
        (torch.eye(3).to_sparse(), r"sparse_coo in table.*to_dense\(\)"),
    ],
)
def test_buffers_that_cannot_be_written_one_by_one_are_refused(buffer: torch.Tensor, words: str) -> None:
    module = nn.Linear(1, 1)
    module.register_buffer("table", buffer)
    with pytest.raises(ConfigError, match=words):
        FlatModel(module)
    module = nn.Linear(1, 1)
    module.register_buffer("table", torch.zeros(3, 1).expand(3, 1).expand(1, 3, 1))
    assert FlatModel(module).buffers.nbytes == 12


def test_buffers_travel_as_floats_and_then_whole_numbers() -> None:
    flat = FlatModel(batchnorm())
    flat.module(torch.randn(8, 4))
    packed = flat.buffers.gather()
    layer = flat.module[1]  # type: ignore[index]
    assert packed.nbytes == 2 * 3 * 4 + 8
    assert np.array_equal(packed[:12].view(np.float32), layer.running_mean.numpy())
    assert packed[24:].copy().view(np.int64).tolist() == [1]
    other = FlatModel(batchnorm())
    other.buffers.restore(packed.tobytes())
    assert np.array_equal(other.buffers.gather(), packed)


def test_buffers_that_a_module_replaces_are_found_again() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.register_buffer("odd", torch.zeros(1))  # 4 bytes: the whole number after it is not aligned
            self.register_buffer("count", torch.tensor(0, dtype=torch.int32))

        def forward(self) -> None:
            self.count = self.count + 1

    flat = FlatModel(Counting())
    flat.module()
    packed = flat.buffers.gather()
    flat.module()
    flat.buffers.restore(packed)
    assert flat.module.count == 1 and flat.module.count.dtype == torch.int32


def test_averages_take_floats_from_all_and_whole_numbers_from_the_first() -> None:
    flat = FlatModel(batchnorm())
    sets = []
    for mean, count in ((1e8, 7), (1.0, 5), (-1e8, 9)):
        flat.module[1].running_mean.fill_(mean)  # type: ignore[index]
        flat.module[1].num_batches_tracked.fill_(count)  # type: ignore[index]
        sets.append(flat.buffers.gather())
    average = flat.buffers.average(sets)
    assert np.all(average[:12].view(np.float32) == np.float32(1 / 3))  # in float32 the 1 would be lost
    assert average[24:].copy().view(np.int64).tolist() == [7]
    assert np.array_equal(flat.buffers.average(sets[:1]), sets[0])


def test_sizes_that_are_wrong_are_a_wire_error() -> None:
    flat = FlatModel(batchnorm())
    with pytest.raises(WireError, match="29 parameters takes 116 bytes: got 8"):
        flat.load(bytes(8))
    with pytest.raises(WireError, match="take 32 bytes: got 31"):
        flat.buffers.restore(bytes(31))


def test_a_snapshot_is_read_only_and_loads_elsewhere_to_the_same_bits() -> None:
    flat, other = FlatModel(batchnorm()), FlatModel(batchnorm())
    params, buffers = flat.snapshot()
    flat.params.zero_()
    with pytest.raises(ValueError, match="read-only"):
        params[0] = 1
    other.params.zero_()
    other.load(memoryview(params))
    other.buffers.restore(buffers)
    assert np.array_equal(other.params.numpy(), params) and params.any()


def at_offset(values: np.ndarray, nbytes: int) -> np.ndarray:
    """The same bytes in memory that begins so far behind a multiple of 64, and cannot be written."""
    raw = np.empty(values.nbytes + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + nbytes
    raw[begin : begin + values.nbytes] = values.view(np.uint8)
    raw.setflags(write=False)
    return raw[begin : begin + values.nbytes]


def test_parameters_are_used_where_they_are_unless_they_are_not_aligned() -> None:
    flat = FlatModel(batchnorm())
    params = np.arange(len(flat), dtype=np.float32)
    aligned = at_offset(params, 0)
    flat.load(aligned)
    first = flat.module.get_parameter("0.weight")
    assert first.data_ptr() == aligned.ctypes.data and np.array_equal(flat.params.numpy(), params)
    for offset in (16, 1, 4):
        given = at_offset(params + np.float32(offset), offset)
        flat.load(given.data)
        assert first.data_ptr() == flat.params.data_ptr() != given.ctypes.data and first.data_ptr() % 64 == 0
        assert np.array_equal(flat.params.numpy(), params + np.float32(offset))
    flat.load(aligned)
    assert first.data_ptr() == aligned.ctypes.data and np.array_equal(aligned.view(np.float32), params)


@pytest.mark.parametrize("offset", [0, 1])
def test_bfloat16_parameters_are_widened(offset: int) -> None:
    flat = FlatModel(batchnorm())
    exact = torch.randn(len(flat)).bfloat16()
    given = at_offset(exact.view(torch.int16).numpy(), offset)
    flat.load(given)
    assert torch.equal(flat.params, exact.float())


def test_a_model_that_rewrites_its_embeddings_is_refused() -> None:
    with pytest.raises(ConfigError, match="Leave out max_norm"):
        FlatModel(nn.Embedding(4, 2, max_norm=1.0))


def test_a_model_is_built_from_the_seed_alone_and_leaves_the_global_stream_alone() -> None:
    task = Task(lambda: nn.Linear(4, 4), ArraySamples(torch.zeros(1, 4), torch.zeros(1)))
    torch.manual_seed(1)
    first = build_model(task, 5).params
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(first, build_model(task, 5).params)
    assert not torch.equal(first, build_model(task, 6).params)
    with pytest.raises(ConfigError, match="got int"):
        build_model(Task(lambda: 3, task.train), 5)  # type: ignore[arg-type, return-value]
