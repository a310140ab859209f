"""Where the time of the recent steps went."""

from collections import deque
from statistics import median

from pgczmq.gather.history import STEPS_REMEMBERED
from pgczmq.picture import StepTime
from pgczmq.runlog import LatencyRecord, StepRecord

Parts = tuple[float, float, float, float, float, float, float]
"""As ``StepTime`` has them."""


class Durations:
    """Brings together each step and the answer that closed it, whichever record comes first."""

    def __init__(self) -> None:
        self._newest: dict[int, LatencyRecord] = {}  # answer of each worker
        self._alone: StepRecord | None = None  # the last step, while its last answer is not known
        self._recent: deque[Parts] = deque(maxlen=STEPS_REMEMBERED)

    def closed(self, step: StepRecord) -> None:
        """A step closed."""
        self._alone = None
        if not step.arrived:
            return
        answer = self._newest.get(step.arrived[-1])
        if answer is not None and answer.step == step.step:
            self._recent.append(parts(step, answer))
        else:
            self._alone = step

    def answered(self, answer: LatencyRecord) -> None:
        """An answer came."""
        self._newest[answer.worker] = answer
        step = self._alone
        if step is not None and (answer.worker, answer.step) == (step.arrived[-1], step.step):
            self._recent.append(parts(step, answer))
            self._alone = None

    @property
    def typical(self) -> StepTime | None:
        """Medians over the recent steps; None while there are none."""
        return StepTime(*map(median, zip(*self._recent, strict=True))) if self._recent else None


def parts(step: StepRecord, answer: LatencyRecord) -> Parts:
    """A step's time, cut where its records say; the parts add up to it.

    In deterministic mode a step is recorded to close as planned, though nobody sleeps: then ``wait`` is what is left.
    """
    whole = max(0.0, step.applied_at - step.published_at)
    of_master = step.combining + step.updating + step.writing
    until_closed = min(max(0.0, step.closed_at - step.published_at), max(0.0, whole - of_master))
    left, cut = until_closed, []
    for seconds in (answer.compute, answer.delay, answer.send):
        cut.append(min(seconds, left))
        left -= cut[-1]
    combine = min(step.combining, whole - until_closed)
    update = min(step.updating, whole - until_closed - combine)
    return cut[0], cut[1], cut[2], left, combine, update, whole - until_closed - combine - update
