"""Every way that a payload can go, behind one face: both ends in this process, and what is between them.

``Shelf`` is the contract in a few lines: what the real ones do with sockets and shared memory, it does with a list.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zmq

from pgczmq.errors import WireError
from pgczmq.net.compute import Memory
from pgczmq.net.memory import Block
from pgczmq.net.payload import BlockOut, BlocksIn, FramesIn, FramesOut, Incoming, Lease, Outgoing, Sealed, Size, Slots

READERS = 1


@dataclass
class Link:
    """Two ends of one way.

    Args:
        keeps: a lease outlives so many later messages of its sender, who need not wait for its release.
    """

    outgoing: Outgoing
    incoming: Incoming
    keeps: int

    def send(self, step: int, payload: bytes) -> "Message":
        """Write a payload, seal it, and bring what ``Sealed`` says to the other end."""
        self.outgoing.room()[:] = np.frombuffer(payload, np.uint8)
        sealed = self.outgoing.seal(step)
        return Message(self.incoming, step, sealed.block, self.carry(sealed.frames))

    def carry(self, frames: Sequence[Any]) -> Sequence[Any]:
        """Frames, as they come out at the other end."""
        return frames

    def close(self) -> None:
        """Leave nothing behind."""


@dataclass(frozen=True)
class Message:
    """What a header says of its payload, at the end where it is read."""

    incoming: Incoming
    step: int
    block: int | None
    frames: Sequence[Any]

    def lease(self) -> Lease | None:
        return self.incoming.lease(self.step, self.block, self.frames)


# ---------------------------------------------------------------- in memory


@dataclass
class Shelf:
    """A few places that are written in turn, each with a number of its own; both ends of a way in memory."""

    size: Size
    first: int = field(default_factory=itertools.count(0, 10).__next__)
    places: list[Memory] = field(default_factory=list)
    steps: list[int] = field(default_factory=lambda: [-1, -1, -1])
    writing: int = 0

    def __post_init__(self) -> None:
        self.places = [np.zeros(self.size.total, np.uint8) for _ in self.steps]

    def room(self) -> Memory:
        self.steps[self.writing] = -1
        return self.places[self.writing]

    def seal(self, step: int) -> Sealed:
        place, self.writing = self.writing, (self.writing + 1) % len(self.places)
        self.steps[place] = step
        return Sealed(self.first + place, [])

    def lease(self, step: int, block: int | None, frames: Sequence[Any]) -> "OfShelf | None":
        if block is None or frames or not self.first <= block < self.first + len(self.places):
            raise WireError("a payload in memory is on this shelf")
        place = block - self.first
        return OfShelf(self, place, step) if self.steps[place] == step else None


@dataclass
class OfShelf:
    """Not locked: it holds as long as nobody wrote there."""

    shelf: Shelf
    place: int
    step: int

    @property
    def memory(self) -> Memory:
        return self.shelf.places[self.place]

    def holds(self) -> bool:
        return self.shelf.steps[self.place] == self.step

    def release(self) -> None:
        self.step = -2


def in_memory(size: Size) -> Link:
    shelf = Shelf(size)
    return Link(shelf, shelf, keeps=len(shelf.places) - 1)


# ---------------------------------------------------------------- over TCP


class OverTcp(Link):
    """Frames through a pair of sockets."""

    def __init__(self, size: Size) -> None:
        super().__init__(FramesOut(size), FramesIn(size), keeps=1000)
        self._context = zmq.Context()
        self._in, self._out = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        self._out.connect(f"tcp://127.0.0.1:{self._in.bind_to_random_port('tcp://127.0.0.1')}")

    def carry(self, frames: Sequence[Any]) -> Sequence[Any]:
        self._out.send_multipart([b"header", *frames], copy=False)
        return self._in.recv_multipart(copy=False)[1:]

    def close(self) -> None:
        self._context.destroy(linger=0)


# ---------------------------------------------------------------- through shared memory


class Parameters(Link):
    """The master's versions, read through /proc."""

    def __init__(self, size: Size) -> None:
        self._slots = Slots(size, READERS)
        blocks = BlocksIn(lambda name: Block.open_to_read(os.getpid(), name, size.total))
        super().__init__(self._slots, blocks, keeps=1000)

    def close(self) -> None:
        self._slots.close()


class Gradients(Link):
    """A worker's coded gradients, written through /proc into the master's block: one at a time."""

    def __init__(self, size: Size) -> None:
        self._block = Block.create(size.total)
        name = self._block.descriptor
        mine = Block.open_to_write(os.getpid(), name, size.total)
        super().__init__(BlockOut(mine, name), BlocksIn({name: self._block}.__getitem__), keeps=0)

    def close(self) -> None:
        self._block.retire()
