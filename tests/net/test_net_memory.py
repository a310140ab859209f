"""Shared blocks, leases on them and what is built of them, between real processes where that makes a difference."""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from leased import FIRST_HALF, SECOND_HALF, Child, fill, held_anywhere, memory_files, rounded, shows, waits_for_lock

from pgczmq.errors import WireError
from pgczmq.net import memory
from pgczmq.net.memory import NOTHING, Block, Card, why_not_here, why_not_shared
from pgczmq.net.payload import BlockOut, BlocksIn, Size, Slots

pytestmark = [
    pytest.mark.skipif(not memory.AVAILABLE, reason="shared memory needs Linux"),
    pytest.mark.timeout(60),
]
NBYTES = 1 << 20
NOBODY = 65534


@pytest.fixture
def block():
    made = Block.create(NBYTES)
    yield made
    made.retire()


@pytest.fixture
def other():
    with Child("lease_process.py") as child:
        yield child


def reader_of(block):
    """Another end of the block, in this process: its locks are its own all the same."""
    return Block.open_to_read(os.getpid(), block.descriptor, len(block.payload))


def write(block, step):
    fill(block.payload, step)
    block.written(step)


@contextlib.contextmanager
def keeps_its_descriptors():
    before = set(Path("/proc/self/fd").iterdir())
    yield
    assert set(Path("/proc/self/fd").iterdir()) <= before


# ---------------------------------------------------------------- one block


def test_what_one_process_writes_another_reads_in_place(block, other):
    other.ask("open_to_read", os.getpid(), block.descriptor, NBYTES)
    assert not other.ask("lease", NOTHING + 1), "nothing was written"
    assert block.try_to_write()
    write(block, 7)
    assert other.ask("lease", 7) and other.ask("reads", 7) and other.ask("holds") == [True]
    own = block.payload
    fill(own, 8)  # against all rules: it is the very memory, not a copy
    assert other.ask("reads", 8)


def test_another_step_is_not_leased_and_leaves_no_lock(block):
    reader = reader_of(block)
    assert reader.lease(0) is None and block.try_to_write()
    assert reader.lease(0) is None, "it is being written"
    write(block, 3)
    assert reader.lease(2) is None and reader.lease(4) is None
    assert block.try_to_write(), "whoever reads nothing stops nobody"
    assert reader.lease(3) is None, "it is being written again"


def test_a_block_is_written_only_when_the_last_of_its_leases_is_released(block):
    first, second = reader_of(block), reader_of(block)
    block.try_to_write()
    write(block, 1)
    leases = [first.lease(1), first.lease(1), second.lease(1)]
    for lease in leases:
        assert not block.try_to_write()
        assert lease.holds()
        lease.release()
        lease.release()
        assert not lease.holds(), "who has released it must not read on"
    assert block.try_to_write()


def test_what_is_taken_back_does_not_hold_while_it_is_written_and_never_again(block):
    reader = reader_of(block)
    block.try_to_write()
    write(block, 1)
    old = reader.lease(1)
    block.take_back()
    assert not old.holds()
    assert reader.lease(1) is None and reader.lease(2) is None
    write(block, 2)
    new = reader.lease(2)
    assert new.holds() and not old.holds()
    assert shows(new.memory, 2)
    old.release()
    assert not block.try_to_write(), "the new lease is not the old one's to give up"
    new.release()
    assert block.try_to_write()


def test_whoever_waits_to_write_writes_after_the_last_reader(block, other):
    """The lock's waiters are listed by the kernel, so that this is no race."""
    other.ask("open_to_write", os.getpid(), block.descriptor, NBYTES)
    assert other.ask("try_to_write")
    other.ask("fill", 1)
    other.ask("written", 1)
    lease = block.lease(1)
    other.tell("wait_to_write")
    while not waits_for_lock(other.pid):
        time.sleep(0.001)
    assert lease.holds() and shows(lease.memory, 1)
    lease.release()
    assert other.hear() is None
    assert block.stamp == NOTHING and block.lease(1) is None


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_stopped_reader_keeps_its_lease_and_a_killed_one_does_not(block, other, stopped):
    block.try_to_write()
    write(block, 1)
    other.ask("open_to_read", os.getpid(), block.descriptor, NBYTES)
    assert other.ask("lease", 1)
    if stopped:
        other.stop()
    assert not block.try_to_write()
    other.kill()
    assert block.try_to_write()


