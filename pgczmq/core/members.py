"""Who is in the run: joining, leaving, silence, and two workers with one number. Part of the engine's state.

A worker is *joined* once it is admitted, *ready* once it hears the broadcast, *gone* when it can no longer be reached
or has been silent for SILENT_HEARTBEATS, and *left* when it said goodbye. A gone worker that is heard again under the
same incarnation was only slow and is ready again; a left one stays away; a new incarnation starts over. What was on its
way from a worker's life before, or lay unread while the master was stopped, does not keep its next life out. Nor does
a life before that nobody has said goodbye for: whoever asks for any number when all are taken has its answer once all
holders have been heard of since, or one of them is gone.
"""

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pgczmq.core.events import Admit, Command, Joined, Note, Probe, Reject

SILENT_HEARTBEATS = 3


@dataclass
class Member:
    """One worker number as the master sees it."""

    incarnation: str
    heard_at: float
    state: str = "joined"  # joined | ready | gone | left
    was_ready: bool = False  # has heard the broadcast: not for whoever fell silent between joining and that
    answered: int = -1  # last step of this incarnation that an answer was counted for
    process: str = ""
    rival: Joined | None = None  # another worker that wants this number, until the probe is answered

    @property
    def is_over(self) -> bool:
        """Its process has begun another life."""
        return self.rival is not None and bool(self.process) and self.rival.process == self.process

    @property
    def is_away(self) -> bool:
        """Not to be counted on."""
        return self.state in {"gone", "left"}


