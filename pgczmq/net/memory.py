"""Blocks of memory that two processes of one host share, and leases on them.

    | stamp, int64, in a page of its own | payload |

The owner makes a block without a name (memfd), so that nothing is left behind whatever happens; the other side opens
it through the owner's descriptor in /proc. Whoever writes holds an exclusive file lock, whoever reads a shared one: a
lock outlives being stopped and ends with its process. The stamp says which step's payload is there, NOTHING while it is
being written; a reader that finds another one than it was told of reads nothing. Only Linux has this.

Source: field-notes.md X22.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
import sys
import weakref
from pathlib import Path

import numpy as np

from pgczmq.net.compute import Memory

AVAILABLE = sys.platform == "linux"
PAGE = mmap.PAGESIZE
NOTHING = -1
_STAMP = struct.Struct("<q")
_NONCE_BYTES = 16


class Block:
    """One end of a shared block; used from one thread at a time.

    Args:
        descriptor: of the memory file; the block closes it, at the latest when nobody has the block any more.
        nbytes: of the payload.
        protection: what this end may do, as ``mmap`` has it.
    """

    def __init__(self, descriptor: int, nbytes: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> None:
        self.descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        self._map = mmap.mmap(descriptor, PAGE + nbytes, mmap.MAP_SHARED, protection)
        self.payload: Memory = np.frombuffer(self._map, np.uint8, nbytes, PAGE)
        self._leases = 0
        self._retired = False

    @classmethod
    def create(cls, nbytes: int) -> "Block":
        """A block of this process: of fixed size, so that no peer can take memory away under a reader."""
        descriptor = os.memfd_create("pgczmq", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, PAGE + nbytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        block = cls(descriptor, nbytes)
        block.stamp = NOTHING
        return block

    @classmethod
    def open_to_read(cls, process: int, descriptor: int, nbytes: int) -> "Block":
        """The other end of a block of another process.

        Raises:
            OSError: it is not there, not of that size, or not for this user.
        """
        return cls(_open(process, descriptor, os.O_RDONLY, PAGE + nbytes), nbytes, mmap.PROT_READ)

    @classmethod
    def open_to_write(cls, process: int, descriptor: int, nbytes: int) -> "Block":
        """As ``open_to_read``, to write."""
        return cls(_open(process, descriptor, os.O_RDWR, PAGE + nbytes), nbytes)

    @property
    def stamp(self) -> int:
        """Which step's payload is there; ``NOTHING`` while there is none."""
        step: int = _STAMP.unpack_from(self._map)[0]
        return step

    @stamp.setter
    def stamp(self, step: int) -> None:
        _STAMP.pack_into(self._map, 0, step)

    def try_to_write(self) -> bool:
        """Take the block to write, unless somebody may still be reading or writing it."""
        if not self._try_lock(fcntl.LOCK_EX):
            return False
        self.stamp = NOTHING
        return True

    def wait_to_write(self) -> None:
        """Take the block to write as soon as nobody reads it."""
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        self.stamp = NOTHING

    def take_back(self) -> None:
        """Take the block to write although somebody holds a lease, which is worth nothing from now on."""
        self.stamp = NOTHING

    def written(self, step: int) -> None:
        """The payload of a step is there, for whoever reads."""
        self.stamp = step
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def lease(self, step: int) -> "Lease | None":
        """The payload of a step, which stays as it is until the lease is released; None when it is not there."""
        if not self._leases and not self._try_lock(fcntl.LOCK_SH):
            return None
        self._leases += 1
        if self.stamp == step:
            return Lease(self, step)
        self.release()
        return None

    def release(self) -> None:
        """One reader of this end is done."""
        self._leases -= 1
        if not self._leases:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            if self._retired:
                self._dispose()

    def retire(self) -> None:
        """Nobody will write here any more: the memory is given back as soon as nobody of this process reads it."""
        self._retired = True
        if not self._leases:
            self._dispose()

    def leave(self) -> None:
        """This end is needed no more, and no lease of it is held; the other end stays as it is."""
        self._let_go()

    def _dispose(self) -> None:
        """Free the memory, even if a stopped process maps it, and close the descriptor."""
        self.stamp = NOTHING  # and its page stays: zeros would be the stamp of step 0
        self._map.madvise(mmap.MADV_REMOVE, PAGE)
        self._let_go()

    def _let_go(self) -> None:
        self.payload = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):  # it is closed as soon as nobody looks at the payload any more
            self._map.close()
        self._close()

    def _try_lock(self, how: int) -> bool:
        try:
            fcntl.flock(self.descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Lease:
    """The right to read a block's payload of one step, until it is released."""

    def __init__(self, block: Block, step: int) -> None:
        self._block: Block | None = block
        self._step = step
        self.memory = block.payload

    def holds(self) -> bool:
        """Whether the payload is still that of the step: what was read until now was what it should be."""
        return self._block is not None and self._block.stamp == self._step

    def release(self) -> None:
        """Nothing is read any more; a second time does nothing."""
        block, self._block = self._block, None
        if block is not None:
            block.release()


class Card:
    """What a process shows to prove that another one is on its host: a random number in memory without a name."""

    def __init__(self) -> None:
        self.nonce = secrets.token_hex(_NONCE_BYTES)
        self._descriptor = os.memfd_create("pgczmq-card", os.MFD_CLOEXEC)
        os.write(self._descriptor, self.nonce.encode())

    @property
    def descriptor(self) -> int:
        """Where it can be read."""
        return self._descriptor

    def close(self) -> None:
        """Nobody has to prove anything any more."""
        os.close(self._descriptor)


def this_process() -> int:
    """What other processes of this host call this one."""
    return os.getpid()


def why_not_shared(process: int, descriptor: int, nonce: str) -> str:
    """Why this process cannot share memory with another one; empty when it can.

    Args:
        process: the other one.
        descriptor: of its card.
        nonce: what the card should say.
    """
    if not AVAILABLE:
        return f"shared memory needs Linux, this is {sys.platform}"
    try:
        card = _open(process, descriptor, os.O_RDONLY, len(nonce))
        with os.fdopen(card, "rb") as file:
            if file.read().decode("ascii", "replace") != nonce:
                return "the master is on another host"
        if _network(process) != _network("self"):
            return "the master is in another network namespace"
    except OSError as error:
        return f"the master's memory cannot be seen from here ({error.strerror})"
    return ""


def why_not_here() -> str:
    """Why processes of this user cannot share memory on this machine; empty when they can."""
    try:
        card = Card() if AVAILABLE else None
    except OSError as error:
        return f"no memory file can be made ({error.strerror})"
    if card is None:
        return why_not_shared(0, 0, "")
    try:
        return why_not_shared(this_process(), card.descriptor, card.nonce)
    finally:
        card.close()


def _network(process: int | str) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())


def _open(process: int, descriptor: int, flags: int, nbytes: int) -> int:
    """A descriptor of one's own for another process's memory file, which must have this size."""
    # The other side is only said to be a master: nothing else that it may name is opened, read, or written to.
    there = Path(f"/proc/{process}/fd/{descriptor}")
    _check_ours(there)
    opened = os.open(there, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_ours(Path(f"/proc/self/fd/{opened}"))
    except OSError:
        os.close(opened)
        raise
    if os.fstat(opened).st_size != nbytes:
        os.close(opened)
        raise OSError(0, "it is something else")
    return opened


def _check_ours(link: Path) -> None:
    if not str(link.readlink()).startswith("/memfd:pgczmq"):
        raise OSError(0, "it is something else")