def test_nobody_reads_what_a_killed_or_stopped_writer_left_half_written(block, other):
    other.ask("open_to_write", os.getpid(), block.descriptor, NBYTES)
    other.ask("wait_to_write")
    other.ask("fill", 1)
    other.ask("written", 1)
    block.lease(1).release()
    other.ask("wait_to_write")
    other.ask("fill_half", 2)
    other.stop()
    assert block.lease(1) is None and block.lease(2) is None  # at once: nobody waits for it
    other.kill()
    assert shows(block.payload, 2, FIRST_HALF) and shows(block.payload, 1, SECOND_HALF)
    assert block.lease(1) is None and block.lease(2) is None
    assert block.try_to_write(), "its lock went with it"


def test_no_peer_can_take_memory_away_or_add_some(block, other):
    other.ask("open_to_write", os.getpid(), block.descriptor, NBYTES)
    for nbytes in (0, memory.PAGE, 2 * NBYTES):
        assert other.ask("resize", nbytes)[1] == "PermissionError"
    with pytest.raises(PermissionError):
        os.ftruncate(block.descriptor, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_a_reader_cannot_write(block):
    reader = reader_of(block)
    assert not reader.payload.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        reader.payload[0] = 1
    with pytest.raises(OSError):
        os.write(reader.descriptor, b"x")


def test_what_is_not_a_block_of_this_size_is_not_opened_and_nothing_stays_open(block, tmp_path):
    pipe, (near, far) = os.pipe(), socket.socketpair()
    file = (tmp_path / "file").open("wb")
    mine = os.getpid()
    for nbytes in (NBYTES - 1, NBYTES + memory.PAGE, 0):
        with keeps_its_descriptors(), pytest.raises(OSError):
            Block.open_to_read(mine, block.descriptor, nbytes)
    for descriptor in (*pipe, near.fileno(), file.fileno(), 9999, -1):
        for way in (Block.open_to_read, Block.open_to_write):
            with keeps_its_descriptors(), pytest.raises(OSError):
                way(mine, descriptor, NBYTES)
    for one in pipe:
        os.close(one)
    for one in (near, far, file):
        one.close()


def test_blocks_of_a_process_that_is_gone_cannot_be_opened(block):
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError):
        Block.open_to_read(gone.pid, block.descriptor, NBYTES)


def test_no_program_that_is_started_inherits_memory(block):
    card, reader = Card(), reader_of(block)
    for descriptor in (block.descriptor, card.descriptor, reader.descriptor):
        assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    card.close()


def test_a_retired_block_gives_its_memory_back_although_a_stopped_process_maps_it(other):
    block = Block.create(NBYTES)
    inode = os.fstat(block.descriptor).st_ino
    block.try_to_write()
    write(block, 1)
    other.ask("open_to_read", os.getpid(), block.descriptor, NBYTES)
    assert other.ask("lease", 1)
    other.stop()
    assert memory_files(other.pid)[inode] >= NBYTES
    block.retire()
    assert memory_files(other.pid)[inode] == memory.PAGE, "the stamp says that nothing is there"
    assert inode not in memory_files()
    other.wake()
    assert other.ask("holds") == [False] and not other.ask("reads", 1)
    other.kill()
    assert inode not in held_anywhere()


def test_a_retired_block_waits_for_this_process_to_have_read_it():
    block = Block.create(NBYTES)
    inode = os.fstat(block.descriptor).st_ino
    block.try_to_write()
    write(block, 1)
    first, second = block.lease(1), block.lease(1)
    block.retire()
    first.release()
    assert second.holds() and shows(second.memory, 1)
    second.release()
    del block, first, second  # Python keeps a mapping, and with it the file, as long as somebody can look at it
    assert inode not in held_anywhere()


# ---------------------------------------------------------------- who may share


def test_a_process_of_this_host_shares(other):
    card = Card()
    assert other.ask("why_not_shared", os.getpid(), card.descriptor, card.nonce) == ""
    card.close()
    assert "cannot be seen" in other.ask("why_not_shared", os.getpid(), card.descriptor, card.nonce)


def test_another_card_is_another_host(tmp_path):
    card, another, mine = Card(), Card(), os.getpid()
    assert card.nonce != another.nonce
    with keeps_its_descriptors():
        assert why_not_shared(mine, another.descriptor, card.nonce) == "the master is on another host"
    for descriptor, nonce in ((another.descriptor, card.nonce[:-1]), (9999, card.nonce)):
        with keeps_its_descriptors():
            assert "cannot be seen from here" in why_not_shared(mine, descriptor, nonce)
    card.close()
    another.close()


