"""A run at a glance, as one small value.

Everything that a dashboard shows, here, in another terminal, on another machine, or of a run that is over, is in a
``Picture``; nothing else is needed to draw one. It is whole: never a difference to the one before. Its size is bounded
by the number of workers, not of steps. Times are seconds since the run's start; histories are means over equal
stretches of the run, oldest first, NaN where there was nothing finite.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pgczmq.core.values import value
from pgczmq.runlog import EvalRecord, EventRecord, Result, RunRecord

HISTORY = 256
"""Points of a history, at most."""
RECENT = 32
"""Latencies of a worker, at most."""
EVENTS = 32
"""Events, at most."""


@dataclass(frozen=True)
class Numbers:
    """One number of every step: the last one, and how it went over the run.

    Args:
        last: None before there was one.
        typical: median of the finite ones over the last 50 steps; None before there was one, NaN when none is finite.
        history: of the whole run, at most ``HISTORY`` points.
    """

    last: float | None = None
    typical: float | None = None
    history: tuple[float, ...] = ()


@dataclass(frozen=True)
class StepTime:
    """Where the time of a step goes, from its publication until its update is applied: medians of the last 50, seconds.

    Of each step the parts follow each other and add up; their medians do so nearly.

    Args:
        compute, delay, send: of the answer that closed the step: evaluating and encoding, injected delay, both ways.
        wait: what else passed until the step closed: the worker was busy with an older step, or a deadline was due.
        combine, update, write: the master's own part: what was not added up before, the parameters' update, and
            writing them where they are sent from, with all else until it is recorded.
    """

    compute: float
    delay: float
    send: float
    wait: float
    combine: float
    update: float
    write: float


@value
class WorkerPicture:
    """One worker.

    Args:
        state: absent (never heard of), gone, what it last said of itself (ready, computing, ...), or here: it can be
            counted on but has not said what it does, or that is not on record.
        step: at which it last said it is.
        host: where it joined from; empty while unknown.
        heard_at: when it last sent anything.
        latency: seconds from publication to arrival of its newest answer.
        typical: median of the recent ones; None when there are none.
        recent: of the newest steps, oldest first, at most ``RECENT``, the same steps for every worker; NaN for one that
            it has not answered, or not yet.
        outcomes: of the same steps, a letter each: u used, s spare, l late, m missing.
        compute, delay, send: seconds of its recent answers, as in ``StepTime``: medians.
        used, spare, late, missing: steps by what became of its answer. Late ones are missing as well, and a missing one
            never comes when its worker skipped the step or was gone.
        ages: least and largest age in its last used answer.
    """

    worker: int
    state: str = "absent"
    step: int | None = None
    host: str = ""
    heard_at: float | None = None
    latency: float | None = None
    typical: float | None = None
    recent: tuple[float, ...] = ()
    outcomes: str = ""
    compute: float | None = None
    delay: float | None = None
    send: float | None = None
    used: int = 0
    spare: int = 0
    late: int = 0
    missing: int = 0
    ages: tuple[int, int] | None = None

    @property
    def answers(self) -> int:
        """Answers that came, in time or late."""
        return self.used + self.spare + self.late

    @property
    def late_fraction(self) -> float:
        """Share of its answers that came after their step had closed."""
        return self.late / self.answers if self.answers else 0.0


@dataclass(frozen=True)
class Picture:
    """A whole run as far as it is known.

    Args:
        run: what it is; None before its first record.
        at: the largest time in any record.
        steps_done: updates applied, those before a resume included.
        steps_seen: steps that the counts and histories below are about: the last ones of ``steps_done``.
        applied_at: when the last of them was applied.
        loss: of the steps; ``typical`` is the mean of the finite ones among the last 25, NaN when none of them was.
        metric, held_out: on the held-out data, one point an evaluation; ``held_out`` is a loss.
        evaluation: the newest.
        period: seconds from the publication of the step before to this one's; of the first one, and after a gap, from
            its publication to its update.
        waited: share of a step, from its publication until its update is applied, that passed between the answer of
            the worker that makes half of them and its closing: waiting for stragglers. 0 when it closed before half of
            the workers had answered.
        time: where a step's time goes; None while unknown.
        recovered: share of the partitions in the estimate.
        age: mean age of its parts, in steps; NaN when it has none.
        oldest: largest age of its parts.
        k, batch_fraction: what the policy chose.
        weights: least and largest weight in the last step.
        last_used, last_arrived, last_missing: workers in the last step.
        late_fraction: answers that came after their step had closed, over answers.
        waiting: why the open step cannot close; empty while it can.
        starting: who is still missing before the first step.
        workers: in the order of their numbers.
        events: those worth a line, newest last, at most ``EVENTS``.
        result: once the run is over.
        virtual: it is simulated, and so are its times.
    """

    run: RunRecord | None = None
    at: float = 0.0
    steps_done: int = 0
    steps_seen: int = 0
    applied_at: float | None = None
    loss: Numbers = Numbers()
    metric: Numbers = Numbers()
    held_out: Numbers = Numbers()
    evaluation: EvalRecord | None = None
    period: Numbers = Numbers()
    waited: Numbers = Numbers()
    time: StepTime | None = None
    recovered: Numbers = Numbers()
    age: Numbers = Numbers()
    oldest: Numbers = Numbers()
    k: Numbers = Numbers()
    batch_fraction: Numbers = Numbers()
    weights: tuple[float, float] | None = None
    last_used: int = 0
    last_arrived: int = 0
    last_missing: tuple[int, ...] = ()
    late_fraction: float = 0.0
    waiting: str = ""
    starting: str = ""
    workers: tuple[WorkerPicture, ...] = ()
    events: tuple[EventRecord, ...] = ()
    result: Result | None = None
    virtual: bool = False

    @property
    def steps(self) -> int:
        """Steps that the run is to have; 0 while unknown."""
        return self.run.steps if self.run else 0

    @property
    def steps_per_second(self) -> float | None:
        """What the median period amounts to; None while unknown."""
        period = self.period.typical
        return 1 / period if period else None

    @property
    def seconds_left(self) -> float | None:
        """Median period times the steps that are left; None while unknown."""
        period = self.period.typical
        return None if period is None or not self.steps else period * max(0, self.steps - self.steps_done)


@dataclass(frozen=True)
class Seen:
    """What there is to draw at one moment.

    Args:
        now: seconds on the run's clock; stands still once there is nothing more to come.
        note: a sentence about where the pictures come from, such as for how long none came; empty when all is well.
        died: nobody works on the run any more, though it has no result.
    """

    picture: Picture
    now: float
    note: str = ""
    died: bool = False

    @property
    def is_over(self) -> bool:
        """Nothing more is to come."""
        return self.died or self.picture.result is not None


Source = Callable[[], Seen]
"""Where a screen has its pictures from: asked a few times a second, on any thread; never blocks and never raises."""
