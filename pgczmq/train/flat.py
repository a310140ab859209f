"""A module whose trainable parameters are views into one flat float32 tensor, [P] in the comments below."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from pgczmq.core import seeds
from pgczmq.errors import ConfigError, WireError
from pgczmq.extensions import reason
from pgczmq.train import half
from pgczmq.train.blocks import Buffer, ByteArray, FloatArray
from pgczmq.train.buffers import ModuleBuffers
from pgczmq.train.task import Task

_RUNNING_STATISTICS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


ALIGNMENT = 64
"""Bytes: torch's own memory begins at a multiple."""


class FlatModel:
    """A module and its parameters as one vector, in the order of ``named_parameters()``.

    Tied weights are in the vector once, frozen ones (``requires_grad`` False) not at all.

    Attributes:
        module: the module itself, on the device; its parameters are views into ``params``.
        params: float32 [P] on the device; another tensor after ``load``.
        buffers: gathers and restores the module's persistent buffers.

    Raises:
        ConfigError: the module cannot be trained this way; the text says why.
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        _refuse_what_cannot_be_flat(module)
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self._named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.params = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters()])
        self._layout = _layout(self.params, [parameter.shape for parameter in self._parameters()])
        self.attach_parameters(self.params)
        self.buffers = ModuleBuffers(module)
        self._own: Tensor | None = None  # float32 [P] in the host's memory, for what cannot be used where it is

    def __len__(self) -> int:
        return self.params.numel()

    def load(self, params: Buffer) -> None:
        """Compute at these parameters from now on: float32 or bfloat16 [P], as bytes.

        On the CPU the module computes on this very memory if it is float32 and aligned as torch's own: it must not
        change until others are loaded. Otherwise it is copied, because the order in which a library for matrices
        adds depends on the alignment, and replicas on other workers must agree to the bit.

        Raises:
            WireError: the number of bytes is not that of the parameters.
        """
        given = self._in_host_memory(params)
        if self.device.type == "cpu":
            self.attach_parameters(given)
        else:
            self.params.copy_(given)

    def _in_host_memory(self, params: Buffer) -> Tensor:
        raw = np.frombuffer(params, np.uint8)
        if raw.size == 2 * len(self):
            own = self._own_memory()
            half.from_bfloat16(raw.view(np.uint16), own.numpy())
            return own
        vector = float_vector(raw, len(self))
        if self.device.type == "cpu" and vector.__array_interface__["data"][0] % ALIGNMENT == 0:
            return torch.from_numpy(np.asarray(_Lent(vector)))
        own = self._own_memory()
        np.copyto(own.numpy(), vector)
        return own

    def _own_memory(self) -> Tensor:
        if self._own is None:
            self._own = torch.empty(len(self), pin_memory=self.device.type == "cuda")
        return self._own

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within, the module computes on a copy of its parameters.

        Raises:
            ConfigError: it was written to, by something other than the optimizer.
        """
        given, copy = self.params, self.params.clone()
        self.attach_parameters(copy)
        try:
            yield
        finally:
            self.attach_parameters(given)
        if not torch.equal(copy.view(torch.int32), given.view(torch.int32)):  # as bits: NaN is equal to itself
            raise ConfigError(
                f"a model's parameters change in the optimizer's step alone: {type(self.module).__name__} writes to "
                "its own while a loss is computed. Compute with a changed copy instead, such as weight.clamp(-1, 1), "
                "or keep in a buffer what changes."
            )

    def snapshot(self) -> tuple[FloatArray, ByteArray]:
        """Fresh read-only copies: parameters, float32 [P], and buffers, uint8."""
        params = self.params.to("cpu", copy=True).numpy()
        buffers = self.buffers.gather()
        params.setflags(write=False)
        buffers.setflags(write=False)
        return params, buffers

    def attach_parameters(self, vector: Tensor) -> None:
        """Make the module's parameters views into a float32 [P] on the device."""
        self.params = vector
        for parameter, view in zip(self._parameters(), self._views(vector), strict=True):
            parameter.data = view

    def attach_gradient(self, gradient: Tensor) -> None:
        """Let backward() accumulate straight into a float32 [P] on the device."""
        for parameter, view in zip(self._parameters(), self._views(gradient), strict=True):
            parameter.grad = view

    def names(self) -> list[str]:
        """The trainable parameters' names, in the order of the vector."""
        return [name for name, _ in self._named]

    def state_dict(self) -> dict[str, Tensor]:
        """Clones of all parameters, frozen ones included, and persistent buffers, by their ordinary names."""
        clones: dict[int, Tensor] = {}
        state: dict[str, Tensor] = {}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            if id(tensor) not in clones:
                clones[id(tensor)] = tensor.detach().cpu().clone()
            state[name] = clones[id(tensor)]  # tied weights stay one tensor in the file
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy a named state dict into the module.

        Raises:
            ConfigError: names or shapes are not this module's.
        """
        try:
            self.module.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"the saved weights are of another model: {reason}") from None

    def fingerprint(self) -> str:
        """sha256 over name, shape, dtype of parameters and buffers, and the values of frozen parameters.

        Values of frozen parameters count because they are never sent: workers must build the same ones.
        """
        digest = hashlib.sha256()
        trained = {id(parameter) for parameter in self._parameters()}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            frozen = isinstance(tensor, nn.Parameter) and id(tensor) not in trained
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {frozen}\n".encode())
            if frozen:
                digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for _, parameter in self._named]

    def _views(self, vector: Tensor) -> list[Tensor]:
        begin = vector.storage_offset()
        return [vector.as_strided(shape, strides, begin + offset) for shape, strides, offset in self._layout]


def _layout(vector: Tensor, shapes: Sequence[torch.Size]) -> list[tuple[torch.Size, tuple[int, ...], int]]:
    """Shape, strides and offset of each parameter: views made from these take a third of the time."""
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    views = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    return [(view.shape, view.stride(), int(view.storage_offset())) for view in views]


class _Lent:
    """An array's memory as memory that may be written, which it is not: torch knows no other, and warns."""

    def __init__(self, array: FloatArray) -> None:
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
        self.array = array  # keeps the memory alive


