"""``pgc replay``: a finished run through the simulator again, to see whether it decides as the run did.

Twice, with the same engine, rules and policy, without gradients:

* **arrivals**: every answer comes when it was recorded to come, and the next step is published as long after the
  closing of the one before as it was. Who is used, spare, late and missing must be the same at every step.
* **durations**: simulated workers do what the rule of ``scheme.on_new_step`` says, and only durations are taken from
  the record: of each (worker, step) the way of the parameters to the worker, each evaluation, the injected delay as it
  was slept, and the way of the message to the master; of each step the time from its closing to the next publication.
  No time of day, no wait, and nothing of who answered what: when a step is published, begun, skipped or given up
  follows from the simulation, from the first step to the last, so that an error may grow. Steps that end otherwise are
  listed with their margin.

A margin says how little, in seconds, would have put an answer on the other side: the gap between the arrival that
changed sides and the closing of the step, or the other arrival that changed with it; where an answer exists in one
of the runs only, the gap between its worker's beginning or end and the next publication counts, too. The largest of
a step's changed workers is given.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgczmq.app import build
from pgczmq.app.recorded import Recorded, RecordedDurations, RecordedUpdates, read_recorded, update_seconds
from pgczmq.core.delays import Failure
from pgczmq.core.engine import Engine
from pgczmq.runlog import LatencyRecord, Record, StepRecord
from pgczmq.sim.cluster import Hire, Simulation
from pgczmq.sim.playback import Playback, lives_between
from pgczmq.sim.virtual import Durations

FOREVER = 1e9
"""Seconds; nothing in a replay ends by a deadline unless nothing else happens any more."""
NOT_WHOLE = (
    "not replayed: workers came after the first step or left, and their absence is no duration; "
    "runs whose workers were all there from the first step to the last can be replayed"
)


@dataclass(frozen=True)
class Account:
    """What became of everybody's answers in one run, recorded or replayed."""

    steps: Mapping[int, StepRecord]
    answers: Mapping[tuple[int, int], LatencyRecord]  # by worker and step

    @staticmethod
    def of(records: Sequence[Record]) -> "Account":
        """From a run's records, in order."""
        return Account(
            {record.step: record for record in records if isinstance(record, StepRecord)},
            {(record.worker, record.step): record for record in records if isinstance(record, LatencyRecord)},
        )

    def side(self, worker: int, step: int) -> str:
        """used, spare, late, or missing: not answered at all."""
        closed = self.steps[step]
        if worker in closed.used:
            return "used"
        if worker in closed.spare:
            return "spare"
        return "late" if (worker, step) in self.answers else "missing"


@dataclass(frozen=True)
class Other:
    """A step that the replay closed otherwise.

    Args:
        margin: seconds; None when the replay never closed it.
        changed: (worker, recorded side, replayed side).
    """

    step: int
    margin: float | None
    changed: tuple[tuple[int, str, str], ...]


def replay(directory: Path) -> dict[str, Any]:
    """Everything that ``pgc replay`` prints, as plain JSON values; times in seconds.

    ``arrivals`` and ``durations``: how many ``steps`` were compared, how many ``agree``, their ``share``, and the
    ``others``, each with its margin and who changed sides. ``durations`` also counts the replay's ``answers`` and its
    ``stand_ins``, steps that a simulated worker began on and the real one did not. Where durations cannot be
    replayed, it is a sentence that says why.

    Raises:
        ConfigError: the directory holds no run that can be replayed.
    """
    recorded = read_recorded(directory)
    return {
        "run": str(directory),
        "scheme": recorded.config.scheme.name,
        "on_new_step": recorded.scheme.on_new_step,
        "workers": recorded.scheme.workers,
        "arrivals": _summary(recorded, by_arrivals(recorded)),
        "durations": _durations(recorded) if recorded.whole else NOT_WHOLE,
    }


def _durations(recorded: Recorded) -> dict[str, Any]:
    fed = RecordedDurations(recorded, build.delay_of(recorded.config))
    replayed = by_durations(recorded, fed)
    counts = {"answers": len(replayed.answers), "stand_ins": len(fed.stood_in)}
    return _summary(recorded, replayed, fed.stood_in) | counts


def by_arrivals(recorded: Recorded) -> Account:
    """The run with its answers coming when they came."""
    since = recorded.steps[0].published_at
    return _simulated(
        recorded,
        Durations(update=update_seconds(recorded.steps).__getitem__),
        hire=lambda agenda, deliver: Playback(recorded.answers, agenda, deliver, since=since),
        failures=lives_between(recorded.answers, since=since),
    )


def by_durations(recorded: Recorded, fed: RecordedDurations) -> Account:
    """The run with simulated workers that take as long as the real ones took."""
    return _simulated(recorded, fed.durations)


def _simulated(
    recorded: Recorded, durations: Durations, *, hire: Hire | None = None, failures: Sequence[Failure] = ()
) -> Account:
    rules = replace(
        build.rules_of(recorded.config), steps=len(recorded.steps), step_timeout=FOREVER, start_timeout=FOREVER
    )
    records: list[Record] = []
    Simulation(
        Engine(recorded.scheme, rules, lambda *_: 0.0, 0.0),
        recorded.scheme,
        durations=durations,
        training=RecordedUpdates(recorded.steps),
        sink=records.append,
        failures=failures,
        hire=hire,
    ).run()
    return Account.of(records)


# ---------------------------------------------------------------- comparing


def _summary(recorded: Recorded, replayed: Account, stood_in: Collection[tuple[int, int]] = ()) -> dict[str, Any]:
    others = differences(Account.of([*recorded.steps, *recorded.answers]), replayed, recorded.scheme.workers)
    steps = len(recorded.steps)
    agree = steps - len(others)
    listed = [
        {
            "step": other.step,
            "margin": other.margin,
            "changed": [
                {"worker": worker, "recorded": was, "replayed": became, "stood_in": (worker, other.step) in stood_in}
                for worker, was, became in other.changed
            ],
        }
        for other in others
    ]
    return {"steps": steps, "agree": agree, "share": agree / steps, "others": listed}


def differences(recorded: Account, replayed: Account, workers: int) -> list[Other]:
    """Every recorded step at which somebody is on another side in the replay, or that it did not reach."""
    others: list[Other] = []
    for step in recorded.steps:
        if step not in replayed.steps:
            others.append(Other(step, None, ()))
            continue
        sides = [(worker, recorded.side(worker, step), replayed.side(worker, step)) for worker in range(workers)]
        changed = tuple(side for side in sides if side[1] != side[2])
        if changed:
            names = [worker for worker, *_ in changed]
            margin = max(_gap(worker, step, names, recorded, replayed) for worker in names)
            others.append(Other(step, margin, changed))
    return others


def _gap(worker: int, step: int, changed: Sequence[int], recorded: Account, replayed: Account) -> float:
    """How far this worker's answer was from the other side: in the recorded run if it is there, else in the replay."""
    mine, other = (recorded, replayed) if (worker, step) in recorded.answers else (replayed, recorded)
    answer = mine.answers[worker, step]
    rivals = [
        mine.answers[rival, step].arrived_at for rival in changed if rival != worker and (rival, step) in mine.answers
    ]
    gaps = [abs(answer.arrived_at - at) for at in (mine.steps[step].closed_at, *rivals)]
    following = mine.steps.get(step + 1)
    if following is not None and (worker, step) not in other.answers:
        ended_at = answer.arrived_at - answer.send
        begun_at = ended_at - answer.delay - answer.compute
        gaps += [abs(following.published_at - at) for at in (begun_at, ended_at)]
    return min(gaps)