def test_a_file_of_somebody_elses_is_neither_read_nor_written_whatever_a_master_says(tmp_path):
    """Of the right size and with the right words in it, in a process of the same user."""
    nonce, file = "0" * 32, tmp_path / "precious"
    file.write_bytes(nonce.encode())
    with file.open("rb+") as precious, keeps_its_descriptors():
        assert "cannot be seen" in why_not_shared(os.getpid(), precious.fileno(), nonce)
        os.truncate(file, memory.PAGE + NBYTES)
        with pytest.raises(OSError, match="something else"):
            Block.open_to_write(os.getpid(), precious.fileno(), NBYTES)


def test_no_pipe_socket_or_terminal_is_waited_for():
    """A number of another host may be anything here, also what would block whoever opens or reads it."""
    pipe, (near, far), terminal = os.pipe(), socket.socketpair(), os.openpty()
    for descriptor in (*pipe, near.fileno(), *terminal):
        with keeps_its_descriptors():
            assert "cannot be seen" in why_not_shared(os.getpid(), descriptor, "0" * 32)
    for descriptor in (*pipe, *terminal):
        os.close(descriptor)
    near.close()
    far.close()


def test_elsewhere_than_on_linux_nothing_is_shared(monkeypatch):
    assert why_not_here() == ""
    monkeypatch.setattr(memory, "AVAILABLE", False)
    assert "shared memory needs Linux" in why_not_here()
    assert "shared memory needs Linux" in why_not_shared(os.getpid(), 0, "")


def test_where_no_memory_file_can_be_made_nothing_is_shared(other):
    assert other.ask("why_not_here") == "no memory file can be made (Too many open files)"


def test_another_network_namespace_is_another_host():
    """Abstract sockets, over which the headers go, are of one network."""
    apart = ("unshare", "--net")
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    card = Card()
    with Child("lease_process.py", before=apart) as child:
        said = child.ask("why_not_shared", os.getpid(), card.descriptor, card.nonce)
    assert said == "the master is in another network namespace"
    card.close()


def test_another_user_sees_nothing(block, other):
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    card = Card()
    assert other.ask("become", NOBODY) == NOBODY
    said = other.ask("why_not_shared", os.getpid(), card.descriptor, card.nonce)
    assert said == "the master's memory cannot be seen from here (Permission denied)"
    for way in ("open_to_read", "open_to_write"):
        assert other.ask(way, os.getpid(), block.descriptor, NBYTES)[1] == "PermissionError"
    card.close()


# ---------------------------------------------------------------- versions


class Versions:
    """Slots, and readers of this process that lease what they hold; blocks are known by their descriptors."""

    def __init__(self, readers=3, at_most=None):
        self.slots = Slots(Size(NBYTES - 8, 8), readers)
        self.slots.at_most = at_most or self.slots.at_most
        self.incoming = [BlocksIn(self._open) for _ in range(readers)]

    def _open(self, descriptor):
        return Block.open_to_read(os.getpid(), descriptor, NBYTES)

    def publish(self, step):
        fill(self.slots.room(), step)
        return self.slots.seal(step).block

    def bytes_in_use(self):
        return sum(512 * os.fstat(block.descriptor).st_blocks for block in self.slots._blocks)


@pytest.fixture
def versions():
    made = []

    def make(**settings):
        made.append(Versions(**settings))
        return made[-1]

    yield make
    for one in made:
        one.slots.close()


@pytest.mark.parametrize(
    ("readers", "nbytes", "blocks"),
    [(0, 8, 3), (1, 8, 3), (12, 8, 14), (12, 47_000_000, 14), (64, 47_000_000, 22), (12, 2**29, 3), (12, 2**33, 3)],
)
def test_memory_for_versions_is_bounded(readers, nbytes, blocks):
    assert Slots(Size(nbytes, 0), readers).at_most == blocks


def test_two_blocks_are_enough_where_nobody_is_late(versions):
    one = versions()
    used = [one.publish(step) for step in range(6)]
    assert used == used[:2] * 3 and used[0] != used[1]
    assert one.bytes_in_use() == 2 * rounded(NBYTES)


def test_room_is_the_same_until_it_is_sealed(versions):
    slots = versions().slots
    assert slots.room() is slots.room()
    first = slots.seal(0)
    assert first.frames == []
    assert slots.room().base is not None and len(slots._blocks) == 2


