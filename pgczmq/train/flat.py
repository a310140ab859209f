"""A module whose trainable parameters are views into one flat float32 tensor, [P] in the comments below."""

import hashlib

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from pgczmq.config import reason
from pgczmq.core import seeds
from pgczmq.errors import ConfigError, WireError
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


class FlatModel:
    """A module and its parameters as one vector, in the order of ``named_parameters()``.

    Tied weights are in the vector once, frozen ones (``requires_grad`` False) not at all.

    Attributes:
        module: the module itself, on the device; its parameters are views into ``params``.
        params: float32 [P] on the device.
        buffers: gathers and restores the module's persistent buffers.

    Raises:
        ConfigError: the module cannot be trained this way; the text says why.
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        _refuse_what_cannot_be_flat(module)
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self._named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.params = torch.empty(sum(p.numel() for _, p in self._named), device=self.device)
        for parameter, view in zip(self._parameters(), self._views(self.params), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self.buffers = ModuleBuffers(module)
        on_host = self.device.type == "cpu"
        self._host = self.params if on_host else torch.empty_like(self.params, device="cpu", pin_memory=True)

    def __len__(self) -> int:
        return self.params.numel()

    def load(self, params: Buffer) -> None:
        """Copy float32 [P], as bytes, into the parameters.

        Raises:
            WireError: the number of bytes is not that of the parameters.
        """
        array = float_vector(params, len(self))
        np.copyto(self._host.numpy(), array)
        if self._host is not self.params:
            self.params.copy_(self._host)

    def snapshot(self) -> tuple[FloatArray, ByteArray]:
        """Fresh read-only copies: parameters, float32 [P], and buffers, uint8."""
        params = np.array(self.params.cpu().numpy())
        buffers = self.buffers.gather()
        params.setflags(write=False)
        buffers.setflags(write=False)
        return params, buffers

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
        parts = torch.split(vector, [parameter.numel() for parameter in self._parameters()])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters(), strict=True)]


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
    for name, part in module.named_modules():
        if getattr(part, "sparse", False):
            raise ConfigError(f"gradients are dense: {name} is {part}. Leave out sparse=True.")
        if isinstance(part, _RUNNING_STATISTICS) and part.track_running_stats and part.momentum is None:
            raise ConfigError(
                f"running statistics need a momentum, since each step starts from those of the last: {name} has "
                "momentum=None. Give it a number, such as 0.1."
            )
