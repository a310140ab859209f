"""A worker's compute with room for one coded gradient, which a driver would give it."""

from functools import cached_property

import numpy as np

from pgczmq.train.blocks import ByteArray, FloatArray
from pgczmq.train.gradient import Gradients


class Roomed(Gradients):
    """Gradients whose room comes from here: float32, the same at every step."""

    @cached_property
    def room(self) -> ByteArray:
        return np.full(4 * self.parameter_count, 255, np.uint8)

    def evaluate(self, step: int, place: int, batch_fraction: float = 1.0, room: ByteArray | None = None) -> float:
        return super().evaluate(step, place, batch_fraction, self.room if room is None else room)

    def coded(self) -> tuple[FloatArray, float, ByteArray]:
        """Copies of the coded gradient, float32 [P], and of the packed buffers, and the norm between them."""
        packed = np.full(self.buffer_bytes, 255, np.uint8)
        norm = self.encode(self.room, packed)
        return self.room.view(np.float32).copy(), norm, packed

    def read_ahead(self, step: int, place: int, batch_fraction: float = 1.0) -> None:
        """What ``prefetch`` does on its thread, on this one."""
        self._gradient.prefetch(step, self._held[place], batch_fraction)
