"""What a worker works under. Here every message goes straight through and nothing happens; see ``faulty``."""

from collections.abc import Sequence
from typing import Any

from pgczmq.net.compute import Memory
from pgczmq.net.line import Line, Sending


class Conditions:
    """The way of a worker's messages, and what befalls it at work.

    Attributes:
        evaluating: the kind of call that an evaluation is, as in ``Beside.call``.
    """

    evaluating = "evaluate"

    def hears(self) -> bool:
        """Whether a message that has come from the master gets through."""
        return True

    def send_control(self, line: Line, frames: Sequence[Any]) -> bool:
        """Send a small message now, or not at all; tells whether it has left."""
        return line.send_now(frames) is None

    def send(self, line: Line, frames: Sequence[Any]) -> Sending:
        """Send an answer, or a question about one, now or as soon as the master can be reached."""
        return line.send(frames)

    def begins(self, step: int) -> None:
        """An evaluation at this step comes next; called where it is made, on the compute thread or the loop."""

    def encoded(self, step: int, vector: Memory) -> None:
        """The coded gradient of the answer to this step is in ``vector``; called where it was put there."""
