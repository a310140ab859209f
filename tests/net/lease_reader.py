"""A process that reads versions of the parameters: ``lease_reader.py SOCKET MASTER NBYTES MUTANT``.

Each header that it takes is [step, block, steps to keep the lease]. It says ["read", step, whether
all was right, whether the lease held then] of whatever it has read, ["none", step] of what it got no lease of.
"""

import sys
from dataclasses import dataclass

from crowd import Channel
from leased import FIRST_HALF, SECOND_HALF, shows

from pgczmq.net.memory import Block, Lease
from pgczmq.net.payload import BlocksIn


@dataclass
class _Kept:
    step: int
    until: int
    lease: Lease


class Reader:
    """Keeps up to as many leases as it is told to."""

    def __init__(self, channel: Channel, master: int, nbytes: int) -> None:
        self._channel = channel
        self._incoming = BlocksIn(lambda block: Block.open_to_read(master, block, nbytes))
        self._kept: list[_Kept] = []
        channel.holds = lambda: [kept.step for kept in self._kept]

    def take(self, step: int, block: int, keep: int) -> None:
        """Read a version if it is still there."""
        self._channel.pause("waiting")
        lease = self._incoming.lease(step, block, [])
        if lease is None:
            self._channel.say("none", step)
        else:
            self._kept.append(_Kept(step, step + keep, lease))  # type: ignore[arg-type]
            self._read(self._kept[-1])
        for kept in [one for one in self._kept if one.until <= step]:
            self._read(kept)
            self._let_go(kept)
        self._channel.pause("released")

    def finish(self) -> None:
        for kept in list(self._kept):
            self._read(kept)
            self._let_go(kept)

    def _read(self, kept: _Kept) -> None:
        self._channel.pause("leased")
        right = shows(kept.lease.memory, kept.step, FIRST_HALF)
        self._channel.pause("reading")
        right &= shows(kept.lease.memory, kept.step, SECOND_HALF)
        self._channel.pause("read")
        held = kept.lease.holds()
        self._channel.say("read", kept.step, right, held)

    def _let_go(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        kept.lease.release()


def pause_between_lock_and_stamp(channel: Channel) -> None:
    try_lock = Block._try_lock

    def tried(self: Block, how: int) -> bool:
        locked = try_lock(self, how)
        channel.pause("locked")
        return locked

    Block._try_lock = tried  # type: ignore[method-assign]


def trust_every_lease() -> None:
    Lease.holds = lambda self: True  # type: ignore[method-assign]


def lock_nothing() -> None:
    Block._try_lock = lambda self, how: True  # type: ignore[method-assign]


MUTANTS = {"": lambda: None, "trusts every lease": trust_every_lease, "locks nothing": lock_nothing}


def main(descriptor: str, master: str, nbytes: str, mutant: str) -> None:
    MUTANTS[mutant]()
    channel = Channel(int(descriptor))
    pause_between_lock_and_stamp(channel)
    reader = Reader(channel, int(master), int(nbytes))
    for step, block, keep in channel.newest():
        reader.take(step, block, keep)
    reader.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