def test_the_newest_version_is_never_written_over_although_nobody_reads_it(versions):
    one = versions()
    for step in range(10):
        sealed = one.publish(step)
        one.slots.room()[:] = 0  # the next is being written
        lease = one.incoming[0].lease(step, sealed, [])
        assert lease.holds() and shows(lease.memory, step)
        lease.release()


def test_as_many_blocks_as_are_read_and_two_more(versions):
    one = versions(readers=4)
    leases = []
    for step in range(4):
        sealed = one.publish(step)
        leases.append(one.incoming[step].lease(step, sealed, []))
    for step in range(4, 40):
        one.publish(step)
    assert len(one.slots._blocks) == 6 == one.slots.at_most
    assert all(lease.holds() and shows(lease.memory, step) for step, lease in enumerate(leases))
    for lease in leases:
        lease.release()
    for step in range(40, 60):
        one.publish(step)
    assert len(one.slots._blocks) == 6, "what was needed once is kept for the next time"


def test_only_at_the_bound_the_oldest_is_taken_back_and_its_reader_notices(versions):
    one = versions(readers=4, at_most=4)
    leases = {step: one.incoming[step].lease(step, one.publish(step), []) for step in range(3)}
    for step in range(3, 5):
        one.publish(step)  # 3 goes into the fourth block, 4 where 0 was
    assert [lease.holds() for lease in leases.values()] == [False, True, True]
    assert shows(leases[1].memory, 1) and shows(leases[2].memory, 2)
    assert shows(leases[0].memory, 4)
    for step in range(5, 50):
        one.publish(step)
    assert not any(lease.holds() for lease in leases.values())
    assert len(one.slots._blocks) == 4 and one.bytes_in_use() == 4 * rounded(NBYTES)


def test_a_header_that_was_overtaken_gives_no_lease(versions):
    one = versions()
    sealed = [one.publish(step) for step in range(5)]
    assert one.incoming[0].lease(2, sealed[2], []) is None
    assert one.incoming[0].lease(3, sealed[3], []).holds()


def test_closing_gives_back_everything():
    """Step 0 is the one whose number is what freed memory is full of."""
    one = Versions(readers=2)
    leases = [one.incoming[step].lease(step, one.publish(step), []) for step in range(2)]
    inodes = {os.fstat(block.descriptor).st_ino for block in one.slots._blocks}
    assert inodes <= memory_files().keys()
    one.slots.close()
    assert not any(lease.holds() for lease in leases)
    assert {memory_files()[inode] for inode in inodes} == {memory.PAGE}, "readers still have them open"


# ---------------------------------------------------------------- gradients


def test_a_gradient_is_written_into_the_masters_block_and_waits_for_the_reader(block):
    out = BlockOut(Block.open_to_write(os.getpid(), block.descriptor, NBYTES), block.descriptor)
    incoming = BlocksIn({block.descriptor: block}.__getitem__)
    assert out.room() is out.room()
    fill(out.room(), 5)
    assert incoming.lease(5, block.descriptor, []) is None, "it is not sealed"
    sealed = out.seal(5)
    assert (sealed.block, sealed.frames) == (block.descriptor, [])
    lease = incoming.lease(5, sealed.block, [])
    assert np.array_equal(lease.memory, block.payload) and shows(lease.memory, 5)
    lease.release()
    out.room()  # the next one begins
    assert incoming.lease(5, sealed.block, []) is None, "a late answer that is written over"


def test_a_block_is_opened_once(versions):
    one, opened = versions(), []

    def open_block(descriptor):
        opened.append(descriptor)
        return one._open(descriptor)

    incoming = BlocksIn(open_block)
    used = {sealed: incoming.lease(step, sealed, []).release() for step in range(8) if (sealed := one.publish(step))}
    assert sorted(opened) == sorted(used)


def test_headers_that_name_no_block_of_this_size_are_refused(block):
    incoming = BlocksIn(lambda descriptor: Block.open_to_read(os.getpid(), descriptor, NBYTES))
    small = Block.create(8)
    for descriptor in (9999, small.descriptor):
        with pytest.raises(WireError, match=f"there is no shared block {descriptor} for this worker"):
            incoming.lease(0, descriptor, [])
    with pytest.raises(WireError, match="there is no shared block 5"):
        BlocksIn({}.__getitem__).lease(0, 5, [])
    for name, frames in ((None, []), (None, [b"x"]), (block.descriptor, [b"x"])):
        with pytest.raises(WireError, match="no frame but a block of shared memory"):
            incoming.lease(0, name, frames)
    small.retire()