class Members:
    """All workers of the run, by number."""

    def __init__(self, workers: int, heartbeat: float) -> None:
        self._workers = workers
        self._heartbeat = heartbeat
        self._patience = SILENT_HEARTBEATS * heartbeat
        self._members: dict[int, Member] = {}
        self._ready: set[int] = set()
        self._lost_at: dict[int, float] = {}  # of workers that were ready and are not
        self._asked_at: dict[str, float] = {}  # first for any number, when all were taken; by incarnation

    @property
    def ready(self) -> AbstractSet[int]:
        """Numbers of the workers that can be counted on; not to be changed."""
        return self._ready

    def absent(self) -> list[int]:
        """Numbers of the workers that cannot, ascending."""
        return [worker for worker in range(self._workers) if worker not in self._ready]

    def find(self, worker: int, incarnation: str) -> Member | None:
        """The member with this number if this is its current incarnation."""
        member = self._members.get(worker)
        return member if member is not None and member.incarnation == incarnation else None

    def find_ready(self, worker: int, incarnation: str) -> Member | None:
        """The same if it can be counted on."""
        member = self._members.get(worker)
        if member is None or member.incarnation != incarnation or member.state != "ready":
            return None
        return member

    def incarnation(self, worker: int) -> str:
        """Current incarnation of a known worker."""
        return self._members[worker].incarnation

    def join(self, event: Joined) -> list[Command]:
        """Admit, reject, or first find out whether the present holder of the number still lives."""
        worker = self._own_or_lowest_free(event) if event.worker is None else event.worker
        if worker is None and self._may_become_free(event):
            return []  # it asks again
        if worker is None or not 0 <= worker < self._workers:
            return [Reject(None, event.incarnation, self._no_such_number(event.worker))]
        member = self._members.get(worker)
        if member is not None and member.incarnation == event.incarnation:  # it asks again
            if member.is_over:
                return []
            commands = self._turn_away_rival(worker, member) + self._admit(worker, event)
            self._members[worker].answered = member.answered
            return commands
        if member is None or member.is_away:
            return self._admit(worker, event)
        if member.rival is not None and member.rival.incarnation == event.incarnation:
            return [Probe(worker, member.incarnation)]
        commands = self._turn_away_rival(worker, member)
        member.rival = event
        return [*commands, Probe(worker, member.incarnation)]

    def hear(self, worker: int, incarnation: str, at: float) -> tuple[bool, list[Command]]:
        """Note a sign of life; tells whether a gone worker is back with it."""
        member = self._members.get(worker)
        if member is None or member.incarnation != incarnation or member.state == "left":
            return False, []
        if at > member.heard_at:
            member.heard_at = at
        if member.state == "ready" and member.rival is None:
            return False, []
        commands: list[Command] = []
        if member.rival is not None and at > member.rival.at and not member.is_over:
            commands += self._turn_away_rival(worker, member)
        back = member.state == "gone" and member.was_ready
        if member.state == "gone":
            self._become(worker, "ready" if back else "joined")
        if back:
            commands.append(self._note_ready(worker, at))
        return back, commands

    def make_ready(self, worker: int, incarnation: str, at: float) -> list[Command]:
        """From joined to ready; nothing when it is neither new nor known."""
        member = self.find(worker, incarnation)
        if member is None or member.state == "ready":
            return []
        member.was_ready = True
        self._become(worker, "ready")
        return [self._note_ready(worker, at)]

    def _note_ready(self, worker: int, at: float) -> Note:
        """What a person should know, with the time to rejoin where it was lost before."""
        lost_at = self._lost_at.pop(worker, None)
        if lost_at is None:
            return Note("ready", f"worker {worker} is ready", worker=worker)
        seconds = at - lost_at
        return Note("ready", f"worker {worker} is back after {seconds:.1f} s", worker=worker, seconds=seconds)

    def forget_answer(self, worker: int, step: int) -> None:
        """An answer to ``step`` was not kept after all; the worker may send it again."""
        member = self._members[worker]
        member.answered = min(member.answered, step - 1)

    def leave(self, worker: int, incarnation: str, reason: str, at: float, *, state: str = "gone") -> list[Command]:
        """Count on this worker no more; a rival for its number is admitted.

        Args:
            state: "gone" may be heard again and is back then; "left" said goodbye, and what is still on its way
                does not bring it back.
        """
        member = self.find(worker, incarnation)
        if member is None or member.is_away:
            return []
        if member.state == "ready":
            self._lost_at[worker] = at
        self._become(worker, state)
        commands: list[Command] = [Note("left", f"worker {worker} {reason}", worker=worker)]
        if member.rival is not None:
            commands += self._admit(worker, member.rival)
        return commands

    def expire(self, at: float, deaf: float = 0.0) -> list[Command]:
        """Let go of whoever has been silent for too long.

        Args:
            deaf: seconds since the last time in which the master itself did not listen.
        """
        if deaf:
            for member in self._members.values():
                member.heard_at = min(at, member.heard_at + deaf)
                if member.rival is not None:
                    member.rival = replace(member.rival, at=min(at, member.rival.at + deaf))
        recent = {who: min(at, asked_at + deaf) for who, asked_at in self._asked_at.items()}
        self._asked_at = {who: asked_at for who, asked_at in recent.items() if at - asked_at <= self._patience}
        commands: list[Command] = []
        for worker, member in list(self._members.items()):
            silent = at - member.heard_at
            outdone = member.rival is not None and at - max(member.rival.at, member.heard_at) > self._heartbeat
            if not member.is_away and (member.is_over or outdone or silent > self._patience):
                reason = "begins again" if member.is_over else f"has been silent for {silent:.1f} s"
                commands += self.leave(worker, member.incarnation, reason, at)
        return commands

    def _admit(self, worker: int, event: Joined) -> list[Command]:
        self._asked_at.pop(event.incarnation, None)
        self._members[worker] = Member(event.incarnation, event.at, process=event.process)
        self._become(worker, "joined")
        return [Admit(worker, event.incarnation)]

    def _become(self, worker: int, state: str) -> None:
        """The one place where a state changes, so that the set of the ready is right."""
        self._members[worker].state = state
        if state == "ready":
            self._ready.add(worker)
        else:
            self._ready.discard(worker)

    def _turn_away_rival(self, worker: int, member: Member) -> list[Command]:
        if member.rival is None:
            return []
        reason = f"worker {worker} is already in this run and alive; choose another --id, or stop that one first"
        rival, member.rival = member.rival, None
        return [Reject(worker, rival.incarnation, reason)]

    def _own_or_lowest_free(self, event: Joined) -> int | None:
        for worker, member in self._members.items():
            if member.incarnation == event.incarnation or (event.process and event.process == member.process):
                return worker  # its first hello was heard already
        taken = {worker for worker, member in self._members.items() if not member.is_away}
        return next((worker for worker in range(self._workers) if worker not in taken), None)

    def _may_become_free(self, event: Joined) -> bool:
        """Whether a holder of a number has not been heard of since somebody first asked for any; it may be dead.

        As many are remembered as there are workers: more are strangers, and told at once that all numbers are taken.
        """
        if len(self._asked_at) < self._workers:
            self._asked_at.setdefault(event.incarnation, event.at)
        asked_at = self._asked_at.get(event.incarnation, -math.inf)
        if any(member.heard_at <= asked_at for member in self._members.values() if not member.is_away):
            return True
        self._asked_at.pop(event.incarnation, None)
        return False

    def _no_such_number(self, worker: int | None) -> str:
        if worker is None:
            return f"all {self._workers} worker numbers are taken; raise workers in the configuration to add more"
        return f"worker numbers run from 0 to {self._workers - 1} in this run: got {worker}"
