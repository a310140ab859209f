"""A small run of the task "soak" without processes: two masters, the first killed, and workers of two lives each."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pgczmq.app import build
from pgczmq.bench.torture.soak.audit import Evidence
from pgczmq.bench.torture.soak.fates import Process
from pgczmq.config import RunConfig, load
from pgczmq.core.policies import Plan
from pgczmq.core.schemes import Scheme
from pgczmq.runlog import LatencyRecord, StepRecord
from pgczmq.train import plain
from pgczmq.train.marks import Applied, Sent, read_applied, read_sent

WORKERS, STEPS = 4, 12
KILLED_AT, RESUMED_AT = 8, 5
"""The first master had applied so many steps; the second goes on from so many."""
MASTERS = (101, 102)
RUN = "made-up"


def config_of(directory: Path, scheme: str = "pgc-cr") -> RunConfig:
    settings = ["task.name=soak", "task.args.size=100", f"task.args.log={directory}", "scheme.stragglers=1"]
    return load(
        None, [*settings, f"workers={WORKERS}", f"scheme.name={scheme}", "scheme.load=2", "optimizer.lr=0.1"], {}
    )


class Life:
    """What one master and its workers do."""

    def __init__(self, config: RunConfig, scheme: Scheme, number: int) -> None:
        args = plain.Arguments.of(config.task.args)
        self.scheme = scheme
        self.number = number
        self.master = plain.PlainMaster(args, seed=config.seed, lr=config.optimizer.lr)
        self.workers = []
        for worker, held in enumerate(scheme.placement.held):
            row = scheme.coefficients_NC[worker].tolist()
            made = plain.PlainWorker(args, seed=config.seed, worker=worker, held=held, coefficients=row)
            made.begin(RUN, f"master-{number}", incarnation(number, worker))
            self.workers.append(made)
        self.evaluated: list[list[int | None]] = [[None] * scheme.load for _ in range(WORKERS)]

    def answer(self, worker: int, step: int) -> tuple[np.ndarray, tuple[int, ...]]:
        """The coded gradient, as bytes, and its ages."""
        compute, evaluated = self.workers[worker], self.evaluated[worker]
        compute.load(self.master.snapshot()[0], b"")
        room = np.zeros(4 * compute.parameter_count, np.uint8)
        for place in self.scheme.schedule.places(worker, step, evaluated):
            compute.evaluate(step, place, 1.0, room)
            evaluated[place] = step
        compute.encode(room, b"")
        return room, tuple(step - at for at in evaluated if at is not None)

    def step(self, step: int) -> tuple[StepRecord, list[LatencyRecord]]:
        """Everybody answers, the last one late."""
        order = [(step + offset) % WORKERS for offset in range(WORKERS)]
        arrived = order[:-1]
        answers = {worker: self.answer(worker, step) for worker in order}
        weights = self.scheme.usable(arrived, k=self.scheme.k, origin=0.0)
        assert weights is not None
        by_worker = sorted(zip(weights.workers, weights.values, strict=True))
        messages = [(worker, weight, answers[worker][0], b"") for worker, weight in by_worker]
        self.master.apply(step, messages, Plan(self.scheme.k))
        used = tuple(worker for worker, _ in by_worker)
        record = StepRecord(
            step=step,
            published_at=step,
            closed_at=step + 0.5,
            k=self.scheme.k,
            batch_fraction=1.0,
            loss=1.0,
            arrived=tuple(arrived),
            arrived_at=tuple(step + 0.1 for _ in arrived),
            used=used,
            spare=tuple(sorted(set(arrived) - set(used))),
            missing=(order[-1],),
            weights=tuple(weight for _, weight in by_worker),
            ages=tuple(answers[worker][1] for worker in used),
            recovered=1.0,
            max_alpha=1.0,
            fresh=WORKERS,
            applied_at=step + 0.6,
            norm=1.0,
            bytes=8,
        )
        return record, [self.latency(worker, step, late=worker not in arrived) for worker in order]

    def latency(self, worker: int, step: int, *, late: bool) -> LatencyRecord:
        return LatencyRecord(
            worker=worker,
            step=step,
            published_at=step,
            wait=0.0,
            compute=0.1,
            delay=0.0,
            send=0.0,
            arrived_at=step + 0.1,
            evaluated=1,
            outcome="late" if late else "open",
            newest_age=0,
            incarnation=incarnation(self.number, worker),
        )


def incarnation(life: int, worker: int) -> str:
    return f"{life:08x}{worker:08x}"


def made_up(directory: Path, scheme: str = "pgc-cr") -> Evidence:
    """What such a run leaves, with nothing wrong about it."""
    config = config_of(directory, scheme)
    built = build.scheme_of(config)
    first, second = Life(config, built, 0), Life(config, built, 1)
    records: dict[int, tuple[StepRecord, list[LatencyRecord]]] = {}
    for step in range(KILLED_AT):
        if step == RESUMED_AT:
            first.master.write_files(directory, first.master.checkpoint_state())
        records[step] = first.step(step)
    second.master.restore(directory)
    for step in range(RESUMED_AT, STEPS):
        records[step] = second.step(step)
    applied, sent = read_applied(directory), read_sent(directory)
    return Evidence(
        config,
        steps=[record for record, _ in records.values()],
        answers=list(itertools.chain.from_iterable(answers for _, answers in records.values())),
        events=[],
        applied=[of_process(one, place) for place, one in enumerate(applied)],
        sent=[dataclasses.replace(one, process=process_of(one)) for one in sent],
        weights_sha256=second.master.sha256(),
    )


def of_process(one: Applied, place: int) -> Applied:
    """All was written by this very process: said to be of one of two."""
    return dataclasses.replace(one, master=MASTERS[place >= KILLED_AT])


def process_of(sent: Sent) -> int:
    return 1000 + 10 * int(sent.mark.incarnation[:8], 16) + sent.mark.worker


def processes(evidence: Evidence, *, seconds: float = 1.0) -> Sequence[Process]:
    """Theirs; each ended so long after the last that it sent."""
    last = {sent.process: sent for sent in evidence.sent}
    ended = {pid: sent.at + seconds for pid, sent in last.items()}
    workers = [
        Process(f"worker {sent.mark.worker}", pid, 0.0, ended[pid], "killed", -9) for pid, sent in sorted(last.items())
    ]
    turn = evidence.applied[KILLED_AT].at  # what it took up
    first, second = MASTERS
    return [
        Process("master", first, 0.0, turn, "killed", -9),
        Process("master", second, turn, max(ended.values()), "ended", 75),
        *workers,
    ]
