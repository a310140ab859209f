"""The master's side of all payloads: which way each worker's go, the parameters out and the gradients in."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pgczmq.errors import ConfigError, WireError
from pgczmq.net import memory, wire
from pgczmq.net.compute import MasterCompute, Memory
from pgczmq.net.memory import Block, Card
from pgczmq.net.payload import BlocksIn, FramesIn, FramesOut, Incoming, Lease, Sealed, Size, Slots, Way

log = logging.getLogger("pgczmq.master")


@dataclass
class Version:
    """The parameters of a step, ready to be sent each way that somebody wants."""

    step: int
    sealed: dict[Way, Sealed]


@dataclass(frozen=True)
class _Shared:
    """What is shared with workers of this host."""

    card: Card
    slots: Slots


class Exchange:
    """Payloads of one run.

    Args:
        compute: writes parameters; tells the sizes.
        payload: the setting, "auto", "shm" or "tcp".
        wire_dtype: of vectors in frames; those in shared memory are float32.
        workers: how many there will be.

    Raises:
        ConfigError: "shm" where there is none.
    """

    def __init__(self, compute: MasterCompute, *, payload: str, wire_dtype: str, workers: int) -> None:
        why_not = "" if payload == "tcp" else memory.why_not_here()
        if payload == "shm" and why_not:
            raise ConfigError(f'net.payload="shm" cannot be had here: {why_not}. Use "auto" or "tcp".')
        self._compute = compute
        self._payload = payload
        self._wire_dtype = wire_dtype
        self.sizes: dict[Way, Size] = {
            "tcp": Size.of(compute.parameter_count, compute.buffer_bytes, wire_dtype),
            "shm": Size.of(compute.parameter_count, compute.buffer_bytes, "float32"),
        }
        self._frames = FramesOut(self.sizes["tcp"])
        self._shared: _Shared | None = None
        if payload != "tcp" and not why_not:
            self._shared = _Shared(Card(), Slots(self.sizes["shm"], workers))
        self._blocks: dict[str, Block] = {}  # of gradients, by incarnation
        self._ways: dict[str, Way] = {}  # by incarnation
        self._incoming: dict[str, Incoming] = {}

    @property
    def shares(self) -> bool:
        """Whether workers of this host may use shared memory."""
        return self._shared is not None

    # ------------------------------------------------------------ who goes which way

    def offer(self, incarnation: str, local: str) -> dict[str, Any]:
        """What a welcome says about payloads; ``local`` begins the names of sockets for headers of shared ones."""
        settings: dict[str, Any] = {"payload": self._payload, "wire_dtype": self._wire_dtype}
        if self._shared is None:
            return settings
        if incarnation not in self._blocks:
            try:
                self._blocks[incarnation] = Block.create(self.sizes["shm"].total)
            except OSError as error:
                log.warning("no memory to share with a worker: %s", error.strerror)
                return settings
        return settings | {
            "process": memory.this_process(),
            "card": self._shared.card.descriptor,
            "nonce": self._shared.card.nonce,
            "block": self._blocks[incarnation].descriptor,
            "local": local,
        }

    def why_not(self, incarnation: str, way: Way) -> str:
        """Why a worker cannot choose this way; empty when it can, or has done so before."""
        agreed = self._ways.get(incarnation)
        if agreed is not None:
            return "" if way == agreed else f"its payloads go one way as long as it lives: got {way}, agreed {agreed}"
        if way == "shm" and incarnation not in self._blocks:
            return "a worker takes one of the ways that it is offered for payloads: got shm, offered tcp"
        if way == "tcp" and self._payload == "shm":
            return 'the run has net.payload="shm", which needs its workers on the host of the master: got tcp'
        return ""

    def agree(self, incarnation: str, way: Way) -> None:
        """A worker has chosen; a second time changes nothing.

        Raises:
            WireError: it cannot choose this.
        """
        reason = self.why_not(incarnation, way)
        if reason:
            raise WireError(reason)
        if incarnation in self._ways:
            return
        block = self._blocks.get(incarnation)
        if way != "shm" or block is None:
            self._incoming[incarnation] = FramesIn(self.sizes["tcp"])
            if block is not None:
                self._blocks.pop(incarnation).retire()
        else:
            self._incoming[incarnation] = BlocksIn({block.descriptor: block}.__getitem__)
        self._ways[incarnation] = way

    def forget(self, incarnation: str) -> None:
        """A worker's life is over, or it will not be heard again."""
        self._ways.pop(incarnation, None)
        self._incoming.pop(incarnation, None)
        block = self._blocks.pop(incarnation, None)
        if block is not None:
            block.retire()

    # ------------------------------------------------------------ in

    def lease(self, incarnation: str, header: wire.Gradient, frames: Sequence[Any]) -> Lease | None:
        """What a gradient's header names; None when it has been written over.

        Raises:
            WireError: it does not come the way that was agreed.
        """
        incoming = self._incoming.get(incarnation)
        if incoming is None:
            raise WireError("a gradient comes after it was agreed which way it goes")
        return incoming.lease(header.step, header.block, frames)

    def split(self, lease: Lease) -> tuple[Memory, Memory]:
        """Gradient and buffers of a payload."""
        buffers = self._compute.buffer_bytes
        return lease.memory[: len(lease.memory) - buffers], lease.memory[len(lease.memory) - buffers :]

    # ------------------------------------------------------------ out

    def way(self, incarnation: str) -> Way:
        """The way of a worker's payloads."""
        return self._ways.get(incarnation, "tcp")

    def wanted(self, incarnations: Iterable[str]) -> frozenset[Way]:
        """The ways that the payloads of these workers go, as far as they have chosen."""
        return frozenset([self._ways[each] for each in incarnations if each in self._ways])

    def write(self, version: Version, ways: frozenset[Way]) -> None:
        """Write the current parameters as those of a version, each way that it lacks; on the compute thread."""
        for way in ways - version.sealed.keys():
            outgoing = self._frames if way == "tcp" or self._shared is None else self._shared.slots
            params, buffers = self.sizes[way].split(outgoing.room())
            self._compute.write(params, buffers)
            version.sealed[way] = outgoing.seal(version.step)

    def close(self) -> None:
        """Give all shared memory back."""
        for incarnation in list(self._blocks):
            self.forget(incarnation)
        if self._shared is not None:
            self._shared.slots.close()
            self._shared.card.close()
