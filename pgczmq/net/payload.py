"""How parameters and coded gradients get from one process to another: as frames behind a header, or in shared memory.

A payload is one piece of memory, a vector and behind it the packed model buffers. Whoever sends writes it into
``room()``, seals it, and sends a header with what ``Sealed`` says; whoever receives turns header and frames into a
lease. Nothing else in the package knows which way a payload goes.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from pgczmq.core.values import value
from pgczmq.errors import WireError
from pgczmq.net.compute import Memory
from pgczmq.net.memory import Block

log = logging.getLogger("pgczmq.payload")

Way = Literal["shm", "tcp"]
BYTES_PER_ELEMENT = {"float32": 4, "bfloat16": 2}
SLOT_BYTES_AT_MOST = 2**30
"""Memory for versions of the parameters that stragglers still read, unless three versions need more."""


@dataclass(frozen=True)
class Size:
    """Bytes of a payload: ``vector`` parameters or gradient, ``buffers`` packed model buffers."""

    vector: int
    buffers: int

    @classmethod
    def of(cls, parameter_count: int, buffer_bytes: int, dtype: str) -> "Size":
        """With the vector as float32 or bfloat16."""
        return cls(BYTES_PER_ELEMENT[dtype] * parameter_count, buffer_bytes)

    @property
    def total(self) -> int:
        """Both together."""
        return self.vector + self.buffers

    def split(self, memory: Memory) -> tuple[Memory, Memory]:
        """Vector and buffers."""
        return memory[: self.vector], memory[self.vector :]


@value
class Sealed:
    """A payload that is not written any more.

    Args:
        block: descriptor of the shared block that it is in, for the header; None for frames.
        frames: what goes behind the header.
    """

    block: int | None
    frames: Sequence[Memory]


class Lease(Protocol):
    """A payload that can be read."""

    @property
    def memory(self) -> Memory:
        """The payload, only to be read."""
        ...

    def holds(self) -> bool:
        """Whether it still is what it was: ask after reading."""
        ...

    def release(self) -> None:
        """Nothing is read any more; a second time does nothing."""
        ...


class Outgoing(Protocol):
    """Payloads on their way out; used from the compute thread."""

    def room(self) -> Memory:
        """Where the next payload is to be written: the same until it is sealed. May wait for readers."""
        ...

    def seal(self, step: int) -> Sealed:
        """What was written into the last ``room`` is the payload of a step."""
        ...

    def close(self) -> None:
        """Nothing goes out any more; what this end of it held is given back."""
        ...


class Incoming(Protocol):
    """Payloads that come in; used from the event loop."""

    def lease(self, step: int, block: int | None, frames: Sequence[Any]) -> Lease | None:
        """The payload that a header of ``step`` names, or that is behind it; None when it is there no more.

        Raises:
            WireError: a payload of another size, or going another way, than was agreed.
        """
        ...

    def close(self) -> None:
        """Nothing comes in any more, and no lease is held; what this end of it held is given back."""
        ...


# ---------------------------------------------------------------- frames


class FramesOut:
    """Fresh memory for every payload: ZeroMQ reads it after it is sent."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._room: Memory | None = None

    def room(self) -> Memory:
        """Fresh memory, the same until it is sealed."""
        if self._room is None:
            self._room = np.empty(self._size.total, np.uint8)
        return self._room

    def seal(self, step: int) -> Sealed:
        """One frame."""
        assert self._room is not None
        room, self._room = self._room, None
        room.flags.writeable = False
        return Sealed(None, [room])

    def close(self) -> None:
        """There is nothing to give back."""


class _Frame:
    """A received frame: nobody else writes there."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def holds(self) -> bool:
        return True

    def release(self) -> None:
        self.memory = np.empty(0, np.uint8)


class FramesIn:
    """One frame of the right size."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def lease(self, step: int, block: int | None, frames: Sequence[Any]) -> Lease | None:
        """The frame."""
        given = [len(frame) for frame in frames]
        if block is not None or given != [self._size.total]:
            where = " and a block of shared memory" if block is not None else ""
            raise WireError(f"behind this header comes one frame of {self._size.total} bytes: got {given}{where}")
        frame = frames[0]
        return _Frame(np.frombuffer(getattr(frame, "buffer", frame), np.uint8))

    def close(self) -> None:
        """There is nothing to give back."""


# ---------------------------------------------------------------- shared memory


class Slots:
    """Versions of the parameters in blocks of this process: as many as somebody reads, and one more.

    No block is written while anybody may read it. Only when ``at_most`` blocks are all being read is the oldest
    taken back: its readers notice when they look whether their lease holds.

    Args:
        size: of a payload.
        readers: how many may read different versions.
    """

    def __init__(self, size: Size, readers: int) -> None:
        self._size = size
        self.at_most = max(3, min(readers + 2, SLOT_BYTES_AT_MOST // max(1, size.total)))
        self._blocks: list[Block] = []
        self._current: Block | None = None
        self._writing: Block | None = None

    def room(self) -> Memory:
        """A block that nobody reads."""
        block = self._writing or self._free() or self._new() or self._oldest()
        self._writing = block
        return block.payload

    def seal(self, step: int) -> Sealed:
        """The step's version is there, until the one after it is sealed at least."""
        assert self._writing is not None
        block, self._writing = self._writing, None
        block.written(step)
        self._current = block
        return Sealed(block.descriptor, [])

    def close(self) -> None:
        """Give the memory back."""
        for block in self._blocks:
            block.retire()

    def _free(self) -> Block | None:
        return next((one for one in self._blocks if one is not self._current and one.try_to_write()), None)

    def _new(self) -> Block | None:
        if len(self._blocks) == self.at_most:
            return None
        block = Block.create(self._size.total)
        self._blocks.append(block)
        return block if block.try_to_write() else None

    def _oldest(self) -> Block:
        block = min((one for one in self._blocks if one is not self._current), key=lambda one: one.stamp)
        log.info("a straggler still reads the parameters of step %d: they are taken back", block.stamp)
        block.take_back()
        return block


class BlockOut:
    """One block, of the master's, for one worker's coded gradients: it waits until the last one has been read.

    Args:
        block: this end of it.
        name: its descriptor in the master.
    """

    def __init__(self, block: Block, name: int) -> None:
        self._block = block
        self._name = name
        self._writing = False

    def room(self) -> Memory:
        """The block."""
        if not self._writing:
            self._block.wait_to_write()
            self._writing = True
        return self._block.payload

    def seal(self, step: int) -> Sealed:
        """It is in the block."""
        self._writing = False
        self._block.written(step)
        return Sealed(self._name, [])

    def close(self) -> None:
        """The block is the master's."""
        self._block.leave()


class BlocksIn:
    """Blocks that headers name, opened once each.

    Args:
        open_block: opens the block with this descriptor in its owner; OSError or KeyError when it cannot.
    """

    def __init__(self, open_block: Callable[[int], Block]) -> None:
        self._open = open_block
        self._blocks: dict[int, Block] = {}

    def lease(self, step: int, block: int | None, frames: Sequence[Any]) -> Lease | None:
        """The block's payload, if it is still that of the step."""
        if block is None or frames:
            raise WireError(f"behind this header comes no frame but a block of shared memory: got {len(frames)} frames")
        if block not in self._blocks:
            try:
                self._blocks[block] = self._open(block)
            except (OSError, KeyError) as error:
                raise WireError(f"there is no shared block {block} for this worker: {error}") from None
        return self._blocks[block].lease(step)

    def close(self) -> None:
        """They are their owner's."""
        blocks, self._blocks = self._blocks, {}
        for block in blocks.values():
            block.leave()
