"""What became of every answer that a worker of a soak had ready to send; and what processes held on to meanwhile."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pgczmq.app.faults import faults_of
from pgczmq.bench.torture.soak.audit import Evidence, Findings
from pgczmq.train.marks import Applied, Sent

LAST_SECONDS = 2.0
"""What a process has sent may be on its way for so long, and be lost with it."""
STOP_SECONDS = 3.0
"""A process that is stopped loses its connections; for so long around that, what it sent may be lost with them."""
MEMORY_BYTES = 20_000_000
"""A process may grow by so much over what it was after its first minute."""
FIRST_SECONDS = 60.0
LOSING = ("drop", "corrupt", "delay", "reorder")
"""Faults that may cost an answer: what comes after the worker's next answer counts no more."""
DESCRIPTORS = 3
"""A connection that is just being made or closed: so many more are no growth."""


@dataclass(frozen=True)
class Process:
    """A life of a program as its supervisor saw it; times on the machine's monotonic clock.

    Args:
        role: "master", or "worker 3".
        pid: of the process.
        began, ended: when.
        how: it ended: "killed", "terminated", or "exit 0" and the like when it did so of itself.
        code: its exit code, or minus the signal that ended it.
        stops: when it was stopped, and when it went on.
    """

    role: str
    pid: int
    began: float
    ended: float
    how: str
    code: int
    stops: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Sample:
    """What a process held at one moment.

    Args:
        role, pid: whose.
        age: seconds since it began.
        memory: resident bytes.
        descriptors: open files and sockets.
    """

    role: str
    pid: int
    age: float
    memory: int
    descriptors: int

    @property
    def kind(self) -> str:
        """master or worker."""
        return self.role.split()[0]


# ---------------------------------------------------------------- answers


def fates(evidence: Evidence, processes: Sequence[Process], findings: Findings) -> Mapping[str, int]:
    """How many answers were used, spare, late, refused or lost, and with what; an answer without a fate is a finding.

    An answer that the master has not heard of is lost with its worker's process, or its master's, if one of them ended
    right after it was sent or the step was done again; with its connection around a stop; or by a planned fault.
    """
    accounted = _accounted(evidence)
    lost = _Lost(evidence, processes)
    counts: Counter[str] = Counter()
    heard_later: set[str] = set()  # incarnations with an answer after this one that was heard
    for sent in reversed(evidence.sent):
        mark = sent.mark
        fate = accounted.get((mark.incarnation, mark.step))
        if fate is not None:
            heard_later.add(mark.incarnation)
        else:
            fate = lost.why(sent, heard_later=mark.incarnation in heard_later)
        counts[fate or "without a fate"] += 1
        if not fate:
            whose = f"worker {mark.worker}'s answer to step {mark.step} ({mark.incarnation})"
            findings.add("answers without a fate", f"nothing tells what became of {whose}")
    known = {(sent.mark.incarnation, sent.mark.step) for sent in evidence.sent}
    for answer in evidence.answers:
        if answer.outcome == "open" and (answer.incarnation, answer.step) not in known:
            findings.add("never sent", f"worker {answer.worker} answered step {answer.step}, and never sent that")
    return dict(sorted(counts.items()))


def _accounted(evidence: Evidence) -> dict[tuple[str, int], str]:
    """Of each (incarnation, step) that the records know, what became of it."""
    steps = {record.step: record for record in evidence.steps}
    found: dict[tuple[str, int], str] = {}
    for answer in evidence.answers:
        record = steps.get(answer.step)
        fate = "late"
        if answer.outcome == "open" and record is not None and answer.worker in record.arrived:
            fate = "used" if answer.worker in record.used else "spare"
        found[answer.incarnation, answer.step] = fate
    incarnations = defaultdict(set)
    for sent in evidence.sent:
        incarnations[sent.mark.worker, sent.mark.step].add(sent.mark.incarnation)
    for event in evidence.events:
        if event.kind == "refused" and event.worker is not None and event.step is not None:
            for incarnation in incarnations[event.worker, event.step]:
                found.setdefault((incarnation, event.step), "refused")
    return found


