"""A run that is over, as its records tell it, and how long everything in it took."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pgczmq.app import build
from pgczmq.config import RunConfig, loads
from pgczmq.core.delays import DelayModel
from pgczmq.core.policies import Plan, Statistics
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ConfigError
from pgczmq.runlog import EventRecord, LatencyRecord, StepRecord, read
from pgczmq.sim.training import NoUpdate, TimingOnly
from pgczmq.sim.virtual import Durations

CLOCK_SECONDS = 1e-6
"""Finer than this no two events of one worker are told apart."""
CAN_BE = "What can be replayed is any run of pgc local, pgc-master or pgc sim that closed steps by arrivals"


@dataclass(frozen=True)
class Recorded:
    """One run.

    Args:
        steps: from 0 on, without a gap; the answers that closed each are among ``answers``.
        answers: in order of arrival, late ones included; none came after the last step was applied.
        whole: everybody was ready before step 0, and nobody left before the last step was applied.
    """

    directory: Path
    config: RunConfig
    scheme: Scheme
    steps: Sequence[StepRecord]
    answers: Sequence[LatencyRecord]
    whole: bool


def read_recorded(directory: Path) -> Recorded:
    """What a run left in its directory.

    Raises:
        ConfigError: it is no run directory, or a run that cannot be replayed; says which can.
    """
    config = _config(directory)
    scheme = build.scheme_of(config)
    recorded_steps = list(read(directory, StepRecord))
    answers = list(read(directory, LatencyRecord))
    happened = list(read(directory, EventRecord))
    _check_numbers(directory, answers, scheme.workers)
    steps = _with_all_answers(recorded_steps, answers)
    if not steps:
        raise ConfigError(f"{directory} holds no step that could be replayed: none was closed, or none from step 0 on.")
    over_at = steps[-1].applied_at
    answers = [answer for answer in answers if answer.arrived_at <= over_at and answer.step < len(steps)]
    refused = [event for event in happened if event.kind == "refused" and event.step is not None]
    if refused:
        raise ConfigError(
            f"the records do not say which gradients were numbers: at step {refused[0].step} of {directory} one was "
            f"refused. {CAN_BE} and refused no gradient."
        )
    whole = _is_whole(scheme.workers, happened, answers, over_at)
    if scheme.deadline is not None:
        raise ConfigError(
            f"with scheme.deadline={scheme.deadline:g} it counts when the master looked at its clock, which records "
            f"do not tell: got {directory}. {CAN_BE} and had no deadline."
        )
    if scheme.shortfall == "partial" and not whole:
        raise ConfigError(
            'with scheme.shortfall="partial" it counts who could still answer, which answers do not tell: workers of '
            f'{directory} came late or left. {CAN_BE}; those with shortfall="partial" only if all workers were there '
            "from the first step to the last."
        )
    return Recorded(directory, config, scheme, steps, answers, whole)


def _config(directory: Path) -> RunConfig:
    path = directory / "config.toml"
    try:
        config = loads(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{directory} is not a run directory: cannot read config.toml: {error.strerror}.") from None
    if config.scheme.name == build.ASYNC:
        raise ConfigError(f"asynchronous SGD closes no steps: got {directory}. {CAN_BE}.")
    if config.deterministic:
        raise ConfigError(
            f"a deterministic run closes its steps as planned, whenever answers arrive: got {directory}. "
            f"pgc sim repeats it to the bit. {CAN_BE}."
        )
    return config


def _check_numbers(directory: Path, answers: Sequence[LatencyRecord], workers: int) -> None:
    """Whether what the answers say can be computed with."""
    for number, answer in enumerate(answers, 1):
        parts = (answer.wait, answer.compute, answer.delay, *answer.evaluations)
        times = (answer.published_at, answer.arrived_at, 0.0 if answer.received_at is None else answer.received_at)
        counts = _are_counts(answer.worker, answer.step, answer.evaluated) and answer.worker < workers
        if not counts or not _are_seconds(*parts) or not _are_numbers(*times):
            raise ConfigError(
                f"line {number} of latencies.jsonl in {directory} is no answer that a worker can have given: worker "
                f"{answer.worker} of {workers} at step {answer.step}. {CAN_BE}, as it was written."
            )


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _are_seconds(*values: float) -> bool:
    return _are_numbers(*values) and min(values, default=0.0) >= 0


def _are_counts(*values: object) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in values)


def _with_all_answers(steps: Sequence[StepRecord], answers: Sequence[LatencyRecord]) -> list[StepRecord]:
    """Steps 0, 1, ... as far as all their answers are recorded: of a run that was killed, the last lines may lack."""
    known = {(answer.worker, answer.step) for answer in answers}
    found: list[StepRecord] = []
    for number, step in enumerate(steps):
        if step.step != number or any((worker, number) not in known for worker in step.arrived):
            break
        found.append(step)
    return found


def _is_whole(workers: int, happened: Sequence[EventRecord], answers: Sequence[LatencyRecord], over_at: float) -> bool:
    begun_at = max((answer.published_at for answer in answers if answer.step == 0), default=0.0)
    ready = {event.worker for event in happened if event.kind == "ready" and event.at <= begun_at}
    left = [event for event in happened if event.kind == "left" and event.at <= over_at]
    return len(ready) == workers and not left


class RecordedUpdates(TimingOnly):
    """Nothing is computed; policies see the statistics that were recorded."""

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        self._steps = steps

    def apply(self, step: int, messages: Sequence[object], plan: Plan) -> NoUpdate:
        """What the recorded update of the step was."""
        recorded = self._steps[step]
        return NoUpdate(statistics=Statistics(recorded.norm, recorded.inner, recorded.distance))


def update_seconds(steps: Sequence[StepRecord]) -> list[float]:
    """For every step the time from closing it to publishing the next one; of the last, to having applied it."""
    between = [after.published_at - step.closed_at for step, after in pairwise(steps)]
    return [*between, steps[-1].applied_at - steps[-1].closed_at]


@dataclass(frozen=True)
class Spent:
    """Where a worker's time went at one step, in seconds.

    Args:
        evaluations: of each partition, in order.
        delay: as slept; None where the worker gave the step up: only ``slept`` is known.
        slept: so much of the delay passed.
        sending: from then until the master had the message; None where none was sent.
    """

    evaluations: tuple[float, ...]
    delay: float | None
    slept: float
    sending: float | None


class RecordedDurations:
    """How long each worker took at each step, for a simulated worker that may do other steps than the real one did.

    * Where the record has nothing for a worker and a step, since the real worker never began on it, the step before
      stands in (the first one, where there is none before).
    * Of a step that the real worker gave up, the injected delay is not known to its end: it is drawn again, being a
      function of the seed, the worker and the step, and lasts longer than what was slept of it.
    * What a worker did after its last answer it could not tell: all that is known is that no message of it came until
      the run was over, and so none comes in the replay.
    * The clocks of worker and master need not agree, only go alike: the quickest parameters of each worker count as no
      time, and its messages take that much longer.

    Args:
        model: the run's straggler model.
    """

    def __init__(self, recorded: Recorded, model: DelayModel) -> None:
        self._model = model
        self._published_at = [step.published_at for step in recorded.steps]
        self._updates = update_seconds(recorded.steps)
        self._received_at: dict[tuple[int, int], float] = {}  # by worker and step, on the worker's clock
        self._known: dict[tuple[int, int], Spent] = {}  # of steps begun
        for answer in recorded.answers:
            self._note(answer)
        self._quickest: dict[int, float] = {}  # parameters of each worker
        self._before: dict[int, int] = {}  # the last step of each worker that was known
        for worker, step in sorted(self._known, reverse=True):
            self._before[worker] = step
        self._told = dict(sorted(self._known))  # the last step of each worker that anything is known of
        for (worker, step), received_at in self._received_at.items():
            seconds = received_at - self._published_at[step]
            self._quickest[worker] = min(seconds, self._quickest.get(worker, math.inf))
        self._last: dict[int, float] = {}  # how long its last parameters took each worker
        self._sending: dict[int, float] = {}  # and its last message
        self._begun: dict[int, tuple[int, int]] = {}  # (step, partitions evaluated) that each worker is at
        self.stood_in: set[tuple[int, int]] = set()

    @property
    def durations(self) -> Durations:
        """For the simulator."""
        return Durations(
            evaluation=self._evaluation,
            delay=self._delay,
            communication=self._communication,
            parameters=self._parameters,
            update=self._updates.__getitem__,
        )

    def _note(self, answer: LatencyRecord) -> None:
        """What an answer says of its own step and of those given up before it."""
        evaluations = answer.evaluations or (answer.compute / max(1, answer.evaluated),) * max(1, answer.evaluated)
        received_at = answer.published_at if answer.received_at is None else answer.received_at
        busy = received_at - answer.published_at + answer.wait + sum(evaluations) + answer.delay
        sending = answer.arrived_at - answer.published_at - busy
        self._received_at[answer.worker, answer.step] = received_at
        self._known[answer.worker, answer.step] = Spent(tuple(evaluations), answer.delay, answer.delay, sending)
        for entry in answer.dropped:
            if self._can_have_been_dropped(entry):
                self._note_dropped(answer.worker, *entry)

    def _can_have_been_dropped(self, entry: Sequence[float]) -> bool:
        """Others are nobody's: peers may say anything, and a run that was cut off may lack the step."""
        if len(entry) < 3 or not _are_numbers(*entry) or not _are_seconds(*entry[2:]):
            return False
        return entry[0] in range(len(self._published_at))

    def _note_dropped(self, worker: int, number: float, received_at: float, slept: float, *evaluations: float) -> None:
        step = int(number)
        self._received_at[worker, step] = received_at
        if evaluations:
            self._known[worker, step] = Spent(evaluations, None, slept, None)

    def _spent(self, worker: int, step: int) -> Spent | None:
        """What was recorded, else of the step before; None for a worker that never answered."""
        spent = self._known.get((worker, step))
        if spent is not None:
            self._before[worker] = step
            return spent
        self.stood_in.add((worker, step))
        return self._known.get((worker, self._before.get(worker, step)))

    def _parameters(self, worker: int, step: int) -> float:
        received_at = self._received_at.get((worker, step))
        if received_at is not None:
            self._last[worker] = received_at - self._published_at[step] - self._quickest[worker]
        return self._last.get(worker, 0.0)

    def _evaluation(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        begun, place = self._begun.get(worker, (-1, 0))
        place = place + 1 if begun == step else 0
        self._begun[worker] = (step, place)
        spent = self._spent(worker, step)
        if spent is None:
            return math.inf
        return spent.evaluations[min(place, len(spent.evaluations) - 1)]

    def _delay(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        spent = self._known.get((worker, step))
        if spent is not None and spent.delay is not None:
            return spent.delay
        drawn = self._model.seconds(worker, step, evaluated, batch_fraction)
        return drawn if spent is None else max(drawn, spent.slept + CLOCK_SECONDS)

    def _communication(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        spent = self._spent(worker, step)
        if spent is None or step > self._told[worker]:
            return math.inf
        if spent.sending is not None:
            self._sending[worker] = max(0.0, spent.sending + self._quickest[worker])
        return self._sending.get(worker, 0.0)
