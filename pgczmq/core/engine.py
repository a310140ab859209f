"""The master's brain: events in, commands out, no sockets, tensors or clock.

Life of a run:    starting --all ready--> open --usable set--> applying --Applied--> open ... --> finished
                                           ^______Spoiled_________|

The engine decides membership, who is used, who is late, when a step closes, deadlines, and when a run ends.
It knows gradients only by worker number, age and norm, so that a run, a simulation and a replay share every
decision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgczmq.core import seeds
from pgczmq.core.closing import close
from pgczmq.core.course import Course
from pgczmq.core.divergence import DIVERGED_FACTOR, LOSS_WINDOW
from pgczmq.core.events import (
    Applied,
    Apply,
    Arrived,
    Checkpoint,
    Command,
    Evaluate,
    Event,
    Finish,
    Heard,
    Joined,
    Left,
    Note,
    Outcome,
    Publish,
    Ready,
    Refuse,
    Send,
    Spoiled,
    Stop,
    Tick,
    Use,
)
from pgczmq.core.members import Members
from pgczmq.core.open_step import (
    Closing,
    OpenStep,
    PlannedSeconds,
    closing_as_planned,
    closing_now,
    is_hopeless,
)
from pgczmq.core.pace import Pace
from pgczmq.core.progress import Progress
from pgczmq.core.received import Received
from pgczmq.core.schemes import Scheme
from pgczmq.core.waiting import Waiting

BACK_SECONDS = 10.0
"""Workers that outlived a restart of their master have found it again by then: a run waits no longer for others."""


@dataclass(frozen=True)
class Rules:
    """The settings of a run that the engine obeys; durations in seconds."""

    steps: int
    seed: int = 1
    deterministic: bool = False
    step_timeout: float = 600.0
    start_timeout: float = 120.0
    heartbeat: float = 2.0
    eval_every: int = 0
    checkpoint_every: int = 0
    nonfinite: str = "refuse"


class Engine:
    """One run. ``handle`` is the only way in.

    Args:
        scheme: what to wait for and how to combine it.
        rules: steps, deadlines, intervals.
        planned: planned arrival times, read in deterministic mode only.
        started_at: the driver's clock now, seconds.
        progress: of the run that goes on: the first step published is the one after those applied; None for a new one.
    """

    def __init__(
        self,
        scheme: Scheme,
        rules: Rules,
        planned: PlannedSeconds,
        started_at: float,
        progress: Progress | None = None,
    ) -> None:
        self._scheme = scheme
        self._rules = rules
        self._planned = planned
        self._members = Members(scheme.workers, rules.heartbeat)
        self._pace = Pace(scheme.workers, scheme.deadline)
        self._phase = "starting"
        self._started_at = started_at
        self._waiting = Waiting(scheme, self._members, started_at, rules.step_timeout)
        self._current: OpenStep | None = None  # open or being applied
        progress = progress or Progress.none(scheme.policy)
        self._course = Course(scheme.policy, progress, deterministic=rules.deterministic)
        self._received = Received(progress.messages, progress.late)
        self._stopping: Finish | None = None  # as soon as the update under way is done

    @property
    def phase(self) -> str:
        """starting, open, applying or finished."""
        return self._phase

    @property
    def steps(self) -> int:
        """Updates that the run is to make."""
        return self._rules.steps

    @property
    def open_step(self) -> int:
        """The step that is open or being applied; -1 before the first."""
        return -1 if self._current is None else self._current.step

    @property
    def progress(self) -> Progress:
        """What a checkpoint keeps of the engine, as of the last applied update."""
        return replace(self._course.progress, messages=self.messages, late=self.late)

    @property
    def deadline(self) -> float:
        """When a tick is due, if nothing happens until then: the run ends, starts incomplete, or a step waits no more.

        Infinite while applying.
        """
        if self._phase == "starting":
            return self._started_at + self._rules.start_timeout
        if self._open is None:
            return math.inf
        return self._open.ends_at if self._open.overdue else min(self._open.ends_at, self._open.waits_until)

    @property
    def arrived(self) -> tuple[int, ...]:
        """Whose answer to the open step is in or refused, so that it need not be sent again."""
        return () if self._current is None else (*self._current.answers, *sorted(self._current.refused))

    @property
    def ready(self) -> list[int]:
        """Numbers of the workers that can be counted on, ascending."""
        return sorted(self._members.ready)

    @property
    def outcome(self) -> Outcome:
        """What became of the last closed step's messages."""
        return self._received.outcome

    @property
    def messages(self) -> int:
        """Answers received, each once."""
        return self._received.messages

    @property
    def late(self) -> int:
        """How many of them arrived after their step had closed."""
        return self._received.late

    @property
    def late_fraction(self) -> float:
        """The same, over messages received."""
        return self._received.late_fraction

    def handle(self, event: Event) -> list[Command]:
        """Take one event; returns what the driver has to do now, in order."""
        if self._phase == "finished":
            return []
        if self._phase == "starting" and self._course.step >= self._rules.steps:
            return self._all_done()
        match event:
            case Arrived() | Heard() | Ready():
                return self._alive(event)
            case Joined():
                return self._members.join(event)
            case Left():
                said = self._members.leave(event.worker, event.incarnation, event.reason, event.at, state=event.state)
                return self._after_leaving(said, event.at)
            case Tick():
                return self._tick(event.at, event.deaf)
            case Applied():
                return self._applied_event(event)
            case Spoiled():
                return self._spoiled(event)
            case Stop():
                return self._stop(event.exit_code, event.reason)
            case _:
                raise TypeError(f"the engine knows no event {event!r}")

    @property
    def _open(self) -> OpenStep | None:
        """The step that still takes answers, if there is one."""
        return self._current if self._phase == "open" else None

    # ------------------------------------------------------------ membership

    def _alive(self, event: Heard | Ready | Arrived) -> list[Command]:
        """A sign of life, and what else it says; then a worker that is ready or back is counted on."""
        counts, commands = self._members.hear(event.worker, event.incarnation, event.at)
        if isinstance(event, Arrived):
            commands += self._take(event)
        elif isinstance(event, Ready):
            made_ready = self._members.make_ready(event.worker, event.incarnation, event.at)
            counts = counts or bool(made_ready)
            commands += made_ready
        return commands + self._count_on(event.worker, event.at) if counts else commands

    def _count_on(self, worker: int, at: float) -> list[Command]:
        """A worker became ready, for the first time or again."""
        if self._phase == "starting" and len(self._members.ready) == self._scheme.workers:
            return self._begin(at)
        if self._open is None:
            return []
        sent: list[Command] = [] if worker in self._open.answers else [Send(worker, self._open.step)]
        return sent + self._note_waiting()

    def _after_leaving(self, commands: list[Command], at: float) -> list[Command]:
        if not commands or self._phase == "starting":
            return commands
        if self._rules.deterministic:
            reason = f"a deterministic run needs every worker: lost {self._waiting.absent()}"
            return commands + self._stop(74, reason)
        return commands + self._note_waiting() + self._close_if_possible(at)

    # ------------------------------------------------------------ time

    def _tick(self, at: float, deaf: float) -> list[Command]:
        self._started_at += deaf
        if self._open is not None:
            self._open.excuse(deaf)
        commands = self._after_leaving(self._members.expire(at, deaf), at) + self._stop_waiting(at)
        if self._phase == "starting":
            return commands + self._start_late(at)
        if self._open is not None and at > self._open.ends_at:
            limit, missing = f"step_timeout={self._rules.step_timeout:g} s", self._waiting.missing(self._open)
            reason = f"no usable set of workers for step {self._open.step} within {limit}; {missing}"
            return commands + self._end(74, reason)
        return commands

    def _start_late(self, at: float) -> list[Command]:
        workers, ready = self._scheme.workers, sorted(self._members.ready)
        names, waited = self._waiting.absent(), at - self._started_at
        enough = not self._rules.deterministic and self._scheme.suffices(ready, k=self._course.plan.k, origin=0.0)
        if enough and self._course.step and waited > BACK_SECONDS:
            return [Note("waiting", f"going on without workers {names}"), *self._begin(at)]
        if waited > self._rules.start_timeout:
            if enough:
                note = Note("waiting", f"starting without workers {names}: start_timeout is over")
                return [note, *self._begin(at)]
            limit = f"start_timeout={self._rules.start_timeout:g} s"
            return self._end(74, f"only {len(ready)} of {workers} workers were ready within {limit}; missing {names}")
        return [*self._waiting.remind(at)]

    # ------------------------------------------------------------ a step

    def _begin(self, at: float) -> list[Command]:
        self._course.begin(at)
        return self._publish(at)

    def _publish(self, at: float) -> list[Command]:
        step, plan = self._course.step, self._course.plan
        origin, ends_at = seeds.origin(self._rules.seed, step), at + self._rules.step_timeout
        self._current = OpenStep(step, plan, at, origin, ends_at, self._pace.opened(step, at))
        self._phase = "open"
        return [Publish(step, plan.k, plan.batch_fraction, self._received.tell()), *self._note_waiting()]

    def _take(self, event: Arrived) -> list[Command]:
        worker, step, norm, current = event.worker, event.step, event.norm, self._current
        member = self._members.find_ready(worker, event.incarnation)
        if member is None:
            return [self._refuse(event, "its sender is not in this run")]
        if current is None or step > current.step:
            return [self._refuse(event, f"step {step} was never published")]
        if step <= member.answered or (step == current.step and worker in current.answers):
            return []  # sent again because the answer was not listed yet, or by the worker's next life
        member.answered = step
        self._pace.answered(step, event.at)
        self._received.messages += 1
        if self._phase != "open" or step < current.step or norm is None:
            return [self._received.count_late(event, self.open_step)]
        if not math.isfinite(norm):
            return self._refuse_nonfinite(current, (worker,), event.at)
        fold = not self._rules.deterministic and self._scheme.folds(worker, current.answers)
        current.take(event)
        return [Use(step, worker, fold), *self._close_if_possible(event.at)]

    def _refuse(self, event: Arrived, reason: str) -> Refuse:
        return Refuse(event.worker, event.incarnation, event.step, reason)

    def _close_if_possible(self, at: float) -> list[Command]:
        opened, ready = self._open, self._members.ready
        if opened is None:
            return []
        if self._rules.deterministic:
            closing = closing_as_planned(self._scheme, opened, self._planned)
        else:
            closing = closing_now(self._scheme, opened, ready, at)
        if closing is not None:
            return self._close(opened, closing)
        if opened.refused and (self._rules.deterministic or is_hopeless(self._scheme, opened, ready)):
            return self._diverge(f"the gradients of step {opened.step} are not finite")
        return []

    def _stop_waiting(self, at: float) -> list[Command]:
        """The scheme's deadline may be over: then the step closes with what there is."""
        opened = self._open
        if opened is None or opened.overdue or at <= opened.waits_until:
            return []
        opened.overdue = True
        return self._close_if_possible(at)

    def _close(self, opened: OpenStep, closing: Closing) -> list[Command]:
        commands: list[Command] = [self._received.count_late(answer, opened.step) for answer in closing.late]
        if closing.partial:
            text = f"step {opened.step} closes with what {len(closing.answers)} workers recover"
            commands.append(Note("partial", text, step=opened.step))
        opened.answers = closing.answers
        closed = close(self._scheme, opened, closing.weights, closing.at)
        self._phase = "applying"
        self._waiting.forget()
        self._received.close(closed)
        self._course.close(closed, closing)
        return [*commands, Apply(closed.step, closing.weights, closed)]

    def _applied_event(self, event: Applied) -> list[Command]:
        applied = self._being_applied(event.step, "applied").step + 1
        self._course.apply(event)
        if self._course.progress.losses.exploded:
            return self._diverge(f"the mean loss of {LOSS_WINDOW} steps is over {DIVERGED_FACTOR:g} times the first")
        if applied == self._rules.steps:
            return self._all_done()
        commands: list[Command] = []
        if self._rules.eval_every and applied % self._rules.eval_every == 0:
            commands.append(Evaluate(applied))
        if self._stopping is not None:
            return commands + self._end(self._stopping.exit_code, self._stopping.reason)
        if self._rules.checkpoint_every and applied % self._rules.checkpoint_every == 0:
            commands.append(Checkpoint(applied))
        return commands + self._publish(event.at)

    def _all_done(self) -> list[Command]:
        return [Evaluate(self._course.step), *self._end(0, "done")]

    def _being_applied(self, step: int, what: str) -> OpenStep:
        if self._phase != "applying" or self._current is None or step != self._current.step:
            raise AssertionError(f"step {step} was {what} but step {self.open_step} is {self._phase}")
        return self._current

    # ------------------------------------------------------------ what goes wrong

    def _spoiled(self, event: Spoiled) -> list[Command]:
        opened = self._being_applied(event.step, "spoiled")
        if not event.workers:
            return self._diverge(f"the update of step {event.step} is not finite although every gradient was")
        self._phase = "open"
        for worker in self._received.take_back_late(event.step):
            self._members.forget_answer(worker, event.step)
        if self._stopping is not None:
            return self._end(self._stopping.exit_code, self._stopping.reason)
        return self._refuse_nonfinite(opened, event.workers, event.at)

    def _refuse_nonfinite(self, opened: OpenStep, workers: Sequence[int], at: float) -> list[Command]:
        reason = f"the gradient for step {opened.step} is not finite"
        commands: list[Command] = []
        for worker in workers:
            opened.refuse(worker)
            commands.append(Refuse(worker, self._members.incarnation(worker), opened.step, reason))
            commands.append(Note("refused", f"worker {worker}: {reason}", worker, opened.step))
        if self._rules.nonfinite == "abort":
            names = ", ".join(map(str, workers))
            return commands + self._end(70, f"worker {names} sent a gradient that is not finite (nonfinite=abort)")
        return commands + self._close_if_possible(at) + self._note_waiting()

    def _diverge(self, reason: str) -> list[Command]:
        """End the run, and keep nothing of it."""
        self._phase = "finished"
        return [Finish(0, f"diverged at step {self.open_step}: {reason}", diverged=True)]

    def _stop(self, exit_code: int, reason: str) -> list[Command]:
        """End the run; while an update is being applied, when it is: a checkpoint must be of what it says it is."""
        if self._phase != "applying":
            return self._end(exit_code, reason)
        self._stopping = self._stopping or Finish(exit_code, reason)
        return []

    def _end(self, exit_code: int, reason: str) -> list[Command]:
        self._phase = "finished"
        applied = self._course.step
        saved: list[Command] = [Checkpoint(applied)] if applied else []
        return [*saved, Finish(exit_code, reason)]

    def _note_waiting(self) -> list[Command]:
        return [] if self._open is None else [*self._waiting.note(self._open)]