class _Lost:
    """Why an answer that the master does not know of may be lost."""

    def __init__(self, evidence: Evidence, processes: Sequence[Process]) -> None:
        self._plan = faults_of(evidence.config)
        self._processes = {process.pid: process for process in processes}
        self._masters = dict(_masters(evidence))
        self._redone = dict(_redone(evidence.applied))
        self._master_ends = [process.ended for process in processes if process.role == "master"]

    def why(self, sent: Sent, *, heard_later: bool) -> str:
        """In words; empty when it may not be.

        Args:
            heard_later: a later answer of the same incarnation was heard, so that its connection went on.
        """
        if sent.mark.step >= self._redone.get(self._masters.get(sent.master, -1), 2**63):
            return "lost with its master"
        process = self._processes.get(sent.process)
        stops = () if process is None else process.stops
        if any(begin - STOP_SECONDS <= sent.at <= end + STOP_SECONDS for begin, end in stops):
            return "lost with its connection"
        if any(fault.kind in LOSING for fault in self._plan.of(sent.mark.worker, sent.mark.step)):
            return "lost by a planned fault"
        if heard_later:
            return ""
        if process is not None and process.ended - sent.at <= LAST_SECONDS:
            return "lost with its process"
        if any(0 <= ended - sent.at <= LAST_SECONDS for ended in self._master_ends):
            return "lost with its master"
        return ""


def _masters(evidence: Evidence) -> Iterator[tuple[str, int]]:
    """The process of each life of the master that applied something."""
    sent = {(one.mark.incarnation, one.mark.step): one for one in evidence.sent}
    for one in evidence.applied:
        for _, _, mark in one.messages:
            origin = None if mark is None else sent.get((mark.incarnation, mark.step))
            if origin is not None:
                yield origin.master, one.master


def _redone(applied: Sequence[Applied]) -> Iterator[tuple[int, int]]:
    """For each master's process after which another one took up a checkpoint: the first step that was done again."""
    order = list(dict.fromkeys(one.master for one in applied))
    steps = {one.sha256: one.step + 1 for one in applied if one.messages}
    taken_up = {one.master: steps.get(one.sha256, 0) for one in applied if not one.messages}
    for earlier, later in pairwise(order):
        yield earlier, taken_up.get(later, 0)


# ---------------------------------------------------------------- growth


def growth(samples: Sequence[Sample], findings: Findings) -> None:
    """No process ever holds more memory than the first of its kind did in its first minute, and what is no growth."""
    for kind in dict.fromkeys(sample.kind for sample in samples):
        mine = [sample for sample in samples if sample.kind == kind]
        first = [sample for sample in mine if sample.pid == mine[0].pid and sample.age <= FIRST_SECONDS]
        limit = max(sample.memory for sample in first) + MEMORY_BYTES
        for sample in mine:
            if sample.memory > limit:
                text = (
                    f"{_who(sample)} has {sample.memory / 1e6:.0f} MB, over the {limit / 1e6:.0f} MB that are no growth"
                )
                findings.add(f"memory of {kind}s", text)


def leaks(first: Sequence[Sample], last: Sequence[Sample], findings: Findings) -> None:
    """With everybody there, nobody has more open files at the end than the first of its kind had at the beginning."""
    for sample in last:
        before = [other.descriptors for other in first if other.kind == sample.kind]
        limit = max(before, default=0) + DESCRIPTORS
        if sample.descriptors > limit:
            text = f"{_who(sample)} has {sample.descriptors} open files, over the {limit} that are no growth"
            findings.add(f"open files of {sample.kind}s", text)


def _who(sample: Sample) -> str:
    return f"{sample.role} (process {sample.pid}) at the age of {sample.age:.0f} s"
