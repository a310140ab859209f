"""A whole soak, from its configuration to its verdict."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgczmq.app import master
from pgczmq.bench.torture.machine import free_port, taken_ports, working_in
from pgczmq.bench.torture.soak import audit as audits
from pgczmq.bench.torture.soak.audit import Evidence, Findings
from pgczmq.bench.torture.soak.cast import LOOK_SECONDS, Cast, Told
from pgczmq.bench.torture.soak.fates import fates, growth, leaks
from pgczmq.bench.torture.soak.mischief import Mischief
from pgczmq.bench.torture.soak.run import Course
from pgczmq.bench.torture.soak.undisturbed import compared
from pgczmq.config import RunConfig, load
from pgczmq.errors import ConfigError
from pgczmq.runlog import EventRecord, LatencyRecord, Result, StepRecord, read, read_result
from pgczmq.train import plain
from pgczmq.train.marks import read_applied, read_sent

RUN = "soak"
"""The run's name."""
COMMON = (
    f"name={RUN}",
    "scheme.name=pgc-cr",
    "scheme.stragglers=3",
    "scheme.load=4",
    "delay.model=exponential",
    "delay.mean=0.05",
    "net.heartbeat=0.5",
    "checkpoint.every=20",
    "eval.every=0",
    "threads=1",
    "ui.mode=none",
)
FAULTS = (
    'faults=[{ kind = "drop", probability = 0.005 }, { kind = "duplicate", probability = 0.005 }, '
    '{ kind = "delay", probability = 0.005, seconds = 0.2 }, { kind = "reorder", probability = 0.002 }, '
    '{ kind = "corrupt", probability = 0.002 }]'
)
OWN = (f"task.name={plain.NAME}", "steps=1000000000", FAULTS)
"""Of the task without torch: it goes on for as long as it is disturbed."""
STEPS_A_SECOND = 5
"""Of any other, which comes to its own end, for its loss is compared: about as fast as that, while disturbed."""
HELPERS_SECONDS = 5.0
"""A process of a master that has ended is gone by then."""
END_SECONDS = 1800.0
"""A run that is no more disturbed has made all its steps by then; longer is a hang."""


@dataclass(frozen=True)
class Plan:
    """What a soak is.

    Args:
        seconds: how long mischief is done.
        workers: how many.
        kill_every, master_every: mean seconds between kills of workers, and of the master.
        seed: of the run and of the mischief.
        task: "soak", or a built-in one with a model.
        settings: keys of the run that differ from those here.
    """

    seconds: float
    workers: int = 12
    kill_every: float = 3.0
    master_every: float = 60.0
    seed: int = 1
    task: str = plain.NAME
    settings: Sequence[str] = ()

    @property
    def ends(self) -> bool:
        """The run comes to an end of its own."""
        return self.task != plain.NAME


def configured(plan: Plan, directory: Path, port: int) -> RunConfig:
    """The run of a soak.

    Raises:
        ConfigError: a setting cannot be, or its weights could not be audited.
    """
    steps = f"steps={max(1, round(STEPS_A_SECOND * plan.seconds))}"
    model = (f"task.name={plan.task}", steps, FAULTS)
    task = model if plan.ends else (*OWN, f"task.args.log={directory / 'log'}")
    mine = (f"workers={plan.workers}", f"seed={plan.seed}", f"net.port={port}")
    config = load(None, [*COMMON, *task, *mine, *plan.settings], {})
    master.check(config)
    if config.scheme.name not in audits.AUDITED:
        raise ConfigError(
            f"pgc soak audits weights by the formulas of some schemes: got scheme.name={config.scheme.name}. Use one "
            f"of {', '.join(audits.AUDITED)}."
        )
    return config


def soak(plan: Plan, directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it; returns all that is printed and saved, as plain JSON values, times in seconds.

    Args:
        directory: empty; everything stays there.
        say: takes lines of progress.
    """
    port = free_port()
    config = configured(plan, directory, port)
    (directory / "soak.toml").write_text(config.to_toml(), encoding="utf-8")
    cast = Cast(directory, RUN, workers=plan.workers, port=port)
    mischief = Mischief(plan.seed, plan.workers, plan.kill_every, plan.master_every)
    patience = END_SECONDS if plan.ends else 0.0
    lasted = Course(cast, mischief, seconds=plan.seconds, patience=patience, say=say).run()
    say("everybody has ended; the audit begins")
    evidence, result = evidence_of(config, directory)
    findings = Findings([*cast.told.findings, *left_over(directory, port)])
    growth(cast.told.samples, findings)
    leaks(cast.told.first, cast.told.last, findings)
    answers = {} if plan.ends else fates(evidence, cast.lives, findings)
    losses = compared(config, directory, result, findings) if plan.ends else {}
    return {
        "plan": asdict(plan),
        "scheme": config.scheme.name,
        "seconds": lasted,
        "steps": len(evidence.steps),
        "updates": sum(bool(one.messages) for one in evidence.applied),
        "masters": len(cast.master.lives),
        "worker_processes": sum(len(worker.lives) for worker in cast.workers),
        "deeds": cast.told.deeds,
        "start_to_ready": spread(cast.told.joins),
        "fault_to_ready": spread(cast.told.returns),
        "master_to_next_step": spread(cast.told.recoveries),
        "answers": answers,
        "held": held(cast.told),
        "losses": losses,
        "findings": [*findings.sentences(), *audits.audit(evidence)],
        "directory": str(directory),
    }


def evidence_of(config: RunConfig, directory: Path) -> tuple[Evidence, Result | None]:
    """What a run left in the directory of a soak."""
    run, log = directory / "runs" / RUN, directory / "log"
    path = run / "result.json"
    result = read_result(path) if path.exists() else None
    evidence = Evidence(
        config,
        steps=list(read(run, StepRecord)),
        answers=list(read(run, LatencyRecord)),
        events=list(read(run, EventRecord)),
        applied=read_applied(log),
        sent=read_sent(log),
        weights_sha256="" if result is None else result.weights_sha256,
    )
    return evidence, result


def left_over(directory: Path, port: int) -> list[str]:
    """What is still there although everybody has ended; helpers of a master end a moment after it."""
    limit = time.monotonic() + HELPERS_SECONDS
    while working_in(directory) and time.monotonic() < limit:
        time.sleep(LOOK_SECONDS)
    found = [f"process {pid} still works in {directory}" for pid in working_in(directory)]
    found += [f"somebody still listens on port {taken}" for taken in taken_ports(port)]
    return found + [f"{path} was left half-written" for path in sorted((directory / "runs").rglob(".partial*"))]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """How many, their median, and the worst of them."""
    if not seconds:
        return {"count": 0}
    return {"count": len(seconds), "median": statistics.median(seconds), "worst": max(seconds)}


def held(told: Told) -> Mapping[str, Mapping[str, float]]:
    """Of each kind of process, the most that one held: with everybody there, at the start and at the end, and ever.

    Memory in MB of 10^6 bytes.
    """
    times = {"start": told.first, "end": told.last, "most": told.samples}
    found: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(sample.kind for sample in told.samples):
        mine = {when: [one for one in samples if one.kind == kind] for when, samples in times.items()}
        memory = {f"memory_{when}": max(one.memory for one in some) / 1e6 for when, some in mine.items() if some}
        files = {f"files_{when}": max(one.descriptors for one in some) for when, some in mine.items() if some}
        found[kind] = memory | files
    return found
