"""Where a worker's time went, step by step: what the simulator needs to tell the same story again."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pgczmq.net import wire


@dataclass
class StepTimes:
    """Where the time of one step went, seconds.

    Evaluations and the delay are measured between the pipeline's events, so that they add up without gaps.
    """

    step: int
    received_at: float
    wait: float
    since: float  # the last event
    evaluations: list[float] = field(default_factory=list)
    encoding: float = 0.0
    delay: float = 0.0

    def lap(self, at: float) -> float:
        """The time since the last event; a new one begins."""
        seconds, self.since = at - self.since, at
        return seconds

    def told(self) -> dict[str, Any]:
        """As the answer to the step tells it."""
        return {
            "wait": self.wait,
            "compute": sum(self.evaluations) + self.encoding,
            "delay": self.delay,
            "received_at": self.received_at,
            "evaluations": self.evaluations,
        }


class Timesheet:
    """The step in hand, and those that were given up since the last answer.

    Attributes:
        in_hand: the step that was begun and is neither answered nor given up, if there is one.
    """

    def __init__(self) -> None:
        self.in_hand: StepTimes | None = None
        self._dropped: deque[StepTimes] = deque(maxlen=wire.DROPPED_AT_MOST)

    def begin(self, step: int, received_at: float, at: float) -> None:
        """A step is taken in hand; one that is still there will not be answered."""
        self.give_up(at)
        self.in_hand = StepTimes(step, received_at, at - received_at, at)

    def skip(self, step: int, received_at: float, at: float) -> None:
        """A step that was never begun will not be answered."""
        self._dropped.append(StepTimes(step, received_at, 0.0, at))

    def give_up(self, at: float) -> None:
        """The step in hand, if there is one, will not be answered."""
        if self.in_hand is not None:
            self.in_hand.delay = self.in_hand.lap(at)
            self._dropped.append(self.in_hand)
            self.in_hand = None

    def put_down(self) -> StepTimes:
        """The step in hand is answered."""
        assert self.in_hand is not None
        times, self.in_hand = self.in_hand, None
        return times

    def tell_dropped(self, step: int) -> dict[str, Any]:
        """What was given up between the answer before and this step, once; what came later is for the next answer."""
        if not self._dropped:
            return {}
        earlier = {times.step: times for times in self._dropped if times.step < step}
        later = [times for times in self._dropped if times.step >= step]
        self._dropped.clear()
        self._dropped.extend(later)
        told = [earlier[number] for number in sorted(earlier)]
        return {
            "dropped": [times.step for times in told],
            "dropped_received_at": [times.received_at for times in told],
            "dropped_delay": [times.delay for times in told],
            "dropped_evaluated": [len(times.evaluations) for times in told],
            "dropped_evaluations": [seconds for times in told for seconds in times.evaluations],
        }
