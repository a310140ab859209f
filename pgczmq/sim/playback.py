"""The workers of a recorded run: answers arrive when they did, whatever is published now."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgczmq.core.delays import Failure
from pgczmq.core.events import Arrived
from pgczmq.runlog import LatencyRecord
from pgczmq.sim.crew import Message
from pgczmq.sim.virtual import ARRIVES, Agenda


@dataclass(slots=True, eq=False)
class Played:
    """One life of a recorded worker."""

    incarnation: str
    alive: bool = True


class Playback:
    """Takes the place of ``sim.crew.Crew``: nobody computes, nobody is behind.

    Args:
        answers: of the recorded run, in order of arrival.
        agenda: of the simulation.
        deliver: takes a message when it is with the master.
        since: the record's time, in seconds, that is 0 on the agenda.
    """

    def __init__(
        self, answers: Sequence[LatencyRecord], agenda: Agenda, deliver: Callable[[Message], None], *, since: float
    ) -> None:
        self._agenda = agenda
        self._deliver = deliver
        self._since = since
        self._lives: dict[int, Played] = {}  # by number
        self._names: dict[int, list[str]] = defaultdict(list)  # incarnations still to come, first one first
        for answer in answers:
            names = self._names[answer.worker]
            if not names or names[-1] != answer.incarnation:
                names.append(answer.incarnation)
            agenda.add(answer.arrived_at - since, ARRIVES, self._arrive, answer)

    @property
    def incarnations(self) -> list[tuple[int, str]]:
        """(worker, incarnation) of everybody alive."""
        return [(worker, life.incarnation) for worker, life in self._lives.items()]

    def come(self, worker: int) -> str:
        """A worker begins its next life; returns its incarnation, as recorded if it ever answered."""
        names = self._names[worker]
        life = self._lives[worker] = Played(names.pop(0) if names else "silent")
        return life.incarnation

    def go(self, worker: int) -> str:
        """A worker dies; returns the incarnation that was."""
        life = self._lives.pop(worker)
        life.alive = False
        return life.incarnation

    def publish(self, step: int, batch_fraction: float) -> None:
        """What they do is known already."""

    def send(self, worker: int) -> None:
        """The same."""

    def oldest_in_hand(self, otherwise: int) -> int:
        """Nobody works."""
        return otherwise

    def forget(self) -> None:
        """Nobody retains anything."""

    def _arrive(self, answer: LatencyRecord) -> None:
        life, at = self._lives[answer.worker], self._agenda.now
        event = Arrived(answer.worker, life.incarnation, answer.step, (), (), 0.0, at)
        begun_at = answer.published_at + answer.wait - self._since
        self._deliver(Message(life, event, None, at - answer.send, begun_at, answer.compute, answer.delay))


def lives_between(answers: Sequence[LatencyRecord], *, since: float) -> list[Failure]:
    """Every worker that answered under another incarnation than before: gone and back between the two answers.

    Args:
        answers: in order of arrival.
        since: the record's time, in seconds, that is 0 in the result.
    """
    found: list[Failure] = []
    last: dict[int, LatencyRecord] = {}
    for answer in answers:
        before = last.get(answer.worker)
        if before is not None and before.incarnation != answer.incarnation:
            third = (answer.arrived_at - before.arrived_at) / 3
            down_at = before.arrived_at - since + third
            found.append(Failure(answer.worker, down_at, down_at + third))
        last[answer.worker] = answer
    return found