def float_vector(buffer: Buffer, size: int) -> FloatArray:
    """A float32 [size] over memory that came from elsewhere; nothing is copied.

    Raises:
        WireError: the number of bytes is another.
    """
    raw = np.frombuffer(buffer, np.uint8)
    if raw.size != 4 * size:
        raise WireError(f"a vector of {size} parameters takes {4 * size} bytes: got {raw.size}.")
    return raw.view(np.float32)


def build_model(task: Task, seed: int, device: str = "cpu") -> FlatModel:
    """The task's model with its initial parameters: a function of the seed, on every device the same.

    torch's global random stream is left as it was.

    Raises:
        ConfigError: the task's model is no module, or not one that can be trained.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeds.integer(seed, "initial"))
        try:
            module = task.model()
        except Exception as error:  # the user's code
            raise ConfigError(f"the task's model() failed: {reason(error)}.") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"a task's model() returns a torch.nn.Module: got {type(module).__name__}.")
    return FlatModel(module, device)


def _refuse_what_cannot_be_flat(module: nn.Module) -> None:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError("the model has no parameter to train: every one has requires_grad = False.")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ConfigError(f"parameter {name} has no shape yet: run one batch through the lazy module first.")
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise ConfigError(f"trained parameters are float32: got {parameter.dtype} in {name}. Use model.float().")
    for path, part in module.named_modules():
        name = path or "the model"
        if getattr(part, "sparse", False):
            raise ConfigError(f"gradients are dense: {name} is {part}. Leave out sparse=True.")
        if getattr(part, "max_norm", None) is not None:
            raise ConfigError(
                f"a model's parameters change in the optimizer's step alone: {name} is {part}, which rewrites them "
                "whenever it is used. Leave out max_norm."
            )
        if isinstance(part, _RUNNING_STATISTICS) and part.track_running_stats and part.momentum is None:
            raise ConfigError(
                f"running statistics need a momentum, since each step starts from those of the last: {name} has "
                "momentum=None. Give it a number, such as 0.1."
            )
