"""Versions of the parameters, published as fast as it goes to readers that are stopped and killed in every state."""

import os
from dataclasses import dataclass, field
from typing import Any

from crowd import Crowd, Member
from leased import FIRST_HALF, SECOND_HALF, fill

from pgczmq.net.memory import Block
from pgczmq.net.payload import Size, Slots

NBYTES = 1 << 20
STATES = ("waiting", "locked", "leased", "reading", "read", "released")
KEEPS = (3, 30, 150, 300)


@dataclass
class Findings:
    """What a scenario came to.

    Args:
        reads: that were right, under a lease that held.
        torn: wrong, although the lease held.
        discarded: the lease did not hold any more: the reader was cut off, and noticed.
        unnoticed: the lease is said to hold, of a reader that slept while its version was taken back.
        unfair: the lease does not hold although the bound on memory was not in the way.
        overtaken: payloads of which there was no lease any more.
        most_bytes: of all blocks together, at any step.
        inodes: of the blocks.
    """

    reads: int = 0
    torn: int = 0
    discarded: int = 0
    unnoticed: int = 0
    unfair: int = 0
    overtaken: int = 0
    most_bytes: int = 0
    inodes: set[int] = field(default_factory=set)


class Watched(Slots):
    """Remembers which versions were taken back."""

    def __init__(self, size: Size, readers: int) -> None:
        super().__init__(size, readers)
        self.taken_back: set[int] = set()
        self.just_taken: int | None = None

    def _oldest(self) -> Block:
        stamps = {id(block): block.stamp for block in self._blocks}
        block = super()._oldest()
        self.just_taken = stamps[id(block)]
        self.taken_back.add(self.just_taken)
        return block

    def note(self, findings: Findings) -> None:
        """What the blocks take now."""
        about = [os.fstat(block.descriptor) for block in self._blocks]
        findings.most_bytes = max(findings.most_bytes, sum(512 * one.st_blocks for one in about))
        findings.inodes |= {one.st_ino for one in about}


class Readers:
    """The scenario.

    Args:
        seed: as the crowd's.
        readers: how many processes.
        blocks: at most; fewer than there are readers, so that some are cut off.
        mutant: what is wrong with the readers.
    """

    def __init__(self, seed: int, *, readers: int, blocks: int, mutant: str = "") -> None:
        self._slots = Watched(Size(NBYTES, 0), readers)
        self._slots.at_most = blocks
        self.crowd = Crowd(seed, readers, lambda number: Member("lease_reader.py", os.getpid(), NBYTES, mutant))
        self._must_lose: dict[Member, set[int]] = {}
        self._step = 0
        self.findings = Findings()

    def run(self, steps: int) -> Findings:
        """So many steps, then everybody ends; whatever happens nobody is left."""
        try:
            for self._step in range(steps):
                block = self._write()
                self.crowd.disturb(self._step)
                self._publish(block, everybody_pauses=self._step % 100 == 50)
                self._listen()
                self._slots.note(self.findings)
            self._end()
        finally:
            self.crowd.close()
            self._slots.close()
        return self.findings

    # ------------------------------------------------------------ the master

    def _write(self) -> int:
        """The version of this step, in two halves where somebody was cut off: between them a sleeper wakes."""
        self._slots.just_taken = None
        payload = self._slots.room()
        fill(payload, self._step, FIRST_HALF)
        if self._slots.just_taken is not None:
            self._cut_off(self._slots.just_taken)
        fill(payload, self._step, SECOND_HALF)
        block = self._slots.seal(self._step).block
        assert block is not None
        return block

    def _cut_off(self, step: int) -> None:
        """Those who sleep with this version must notice; one of them wakes now, and has all of it still to read."""
        asleep = [member for member in self.crowd.members if step in member.held]
        for member in asleep:
            self._must_lose.setdefault(member, set()).add(step)
        for member in [one for one in asleep if one.paused_at == "leased"][:1]:
            member.wake()
            while (message := member.hear())[0] != "read":
                member.wake()  # it was to pause once more
            self._take(member, message)

    def _publish(self, block: int, everybody_pauses: bool) -> None:
        draw = self.crowd.draw
        for member in self.crowd.members:
            if member.running:
                if everybody_pauses or draw.random() < 0.08:
                    member.pause_at("leased" if everybody_pauses else draw.choice(STATES))
                member.say([self._step, block, draw.choice(KEEPS) if draw.random() < 0.2 else 0])

    def _listen(self) -> None:
        """As a step waits for somebody's answer, if somebody is awake."""
        while True:
            running = [member for member in self.crowd.members if member.running]
            said = self.crowd.said(running)
            for member in said:
                self._take(member, member.hear())
            if not running or set(said) & set(running):
                return

    def _end(self) -> None:
        for member in self.crowd.members:
            member.wake()
            for message in member.end():
                self._take(member, message)

    # ------------------------------------------------------------ what the readers say

    def _take(self, member: Member, message: list[Any]) -> None:
        assert message is not None, "a reader has ended that nobody ended"
        match message:
            case ["paused", state, _]:
                self.crowd.stop(member, self._step, state)
            case ["none", _]:
                self.findings.overtaken += 1
            case ["read", step, right, held]:
                self._judge(member, step, right, held)

    def _judge(self, member: Member, step: int, right: bool, held: bool) -> None:
        findings = self.findings
        findings.reads += right and held
        findings.torn += held and not right
        findings.discarded += not held
        findings.unfair += not held and step not in self._slots.taken_back
        findings.unnoticed += held and step in self._must_lose.get(member, ())
