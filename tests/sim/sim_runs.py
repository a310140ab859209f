"""Simulated runs for the tests of this folder."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pgczmq.core.delays import DelayModel, ExponentialDelay, Failure
from pgczmq.core.engine import Engine, Rules
from pgczmq.core.schemes import Scheme, Settings, build
from pgczmq.runlog import EventRecord, LatencyRecord, Record, StepRecord
from pgczmq.sim.cluster import Simulation
from pgczmq.sim.training import TimingOnly, Training
from pgczmq.sim.virtual import Aside, Durations, Ending


@dataclass
class Simulated:
    """A run that is over."""

    scheme: Scheme
    ending: Ending
    records: list[Record] = field(default_factory=list)

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def latencies(self) -> list[LatencyRecord]:
        return [record for record in self.records if isinstance(record, LatencyRecord)]

    def events(self, kind: str) -> list[EventRecord]:
        return [record for record in self.records if isinstance(record, EventRecord) and record.kind == kind]


def scheme_of(name: str, workers: int, **settings: Any) -> Scheme:
    return build(Settings(name, workers, **settings))


def simulate(
    scheme: Scheme,
    *,
    steps: int,
    durations: Durations | None = None,
    delay: DelayModel | None = None,
    rules: dict[str, Any] | None = None,
    training: Training | None = None,
    failures: Iterable[Failure] = (),
    aside: Aside | None = None,
    with_records: bool = True,
) -> Simulated:
    """One run; exponential delays with mean 1 unless something else is said."""
    planned = delay or ExponentialDelay(1, 1.0)
    records: list[Record] = []
    simulation = Simulation(
        Engine(scheme, Rules(**({"steps": steps} | (rules or {}))), planned.seconds, 0.0),
        scheme,
        durations=durations or Durations(delay=planned.seconds),
        training=training or TimingOnly(),
        sink=records.append if with_records else None,
        failures=failures,
        aside=aside,
    )
    return Simulated(scheme, simulation.run(), records)
