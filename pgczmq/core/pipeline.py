"""The worker's brain: which gradients it has, what to evaluate next, what to send.

    idle --Published--> evaluating --last Evaluated--> delaying --DelayOver--> idle (and a message)

It knows gradients only by place and by the step at which they were evaluated. The driver evaluates, waits and
sends; a finished evaluation is always retained, also when its message will be late.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pgczmq.core.schedule import Behind, Schedule, when_behind
from pgczmq.core.values import value

# ---------------------------------------------------------------- events


@value
class Published:
    """The parameters of a step are here."""

    step: int
    batch_fraction: float


@value
class Opened:
    """The master says that this step is open, so that every earlier one is closed."""

    step: int


@value
class Evaluated:
    """The evaluation asked for is finished and its gradient retained."""

    loss: float


@value
class DelayOver:
    """The injected delay of a step has passed."""

    step: int


@value
class Lost:
    """The evaluation asked for came to nothing: its parameters were taken back in the middle of it."""


WorkerEvent = Published | Opened | Evaluated | DelayOver | Lost

# ---------------------------------------------------------------- commands


@value
class EvaluatePlace:
    """Evaluate the gradient of the partition at ``place`` at the parameters of ``step``, and retain it."""

    step: int
    place: int
    batch_fraction: float


@value
class Delay:
    """Do nothing for so many seconds, then say DelayOver; forget it when another command comes first."""

    step: int
    seconds: float


@value
class Answer:
    """Encode the retained gradients and send them as the answer to ``step``.

    Args:
        ages: of each place's gradient, in steps.
        losses: (partition, mean loss) of what was evaluated at this step.
    """

    step: int
    ages: tuple[int, ...]
    losses: tuple[tuple[int, float], ...]


@value
class Report:
    """Send the header alone: the step is known to be closed."""

    step: int
    ages: tuple[int, ...]
    losses: tuple[tuple[int, float], ...]


WorkerCommand = EvaluatePlace | Delay | Answer | Report
DelaySeconds = Callable[[int, int, int, float], float]
"""(worker, step, partitions evaluated, batch fraction) -> seconds of injected delay."""


@dataclass(slots=True)
class _Work:
    step: int
    batch_fraction: float
    todo: list[int]
    losses: list[tuple[int, float]] = field(default_factory=list)
    delaying: bool = False


class Pipeline:
    """One worker's life from the moment it is ready.

    Args:
        worker: its number.
        held: partitions at its places.
        schedule: what to evaluate at a step.
        on_new_step: "skip", "abandon" or "queue".
        delay: injected delay, drawn once per (worker, step).
    """

    def __init__(
        self, worker: int, held: Sequence[int], *, schedule: Schedule, on_new_step: str, delay: DelaySeconds
    ) -> None:
        self._worker = worker
        self._held = tuple(held)
        self._schedule = schedule
        self._when_evaluating = when_behind(on_new_step, evaluating=True)
        self._when_not = when_behind(on_new_step, evaluating=False)
        self._delay = delay
        self._evaluated_at: list[int | None] = [None] * len(self._held)
        self._work: _Work | None = None
        self._waiting: deque[Published] = deque()  # the newest alone, unless steps queue
        self._open_step = -1
        self._begun = -1

    @property
    def idle(self) -> bool:
        """Nothing in hand."""
        return self._work is None

    @property
    def is_behind(self) -> bool:
        """Idle although a step is open that it has not begun: its parameters did not come."""
        return self._work is None and self._begun < self._open_step

    @property
    def step(self) -> int:
        """The step in hand, or the last one begun; -1 before the first."""
        return self._begun

    def forget(self) -> None:
        """Nothing is retained any more, as in a new life; only while idle."""
        if self._work is not None:
            raise AssertionError("a worker that is busy cannot forget what it is working on")
        self._evaluated_at = [None] * len(self._held)

    def handle(self, event: WorkerEvent) -> list[WorkerCommand]:
        """Take one event; returns at most one command, or several messages before it."""
        match event:
            case Published():
                return self._published(event)
            case Evaluated():
                return self._evaluated(event.loss)
            case Lost():
                self._evaluated_at[self._evaluating().todo[0]] = None
                return self._begin_next()
            case DelayOver():
                work = self._work
                return self._answer(work) if work and work.delaying and work.step == event.step else []
            case Opened():
                self._open_step = max(self._open_step, event.step)
                return []

    def _published(self, event: Published) -> list[WorkerCommand]:
        newest = self._waiting[-1].step if self._waiting else self._begun
        if event.step <= newest:
            return []
        if event.step > self._open_step:
            self._open_step = event.step
        work = self._work
        behind = self._when_not if work is None or work.delaying else self._when_evaluating
        if behind is not Behind.QUEUE:
            self._waiting.clear()
        self._waiting.append(event)
        return self._begin_next() if work is None or behind is Behind.DROP else []

    def _begin_next(self) -> list[WorkerCommand]:
        """Start on the next parameters, unless a later step is known to be open: theirs are on the way.

        Only where steps queue, a closed one is worked on all the same.
        """
        self._work = None
        if not self._waiting:
            return []
        event = self._waiting.popleft()
        if event.step < self._open_step and self._when_not is not Behind.QUEUE:
            return []
        step, fraction = event.step, event.batch_fraction
        places = list(self._schedule.places(self._worker, step, self._evaluated_at))
        self._begun = step
        self._work = _Work(step, fraction, places)
        return [EvaluatePlace(step, places[0], fraction)]

    def upcoming(self) -> EvaluatePlace | None:
        """What will follow the evaluation in hand if the next step comes in time; None when nothing is evaluated.

        The next step is the one that is open already where this worker is behind it, with the same batch fraction.
        """
        work = self._work
        if work is None or work.delaying:
            return None
        gives_up = self._waiting and self._when_not is Behind.DROP
        if len(work.todo) > 1 and not gives_up:
            return EvaluatePlace(work.step, work.todo[1], work.batch_fraction)
        step = max(work.step + 1, self._open_step)
        then = [work.step if place == work.todo[0] else at for place, at in enumerate(self._evaluated_at)]
        return EvaluatePlace(step, self._schedule.places(self._worker, step, then)[0], work.batch_fraction)

    def _evaluating(self) -> _Work:
        if self._work is None or self._work.delaying:
            raise AssertionError("an evaluation ended that was not asked for")
        return self._work

    def _evaluated(self, loss: float) -> list[WorkerCommand]:
        work = self._evaluating()
        place = work.todo.pop(0)
        self._evaluated_at[place] = work.step
        work.losses.append((self._held[place], loss))
        if self._waiting and self._when_not is Behind.DROP:
            return self._begin_next()
        if work.todo:
            return [EvaluatePlace(work.step, work.todo[0], work.batch_fraction)]
        work.delaying = True
        seconds = self._delay(self._worker, work.step, len(work.losses), work.batch_fraction)
        return [Delay(work.step, seconds)] if seconds > 0 else self._answer(work)

    def _answer(self, work: _Work) -> list[WorkerCommand]:
        step = work.step
        ages = tuple([step - at for at in self._evaluated_at if at is not None])
        kind = Report if step < self._open_step else Answer
        answer = kind(step, ages, tuple(work.losses))
        return [answer, *self._begin_next()]
