"""Gradients of processes that are stopped and killed in every state of writing them, read while they write on."""

import os
from dataclasses import dataclass, field
from typing import Any

from crowd import Crowd, Member
from leased import shows
from torture import NBYTES, Findings

from pgczmq.net.memory import Block
from pgczmq.net.payload import BlocksIn, Lease

STATES = ("waiting", "taken", "writing", "written", "sealed")
KEEPS = (0, 1, 2, 5, 40)


@dataclass
class _End:
    """The test's end of one writer's block, for one life."""

    block: Block
    incoming: BlocksIn
    told: int = -1
    sealed: int = -1
    until: int = 0
    lease: Lease | None = field(default=None)

    @classmethod
    def new(cls) -> "_End":
        block = Block.create(NBYTES)
        return cls(block, BlocksIn({block.descriptor: block}.__getitem__))


class Writers:
    """The scenario.

    Args:
        seed: as the crowd's.
        writers: how many processes.
        mutant: what is wrong with them.
    """

    def __init__(self, seed: int, *, writers: int, mutant: str = "") -> None:
        self._mutant = mutant
        self._ends: dict[int, _End] = {}
        self._step = 0
        self.findings = Findings()
        self.crowd = Crowd(seed, writers, self._start)

    def _start(self, number: int) -> Member:
        """A life begins with a block of its own; what the last one left is read once more, and its block retired."""
        before = self._ends.get(number)
        if before is not None:
            self._look_at_what_is_left(before)
        end = self._ends[number] = _End.new()
        self.findings.inodes.add(os.fstat(end.block.descriptor).st_ino)
        return Member("lease_writer.py", os.getpid(), end.block.descriptor, NBYTES, self._mutant)

    def run(self, steps: int) -> Findings:
        """So many steps, then everybody ends; whatever happens nobody is left."""
        try:
            for self._step in range(steps):
                self._release()
                self.crowd.disturb(self._step)
                self._ask()
                self._listen()
            self._kill_one_half_way(self._step + 1)
            self._end()
        finally:
            self.crowd.close()
            for end in self._ends.values():
                end.block.retire()
            self._ends.clear()
        return self.findings

    def _ask(self) -> None:
        """Also those are told of the step who have to wait until their last answer is read, and some who are late."""
        for member, end in zip(self.crowd.members, self._ends.values(), strict=True):
            if member.running and (end.sealed == end.told or self.crowd.draw.random() < 0.2):
                if self.crowd.draw.random() < 0.15 or self._step % 100 == 50:
                    member.pause_at("writing" if self._step % 100 == 50 else self.crowd.draw.choice(STATES))
                member.say([self._step])
                end.told = self._step

    def _listen(self) -> None:
        """As a step waits for somebody's answer, if there is one to be expected."""
        ends = dict(zip(self.crowd.members, self._ends.values(), strict=True))
        while True:
            expected = {one for one, end in ends.items() if one.running and end.lease is None and end.sealed < end.told}
            said = self.crowd.said(expected)
            for member in said:
                self._take(member, ends[member], member.hear())
            if not expected or expected & set(said):
                return

    def _take(self, member: Member, end: _End, message: list[Any]) -> None:
        assert message is not None, "a writer has ended that nobody ended"
        match message:
            case ["paused", state, _]:
                self.crowd.stop(member, self._step, state)
                member.doomed |= state == "writing"
            case ["sealed", step]:
                self._read(end, step)

    def _read(self, end: _End, step: int) -> None:
        """Lease it and keep it for a while, unless it is written over by the answer to a later step."""
        if end.lease is not None:
            self.findings.unfair += 1  # it was written over while it was leased
            self._finish(end)
        end.sealed = step
        end.lease = end.incoming.lease(step, end.block.descriptor, [])
        end.until = self._step + self.crowd.draw.choice(KEEPS)
        self.findings.overtaken += end.lease is None
        self.findings.unfair += end.lease is None and step == end.told

    def _release(self) -> None:
        for end in self._ends.values():
            if end.lease is not None:
                if end.until <= self._step:
                    self._finish(end)
                else:
                    self.findings.torn += not shows(end.lease.memory, end.sealed)

    def _finish(self, end: _End) -> None:
        """Read it, as the master does: without looking whether the lease holds, since nobody may take it back."""
        lease, end.lease = end.lease, None
        assert lease is not None
        right = shows(lease.memory, end.sealed)
        self.findings.reads += right
        self.findings.torn += not right
        lease.release()

    def _look_at_what_is_left(self, end: _End) -> None:
        """Its writer was killed: a header of the last payload that comes again leads to all of it, or to nothing."""
        if end.lease is None and end.sealed >= 0:
            end.lease = end.incoming.lease(end.sealed, end.block.descriptor, [])
        end.block.retire()
        if end.lease is None:
            self.findings.discarded += 1
        else:
            self._finish(end)

    def _kill_one_half_way(self, step: int) -> None:
        """Surely once: a whole payload, then half of the next."""
        member, end = self.crowd.members[0], self._ends[0]
        if end.lease is not None:
            self._finish(end)
        member.wake()
        member.say([step])
        while (message := member.hear()) != ["sealed", step]:
            assert message is not None
            member.wake()
        end.sealed = step
        member.pause_at("writing")
        member.say([step + 1])
        while member.paused_at != "writing":
            member.wake()
            assert member.hear() is not None
        self.crowd.replace(0)

    def _end(self) -> None:
        for member, end in zip(self.crowd.members, self._ends.values(), strict=True):
            if end.lease is not None:
                self._finish(end)
            member.wake()
            for message in member.end():
                self._take(member, end, message)
                if end.lease is not None:
                    self._finish(end)
