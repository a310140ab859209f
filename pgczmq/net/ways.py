"""The worker's side of all payloads: which way they go, found out when it is welcomed."""

import logging
from dataclasses import dataclass

from pgczmq.errors import JoinRefused
from pgczmq.net import wire
from pgczmq.net.memory import Block, why_not_shared
from pgczmq.net.payload import BlockOut, BlocksIn, FramesIn, FramesOut, Incoming, Outgoing, Size, Way

log = logging.getLogger("pgczmq.worker")


@dataclass(frozen=True)
class Ends:
    """How payloads of one size come and go."""

    size: Size
    incoming: Incoming
    outgoing: Outgoing

    def close(self) -> None:
        """No payload comes or goes any more: memory that is shared with a master is let go of."""
        self.incoming.close()
        self.outgoing.close()


def choose(welcome: wire.Welcome) -> Way:
    """Which way this worker's payloads go.

    Raises:
        JoinRefused: the run wants shared memory, and there is none with this master.
    """
    if welcome.process is None:
        return "tcp"
    why_not = why_not_shared(welcome.process, welcome.card, welcome.nonce)
    if not why_not:
        return "shm"
    if welcome.payload == "shm":
        raise JoinRefused(
            f'the run has net.payload="shm", which needs its workers on the host of the master: {why_not}. '
            'Use "auto", or start this worker there.'
        )
    log.info("parameters and gradients go over TCP: %s", why_not)
    return "tcp"


def ends(welcome: wire.Welcome, way: Way, *, parameter_count: int, buffer_bytes: int) -> Ends:
    """The payloads of a model of this size.

    Raises:
        OSError: the master's memory is gone, and so is the master.
    """
    process = welcome.process
    if way == "tcp" or process is None:
        size = Size.of(parameter_count, buffer_bytes, welcome.wire_dtype)
        return Ends(size, FramesIn(size), FramesOut(size))
    size = Size.of(parameter_count, buffer_bytes, "float32")
    mine = Block.open_to_write(process, welcome.block, size.total)
    return Ends(
        size,
        BlocksIn(lambda descriptor: Block.open_to_read(process, descriptor, size.total)),
        BlockOut(mine, welcome.block),
    )
