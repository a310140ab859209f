"""The answers that a run received, counted, and what is told of them with the next step. Part of the engine's state."""

from pgczmq.core.events import Arrived, ClosedStep, Note, Outcome

LATE_TOLD_AT_MOST = 1000
"""So many late answers between two steps are told with the next one: a worker may send those of all steps at once."""


class Received:
    """All answers of a run.

    Args:
        messages: received before this master.
        late: how many of them after their step had closed.

    Attributes:
        outcome: what became of the last closed step's messages.
    """

    def __init__(self, messages: int, late: int) -> None:
        self.messages = messages
        self.late = late
        self.outcome = Outcome()
        self._untold: list[tuple[int, int]] = []  # (worker, step) of late ones

    @property
    def late_fraction(self) -> float:
        """Of the messages received."""
        return self.late / self.messages if self.messages else 0.0

    def count_late(self, event: Arrived, open_step: int) -> Note:
        """This one came after its step had closed."""
        self.late += 1
        if event.step == open_step or len(self._untold) < LATE_TOLD_AT_MOST:  # the open step's may be taken back
            self._untold.append((event.worker, event.step))
        return Note("late", f"worker {event.worker} answered step {event.step} late", event.worker, event.step)

    def take_back_late(self, step: int) -> list[int]:
        """Answers to the step that is open again may be sent again: they came while it was being applied.

        Returns:
            Whose they were.
        """
        again = [worker for worker, late_step in self._untold if late_step == step]
        self._untold = [(worker, late_step) for worker, late_step in self._untold if late_step != step]
        self.late -= len(again)
        self.messages -= len(again)
        return again

    def close(self, closed: ClosedStep) -> None:
        """A step has closed."""
        self.outcome = Outcome(closed.step, closed.used, closed.spare)

    def tell(self) -> Outcome:
        """What the next publication says of the step before, and of everything late since then; once."""
        told = Outcome(self.outcome.step, self.outcome.used, self.outcome.spare, tuple(self._untold))
        self._untold.clear()
        return told
