"""``pgc sim``: the run of ``pgc local`` in virtual time and in one process; the same twice, to the byte."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pgczmq.app import build
from pgczmq.app.faults import check_simulated
from pgczmq.app.outcome import Keeper, result_of
from pgczmq.app.resume import NEVER, SIMULATED, Beginning, begin, find, keeper_of
from pgczmq.config import RunConfig
from pgczmq.core import codes, placement
from pgczmq.core.codes import Floats
from pgczmq.core.delays import ConstantDelay, Proportional
from pgczmq.core.engine import Engine
from pgczmq.core.placement import Placement
from pgczmq.core.progress import Progress
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ConfigError
from pgczmq.runlog import EvalRecord, Record, Result, RunRecord, Sink, write_result
from pgczmq.sim.asynchronous import Asynchronous
from pgczmq.sim.cluster import Simulation
from pgczmq.sim.records import BatchLog
from pgczmq.sim.training import TimingOnly, Training
from pgczmq.sim.virtual import Aside, Durations, Ending

if TYPE_CHECKING:
    from pgczmq.train.evaluate import Evaluator
    from pgczmq.train.gradient import PartitionGradient
    from pgczmq.train.optimizer import Learner

HERE = "."


@dataclass(frozen=True)
class Layout:
    """Who holds and sends what, and how many arrivals close a step: of a scheme, or of the asynchronous baseline."""

    placement: Placement
    coefficients_NC: Floats
    k: int


@dataclass(frozen=True)
class Model:
    """The parts of a gradient run that have tensors."""

    learner: "Learner"
    gradient: "PartitionGradient"
    training: Training
    evaluator: "Evaluator | None"
    metric: str
    """Name of what the evaluator measures beside the loss; empty without it."""


def check(config: RunConfig) -> Scheme | None:
    """Everything that can be wrong with a simulation and can be seen without torch; None for the async baseline.

    Raises:
        ConfigError: the first thing found.
    """
    build.delay_of(config)
    build.failures_of(config)
    check_simulated(config)
    if config.deterministic and (config.sim.evaluation or config.sim.communication):
        raise ConfigError(
            "in a deterministic run the planned delays alone take time: got deterministic=true with "
            f"sim.evaluation={config.sim.evaluation:g}, sim.communication={config.sim.communication:g}. Leave both out."
        )
    if config.sim.forget_at is not None and not config.deterministic:
        raise ConfigError(
            "workers forget what they retain between two steps, which only a run in lockstep has: got sim.forget_at="
            f"{config.sim.forget_at} with deterministic=false. Set deterministic=true, or leave sim.forget_at out."
        )
    if config.scheme.name == build.ASYNC:
        if config.deterministic:
            raise ConfigError(
                "a deterministic run goes in lockstep, which asynchronous SGD does not: got deterministic=true with "
                'scheme.name="async". Leave deterministic out: a simulation is the same twice without it.'
            )
        if config.delay.failures:
            raise ConfigError(
                'the asynchronous baseline has no failures: got [[delay.failures]] with scheme.name="async". '
                "Leave them out."
            )
        return None
    build.check_lockstep(config)
    return build.scheme_of(config)


def run(config: RunConfig, *, model: Model | None, sink: Sink, root: Path, resume: str = NEVER) -> Result:
    """Simulate a run from its first step to its last.

    Args:
        config: checked with ``check``.
        model: from ``model_of``; None leaves the gradients out: nothing is trained, losses are null.
        sink: sees every record as it comes; must not block.
        root: where the run directory is made.
        resume: what to go on with, as ``app.resume.find`` takes it.

    Raises:
        ConfigError: the run cannot be gone on with.
    """
    scheme = check(config)
    if resume != NEVER and (model is None or scheme is None):
        raise ConfigError(
            "asynchronous SGD, and a simulation without gradients, leave nothing to go on with: got --resume. "
            "Leave it out."
        )
    layout = _layout(config, scheme)
    found = find(config, resume, root, run_id=SIMULATED)
    if found is not None and found.checkpoint is not None and model is not None:
        model.learner.restore(found.checkpoint)
    name = build.run_name(config, "sim")
    with begin(config, found, root, name=name, run_id=SIMULATED) as beginning, BatchLog(beginning.directory) as log:
        keeper = keeper_of(config, beginning, layout.coefficients_NC, log.flush)
        records = _Records(log, keeper, sink)
        sink(_about(config, layout, beginning.directory, model))
        ending = _drive_with_directory(config, scheme, model, beginning, keeper, records)
    result = _result(config, layout, ending, model, records.evaluation, beginning.directory)
    sink(result)
    return result


@dataclass
class _Records:
    """Takes every record of a run with a directory; remembers the last evaluation."""

    log: BatchLog
    keeper: Keeper
    sink: Sink
    evaluation: EvalRecord | None = None

    def take(self, record: Record) -> None:
        """Into the directory, and to whoever watches."""
        if isinstance(record, EvalRecord):
            self.evaluation = record
            self.keeper.evaluated(record)
        self.log.record(record)
        self.sink(record)


def _drive_with_directory(
    config: RunConfig,
    scheme: Scheme | None,
    model: Model | None,
    beginning: Beginning,
    keeper: Keeper,
    records: _Records,
) -> Ending:
    for event in beginning.events:
        records.take(event)
    if model is None:
        driver = _driver(config, scheme, TimingOnly(), Aside(), records.take)
    else:
        driver = _driver(config, scheme, model.training, _aside(model, keeper), records.take, beginning)
    if isinstance(driver, Asynchronous):
        return driver.run()
    with _stopped_by_signals(driver):
        return driver.run()


def _result(
    config: RunConfig,
    layout: Layout,
    ending: Ending,
    model: Model | None,
    evaluation: EvalRecord | None,
    directory: Path,
) -> Result:
    result = result_of(
        config,
        ending,
        k=layout.k,
        evaluation=evaluation,
        metric="" if model is None else model.metric,
        weights_sha256="" if model is None else model.learner.sha256(),
        run=str(directory),
    )
    mean = ending.seconds / ending.steps if ending.steps else None
    result = replace(result, virtual_seconds=ending.seconds, seconds_per_step=mean)
    write_result(directory, replace(result, run=HERE))  # the same bytes whatever the directory is called
    return result


@contextlib.contextmanager
def _stopped_by_signals(simulation: Simulation) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the run with a checkpoint, a second one as always."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        restore()
        simulation.stop(f"interrupted by {signal.Signals(number).name}")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def time_only(config: RunConfig, scheme: Scheme | None) -> Ending:
    """The same without gradients, records and a run directory: only how long the run takes."""
    return _driver(config, scheme, TimingOnly(), Aside(), None).run()


def observe(config: RunConfig, *, model: Model | None, sink: Sink) -> Ending:
    """The same as ``run`` without a run directory: the records are the sink's alone, and no checkpoint is made."""
    scheme = check(config)
    if model is None:
        return _driver(config, scheme, TimingOnly(), Aside(), sink).run()
    evaluator, learner = model.evaluator, model.learner
    aside = Aside(None if evaluator is None else lambda: evaluator.evaluate(*learner.snapshot()))
    return _driver(config, scheme, model.training, aside, sink).run()


