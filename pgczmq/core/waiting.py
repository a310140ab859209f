"""What is said while a run waits for workers, before its first step and in an open one. Part of the engine's state."""

from pgczmq.core.events import Note
from pgczmq.core.members import Members
from pgczmq.core.open_step import OpenStep, could_close
from pgczmq.core.schemes import Scheme

REMIND_SECONDS = 10.0


class Waiting:
    """Of one run.

    Args:
        scheme: which workers are enough.
        members: which there are.
        started_at: the run waits for them since then, seconds.
        step_timeout: of a step, seconds; then the run ends.
    """

    def __init__(self, scheme: Scheme, members: Members, started_at: float, step_timeout: float) -> None:
        self._scheme = scheme
        self._members = members
        self._reminded_at = started_at
        self._ends = f"the run ends after {step_timeout:g} s of this (net.step_timeout)"
        self._said = ""  # of the open step

    def absent(self) -> str:
        """Numbers of the workers that cannot be counted on."""
        return ", ".join(map(str, self._members.absent()))

    def remind(self, at: float) -> list[Note]:
        """Every now and then, before the first step: who is missing."""
        if at - self._reminded_at < REMIND_SECONDS:
            return []
        self._reminded_at = at
        ready, workers = len(self._members.ready), self._scheme.workers
        return [Note("starting", f"{ready}/{workers} workers ready, missing {self.absent()}")]

    def note(self, opened: OpenStep) -> list[Note]:
        """When the open step can no longer close with the workers there are, and when it can again."""
        hoped = opened.hoped(self._members.ready)
        text = "" if could_close(self._scheme, opened, hoped) else self.missing(opened)
        if text == self._said:
            return []
        before, self._said = self._said, text
        if text:
            return [Note("waiting", f"step {opened.step} cannot close: {text}; {self._ends}", step=opened.step)]
        return [Note("enough", "enough workers again", step=opened.step)] if before else []

    def missing(self, opened: OpenStep) -> str:
        """Whose answers the open step lacks for want of a worker."""
        absent = [worker for worker in self._members.absent() if worker not in opened.answers]
        names = ", ".join(map(str, absent)) or "nobody"
        return f"{self._scheme.name} needs {opened.plan.k} of {self._scheme.workers} workers; missing {names}"

    def forget(self) -> None:
        """The step has closed."""
        self._said = ""
