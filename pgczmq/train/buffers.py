"""A module's buffers, such as BatchNorm's running statistics, as one array of bytes.

The wire format: all float32 buffers in the order of the module's state dict, then all others as int64.
Only persistent buffers count; one that is registered under two names is sent once.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pgczmq.errors import ConfigError, PgcError, WireError
from pgczmq.train.blocks import Buffer, ByteArray

_FLOAT_BYTES = 4
_WHOLE_BYTES = 8


class ModuleBuffers:
    """Gathers and restores the buffers of one module.

    A buffer is looked up by name each time: a module may replace its buffer by another tensor.

    Raises:
        ConfigError: a buffer is neither float32 nor made of whole numbers, or cannot be written element by element.
    """

    def __init__(self, module: nn.Module) -> None:
        persistent = module.state_dict().keys()
        named = [(name, buffer) for name, buffer in module.named_buffers() if name in persistent]
        for name, buffer in named:
            _check(name, buffer)
        floats = [(name, buffer) for name, buffer in named if buffer.is_floating_point()]
        wholes = [(name, buffer) for name, buffer in named if not buffer.is_floating_point()]
        self._owners = [_owner(module, name) for name, _ in floats + wholes]
        self._float_count = len(floats)
        self._float_bytes = _FLOAT_BYTES * sum(buffer.numel() for _, buffer in floats)
        self.nbytes = self._float_bytes + _WHOLE_BYTES * sum(buffer.numel() for _, buffer in wholes)

    def gather(self) -> ByteArray:
        """A fresh uint8 [nbytes] with all buffers; empty when the module has none."""
        packed = np.empty(self.nbytes, np.uint8)
        start = 0
        for place, tensor in enumerate(self._tensors()):
            kind = np.float32 if place < self._float_count else np.int64
            raw = tensor.detach().cpu().numpy().astype(kind, copy=False).reshape(-1).view(np.uint8)
            packed[start : start + raw.size] = raw
            start += raw.size
        return packed

    @torch.no_grad()
    def restore(self, packed: Buffer) -> None:
        """Write what ``gather`` gave back into the module.

        Raises:
            WireError: the size is not this module's.
        """
        array = self._checked(packed)
        if not self.nbytes:
            return
        # Copies, because torch wants memory it may write to, and aligned whole numbers.
        floats = torch.from_numpy(array[: self._float_bytes].copy().view(np.float32))
        wholes = torch.from_numpy(array[self._float_bytes :].copy().view(np.int64))
        start = 0
        for place, tensor in enumerate(self._tensors()):
            if place == self._float_count:
                start = 0
            source = floats if place < self._float_count else wholes
            tensor.copy_(source[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    def average(self, packed: Sequence[Buffer]) -> ByteArray:
        """The mean of several gathered arrays: floats in float64 in the given order, whole numbers from the first.

        Raises:
            WireError: an array's size is not this module's.
        """
        if not packed:
            raise PgcError("an average of buffers needs at least one set of them.")
        arrays = [self._checked(one) for one in packed]
        if not self.nbytes:
            return self.gather()
        total = np.zeros(self._float_bytes // _FLOAT_BYTES, np.float64)
        with np.errstate(all="ignore"):  # what is not finite is the caller's to find
            for array in arrays:
                total += array[: self._float_bytes].view(np.float32)
            mean = (total / len(arrays)).astype(np.float32)
        return np.concatenate([mean.view(np.uint8), arrays[0][self._float_bytes :]])

    def sound(self, packed: Buffer) -> bool:
        """Whether all floats of a gathered array are finite, or what they are in the module, such as a mask's -inf."""
        floats = self._checked(packed)[: self._float_bytes].view(np.float32)
        finite = np.isfinite(floats)
        if finite.all():
            return True
        present = self.gather()[: self._float_bytes].view(np.float32)
        return np.array_equal(floats[~finite], present[~finite], equal_nan=True)

    def _tensors(self) -> list[Tensor]:
        return [getattr(owner, name) for owner, name in self._owners]

    def _checked(self, packed: Buffer) -> ByteArray:
        array = np.frombuffer(packed, np.uint8)
        if array.size != self.nbytes:
            raise WireError(f"the model's buffers take {self.nbytes} bytes: got {array.size}.")
        return array


def _check(name: str, buffer: Tensor) -> None:
    """Whether a buffer can go from one process to another."""
    instead = "or register it with persistent=False to keep it out of messages and checkpoints."
    if buffer.dtype != torch.float32 and (buffer.is_floating_point() or buffer.is_complex()):
        raise ConfigError(f"buffers are float32 or whole numbers: got {buffer.dtype} in {name}. Convert it, {instead}")
    if buffer.layout != torch.strided:
        raise ConfigError(f"buffers are dense: got {buffer.layout} in {name}. Use to_dense(), {instead}")
    if any(size > 1 and stride == 0 for size, stride in zip(buffer.shape, buffer.stride(), strict=True)):
        raise ConfigError(
            f"every element of a buffer has memory of its own: {name} repeats some, as expand() does. Use clone(), "
            f"{instead}"
        )


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, last = name.rpartition(".")
    return module.get_submodule(path), last