def model_of(config: RunConfig) -> Model:
    """Task, parameters and gradients of a run; imports torch.

    Raises:
        ConfigError: something about the task or the device does not work.
    """
    import torch

    from pgczmq.train.evaluate import Evaluator
    from pgczmq.train.gradient import PartitionGradient, resolve_device
    from pgczmq.train.shared import SharedTraining

    scheme = check(config)
    layout = _layout(config, scheme)
    torch.set_num_threads(1 if config.threads == "auto" else config.threads)
    device = resolve_device(config.device)
    task, learner = build.task_and_learner(config, None if scheme is None else scheme.policy.needs)
    partitions = build.partitions_of(config, task)
    gradient = PartitionGradient(task, partitions=partitions, seed=config.seed, device=device)
    rows = layout.coefficients_NC.tolist()
    training = SharedTraining(learner, gradient, held=layout.placement.held, coefficients=rows)
    evaluator = None if task.test is None else Evaluator(task, config.seed, device)
    return Model(learner, gradient, training, evaluator, "" if evaluator is None else task.metric_name)


def durations_of(config: RunConfig) -> Durations:
    """How long everything takes: what the delay model says, and the times of the ``[sim]`` section."""
    if config.deterministic:
        return Durations()  # what is planned is the engine's business
    evaluation, communication = config.sim.evaluation, config.sim.communication
    return Durations(
        evaluation=Proportional(ConstantDelay(evaluation)).seconds if evaluation else None,
        delay=build.delay_of(config).seconds,
        communication=ConstantDelay(communication).seconds if communication else None,
    )


def _driver(
    config: RunConfig,
    scheme: Scheme | None,
    training: Training,
    aside: Aside,
    record: Sink | None,
    beginning: Beginning | None = None,
) -> Simulation | Asynchronous:
    durations = durations_of(config)
    if scheme is None:
        return Asynchronous(
            config.workers,
            steps=config.steps,
            eval_every=config.eval.every,
            checkpoint_every=config.checkpoint.every,
            durations=durations,
            training=training,
            aside=aside,
            sink=record,
        )
    at, progress = (0.0, None) if beginning is None else (beginning.at, beginning.progress)
    return Simulation(
        Engine(scheme, build.rules_of(config), build.delay_of(config).seconds, at, progress),
        scheme,
        durations=durations,
        training=training,
        aside=aside,
        sink=record,
        failures=build.failures_of(config),
        started_at=at,
        forget_at=config.sim.forget_at,
    )


def _layout(config: RunConfig, scheme: Scheme | None) -> Layout:
    if scheme is None:
        return Layout(placement.identity(config.workers), codes.ones(config.workers, 1), config.workers)
    return Layout(scheme.placement, scheme.coefficients_NC, scheme.k)


def _about(config: RunConfig, layout: Layout, directory: Path, model: Model | None) -> RunRecord:
    return RunRecord(
        name=directory.name,
        directory=str(directory),
        scheme=config.scheme.name,
        task=config.task.name,
        workers=config.workers,
        stragglers=config.workers - layout.k,
        steps=config.steps,
        parameters=0 if model is None else model.learner.parameter_count,
        metric="" if model is None else model.metric,
    )


def _aside(model: Model, keeper: Keeper) -> Aside:
    learner, evaluator = model.learner, model.evaluator

    def checkpoint(progress: Progress) -> str:
        state = learner.checkpoint_state()
        return keeper.write(progress, lambda directory: learner.write_files(directory, state))

    return Aside(None if evaluator is None else lambda: evaluator.evaluate(*learner.snapshot()), checkpoint)
