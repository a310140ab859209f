"""The master's brain: events in, commands out, no sockets, tensors or clock.

Life of a run:    starting --all ready--> open --usable set--> applying --Applied--> open ... --> finished
                                           ^______Spoiled_________|

The engine decides membership, who is used, who is late, when a step closes, deadlines, and when a run ends.
It knows gradients only by worker number, age and norm, so that a run, a simulation and a replay share every
decision.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod

from pgczmq.core import seeds
from pgczmq.core.closing import close
from pgczmq.core.decoders import Weights
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
from pgczmq.core.policies import Plan
from pgczmq.core.schemes import Scheme

LOSS_WINDOW = 25
DIVERGED_FACTOR = 10.0
REMIND_SECONDS = 10.0

PlannedSeconds = Callable[[int, int, int, float], float]
"""(worker, step, partitions evaluated, batch fraction) -> planned seconds until its message arrives."""


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


@dataclass
class OpenStep:
    """The step that is being worked on."""

    step: int
    plan: Plan
    opened_at: float
    origin: float
    answers: dict[int, Arrived] = field(default_factory=dict)  # in order of arrival
    refused: set[int] = field(default_factory=set)


class Engine:
    """One run. ``handle`` is the only way in.

    Args:
        scheme: what to wait for and how to combine it.
        rules: steps, deadlines, intervals.
        planned: planned arrival times, read in deterministic mode only.
        started_at: the driver's clock now, seconds.
    """

    def __init__(self, scheme: Scheme, rules: Rules, planned: PlannedSeconds, started_at: float) -> None:
        self._scheme = scheme
        self._rules = rules
        self._planned = planned
        self._members = Members(scheme.workers, rules.heartbeat)
        self._phase = "starting"
        self._started_at = started_at
        self._said_at = started_at
        self._open: OpenStep | None = None
        self._outcome = Outcome()
        self._late: list[tuple[int, int]] = []
        self._said = ""
        self._applied = 0
        self._closed_loss = math.nan  # counts once the step is applied
        self._first_loss: float | None = None
        self._recent: deque[float] = deque(maxlen=LOSS_WINDOW)
        self.messages = 0
        self.late = 0

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
        return -1 if self._open is None else self._open.step

    @property
    def arrived(self) -> tuple[int, ...]:
        """Whose answer to the open step is in or refused, so that it need not be sent again."""
        return () if self._open is None else (*self._open.answers, *sorted(self._open.refused))

    @property
    def outcome(self) -> Outcome:
        """What became of the last closed step's messages."""
        return self._outcome

    @property
    def late_fraction(self) -> float:
        """Messages that arrived after their step closed, over messages received."""
        return self.late / self.messages if self.messages else 0.0

    def handle(self, event: Event) -> list[Command]:
        """Take one event; returns what the driver has to do now, in order."""
        return [] if self._phase == "finished" else self._on(event)

    @singledispatchmethod
    def _on(self, event: Event) -> list[Command]:
        raise TypeError(f"the engine knows no event {event!r}")

    # ------------------------------------------------------------ membership

    @_on.register
    def _joined(self, event: Joined) -> list[Command]:
        return self._members.join(event)

    @_on.register
    def _ready(self, event: Ready) -> list[Command]:
        back, commands = self._members.hear(event.worker, event.incarnation, event.at)
        if self._members.make_ready(event.worker, event.incarnation):
            commands.append(Note("ready", f"worker {event.worker} is ready", worker=event.worker))
        elif not back:
            return commands
        return commands + self._count_on(event.worker, event.at)

    def _count_on(self, worker: int, at: float) -> list[Command]:
        """A worker became ready, for the first time or again."""
        if self._phase == "starting":
            return self._start(at)
        return self._send_open(worker) + self._say_if_waiting()

    @_on.register
    def _heard(self, event: Heard) -> list[Command]:
        back, commands = self._members.hear(event.worker, event.incarnation, event.at)
        return commands + (self._count_on(event.worker, event.at) if back else [])

    @_on.register
    def _left(self, event: Left) -> list[Command]:
        return self._after_leaving(self._members.leave(event.worker, event.incarnation, event.reason), event.at)

    def _after_leaving(self, commands: list[Command], at: float) -> list[Command]:
        if not commands or self._phase == "starting":
            return commands
        if self._rules.deterministic:
            lost = ", ".join(map(str, self._members.absent()))
            return commands + self._end(74, f"a deterministic run needs every worker: lost {lost}")
        return commands + self._say_if_waiting() + self._close_if_possible(at)

    def _send_open(self, worker: int) -> list[Command]:
        if self._phase != "open" or self._open is None or worker in self._open.answers:
            return []
        return [Send(worker, self._open.step)]

    # ------------------------------------------------------------ time

    @_on.register
    def _tick(self, event: Tick) -> list[Command]:
        commands = self._after_leaving(self._members.expire(event.at), event.at)
        if self._phase == "finished":
            return commands
        if self._phase == "starting":
            return commands + self._start_late(event.at)
        if self._phase == "open" and self._open and event.at - self._open.opened_at > self._rules.step_timeout:
            reason = f"no usable set of workers for step {self._open.step} within step_timeout"
            return commands + self._end(74, f"{reason}={self._rules.step_timeout:g} s; {self._who_is_missing()}")
        return commands

    def _start(self, at: float) -> list[Command]:
        return [] if self._members.absent() else self._publish(0, at)

    def _start_late(self, at: float) -> list[Command]:
        ready, absent = self._members.ready(), self._members.absent()
        names = ", ".join(map(str, absent))
        if at - self._started_at > self._rules.start_timeout:
            if not self._rules.deterministic and self._can_close(ready):
                note = Note("waiting", f"starting without workers {names}: start_timeout is over")
                return [note, *self._publish(0, at)]
            limit = f"start_timeout={self._rules.start_timeout:g} s"
            return self._end(
                74, f"only {len(ready)} of {self._scheme.workers} workers were ready within {limit}; missing {names}"
            )
        if at - self._said_at < REMIND_SECONDS:
            return []
        self._said_at = at
        return [Note("starting", f"{len(ready)}/{self._scheme.workers} workers ready, missing {names}")]

    # ------------------------------------------------------------ a step

    def _publish(self, step: int, at: float) -> list[Command]:
        plan = self._scheme.policy.first()
        origin = float(seeds.rng(self._rules.seed, "origin", step).random())
        self._open = OpenStep(step, plan, at, origin)
        self._phase = "open"
        outcome = Outcome(self._outcome.step, self._outcome.used, self._outcome.spare, tuple(self._late))
        self._late.clear()
        return [Publish(step, plan.k, plan.batch_fraction, outcome), *self._say_if_waiting()]

    @_on.register
    def _arrived(self, event: Arrived) -> list[Command]:
        back, commands = self._members.hear(event.worker, event.incarnation, event.at)
        commands += self._take(event)
        return commands + (self._count_on(event.worker, event.at) if back else [])

    def _take(self, event: Arrived) -> list[Command]:
        member = self._members.find(event.worker, event.incarnation)
        if member is None or member.state != "ready":
            return [self._refuse(event, "its sender is not in this run")]
        if event.step > self.open_step:
            return [self._refuse(event, f"step {event.step} was never published")]
        if event.step <= member.answered or self._holds(event.worker, event.step):
            return []  # sent again because the answer was not listed yet, or by the worker's next life
        member.answered = event.step
        self.messages += 1
        if self._open is None or event.step < self._open.step or self._phase != "open" or event.norm is None:
            return self._count_late(event)
        if not math.isfinite(event.norm):
            return self._refuse_nonfinite((event.worker,), event.at)
        self._open.refused.discard(event.worker)  # by its former life
        self._open.answers[event.worker] = event
        return [Use(event.step, event.worker), *self._close_if_possible(event.at)]

    def _holds(self, worker: int, step: int) -> bool:
        return self._open is not None and step == self._open.step and worker in self._open.answers

    def _refuse(self, event: Arrived, reason: str) -> Refuse:
        return Refuse(event.worker, event.incarnation, event.step, reason)

    def _count_late(self, event: Arrived) -> list[Command]:
        self.late += 1
        self._late.append((event.worker, event.step))
        return [Note("late", f"worker {event.worker} answered step {event.step} late", event.worker, event.step)]

    def _can_close(self, workers: Sequence[int]) -> bool:
        """Whether the answers of these workers would close the open step."""
        return self._usable(workers) is not None

    def _usable(self, workers: Sequence[int]) -> Weights | None:
        plan = self._open.plan if self._open else self._scheme.policy.first()
        origin = self._open.origin if self._open else 0.0
        if (self._scheme.wait == "k" or self._scheme.takes_any_k) and len(workers) < plan.k:
            return None
        return self._scheme.decoder.weights(workers, origin)

    def _close_if_possible(self, at: float) -> list[Command]:
        if self._phase != "open" or self._open is None:
            return []
        if self._rules.deterministic:
            return self._close_as_planned()
        weights = self._usable(tuple(self._open.answers))
        if weights is not None:
            return self._close(weights, at)
        return self._close_short(self._open, at) if self._nobody_owes() else []

    def _close_short(self, opened: OpenStep, at: float) -> list[Command]:
        """Everybody alive has answered and it is not enough: take what there is, wait for the absent, or give up."""
        if self._scheme.shortfall == "partial":
            weights = self._scheme.decoder.partial(tuple(opened.answers), opened.origin)
            if weights is not None:
                text = f"step {opened.step} closes with what {len(opened.answers)} workers recover"
                return [Note("partial", text, step=opened.step), *self._close(weights, at)]
        hoped = [worker for worker in range(self._scheme.workers) if worker not in opened.refused]
        if opened.refused and not (opened.answers and self._can_close(hoped)):
            return self._diverge(f"the gradients of step {opened.step} are not finite")
        return []

    def _nobody_owes(self) -> bool:
        """No live worker is still expected to answer the open step."""
        assert self._open is not None
        answered = self._open.answers.keys() | self._open.refused
        return all(worker in answered for worker in self._members.ready())

    def _close_as_planned(self) -> list[Command]:
        """Deterministic mode: with every real answer in, let the planned times decide.

        The step closes at the earliest planned time at which those not later are usable; all of them count.
        """
        assert self._open is not None
        if self._open.refused:
            return self._diverge(f"the gradients of step {self._open.step} are not finite")
        if len(self._open.answers) < self._scheme.workers:
            return []
        fraction = self._open.plan.batch_fraction
        times = {
            worker: self._planned(worker, answer.step, answer.ages.count(0), fraction)
            for worker, answer in self._open.answers.items()
        }
        for moment in sorted(set(times.values())):
            in_time = sorted(worker for worker, planned in times.items() if planned <= moment)
            weights = self._usable(in_time)
            if weights is not None:
                return self._close_planned_set(in_time, times, weights, moment)
        raise AssertionError(f"{self._scheme.name} is not usable with all workers")  # checked when it was built

    def _close_planned_set(
        self, in_time: list[int], times: dict[int, float], weights: Weights, moment: float
    ) -> list[Command]:
        assert self._open is not None
        opened = self._open.opened_at
        late: list[Command] = []
        for worker in sorted(times.keys() - set(in_time)):
            late += self._count_late(self._open.answers[worker])
        answers = {worker: self._open.answers[worker] for worker in sorted(in_time, key=lambda w: (times[w], w))}
        self._open.answers = {
            worker: Arrived(a.worker, a.incarnation, a.step, a.ages, a.losses, a.norm, opened + times[worker])
            for worker, a in answers.items()
        }
        return late + self._close(weights, opened + moment)

    def _close(self, weights: Weights, at: float) -> list[Command]:
        assert self._open is not None
        closed = close(self._scheme, self._open, weights, at)
        self._phase = "applying"
        self._outcome = Outcome(closed.step, closed.used, closed.spare)
        self._said = ""
        self._closed_loss = closed.loss
        return [Apply(closed.step, weights, closed)]

    @_on.register
    def _applied_event(self, event: Applied) -> list[Command]:
        if self._phase != "applying" or event.step != self.open_step:
            raise AssertionError(f"step {event.step} was applied but step {self.open_step} is {self._phase}")
        self._applied = event.step + 1
        self._remember_loss()
        if self._loss_exploded():
            return self._diverge(f"the mean loss of {LOSS_WINDOW} steps is over {DIVERGED_FACTOR:g} times the first")
        done = self._applied == self._rules.steps
        commands: list[Command] = []
        if done or (self._rules.eval_every and self._applied % self._rules.eval_every == 0):
            commands.append(Evaluate(self._applied))
        if done:
            return commands + self._end(0, "done")
        if self._rules.checkpoint_every and self._applied % self._rules.checkpoint_every == 0:
            commands.append(Checkpoint(self._applied))
        return commands + self._publish(self._applied, event.at)

    # ------------------------------------------------------------ what goes wrong

    @_on.register
    def _spoiled(self, event: Spoiled) -> list[Command]:
        if not event.workers:
            return self._diverge(f"the update of step {event.step} is not finite although every gradient was")
        self._phase = "open"
        self._take_back_late()
        return self._refuse_nonfinite(event.workers, event.at)

    def _take_back_late(self) -> None:
        """Answers to the step that is open again may be sent again: they came while it was being applied."""
        again = [worker for worker, step in self._late if step == self.open_step]
        self._late = [(worker, step) for worker, step in self._late if step != self.open_step]
        self.late -= len(again)
        self.messages -= len(again)
        for worker in again:
            self._members.forget_answer(worker, self.open_step)

    def _refuse_nonfinite(self, workers: Sequence[int], at: float) -> list[Command]:
        assert self._open is not None
        commands: list[Command] = []
        for worker in workers:
            self._open.answers.pop(worker, None)
            self._open.refused.add(worker)
            reason = f"the gradient for step {self._open.step} is not finite"
            commands.append(Refuse(worker, self._members.incarnation(worker), self._open.step, reason))
            commands.append(Note("refused", f"worker {worker}: {reason}", worker, self._open.step))
        if self._rules.nonfinite == "abort":
            names = ", ".join(map(str, workers))
            return commands + self._end(70, f"worker {names} sent a gradient that is not finite (nonfinite=abort)")
        return commands + self._close_if_possible(at) + self._say_if_waiting()

    def _remember_loss(self) -> None:
        if self._first_loss is None:
            self._first_loss = self._closed_loss
        if math.isfinite(self._closed_loss):
            self._recent.append(self._closed_loss)

    def _loss_exploded(self) -> bool:
        first = self._first_loss
        if first is None or not math.isfinite(first) or first <= 0 or len(self._recent) < LOSS_WINDOW:
            return False
        return sum(self._recent) / len(self._recent) > DIVERGED_FACTOR * first

    def _diverge(self, reason: str) -> list[Command]:
        return self._end(0, f"diverged at step {self.open_step}: {reason}", diverged=True)

    @_on.register
    def _stop(self, event: Stop) -> list[Command]:
        return self._end(event.exit_code, event.reason)

    def _end(self, exit_code: int, reason: str, diverged: bool = False) -> list[Command]:
        self._phase = "finished"
        saved: list[Command] = [Checkpoint(self._applied)] if self._applied and not diverged else []
        return [*saved, Finish(exit_code, reason, diverged)]

    def _say_if_waiting(self) -> list[Command]:
        """A note when the open step can no longer close with the workers there are, and when it can again."""
        if self._phase != "open" or self._open is None:
            return []
        hoped = sorted((set(self._members.ready()) | self._open.answers.keys()) - self._open.refused)
        text = "" if self._can_close(hoped) else self._who_is_missing()
        if text == self._said:
            return []
        before, self._said = self._said, text
        if text:
            return [Note("waiting", f"step {self._open.step} cannot close: {text}", step=self._open.step)]
        return [Note("resumed", "enough workers again", step=self._open.step)] if before else []

    def _who_is_missing(self) -> str:
        absent = [worker for worker in self._members.absent() if not self._open or worker not in self._open.answers]
        names = ", ".join(map(str, absent)) or "nobody"
        return f"{self._scheme.name} needs {self._scheme.k} of {self._scheme.workers} workers; missing {names}"
