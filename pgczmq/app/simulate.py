"""``pgc sim``: the run of ``pgc local`` in virtual time and in one process; the same twice, to the byte."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pgczmq.app import build
from pgczmq.app.outcome import result_of, write_checkpoint
from pgczmq.config import RunConfig
from pgczmq.core import codes, placement
from pgczmq.core.codes import Floats
from pgczmq.core.delays import ConstantDelay, Proportional
from pgczmq.core.engine import Engine
from pgczmq.core.placement import Placement
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ConfigError
from pgczmq.runlog import EvalRecord, Record, Result, RunRecord, Sink, create_directory, write_result
from pgczmq.sim.asynchronous import Asynchronous
from pgczmq.sim.cluster import Simulation
from pgczmq.sim.records import BatchLog
from pgczmq.sim.training import TimingOnly, Training
from pgczmq.sim.virtual import Aside, Durations, Ending

if TYPE_CHECKING:
    from pgczmq.train.evaluate import Evaluator
    from pgczmq.train.gradient import PartitionGradient
    from pgczmq.train.optimizer import Learner

RUN_ID = "simulated"
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


def check(config: RunConfig) -> Scheme | None:
    """Everything that can be wrong with a simulation and can be seen without torch; None for the async baseline.

    Raises:
        ConfigError: the first thing found.
    """
    build.delay_of(config)
    build.failures_of(config)
    if config.deterministic and (config.sim.evaluation or config.sim.communication):
        raise ConfigError(
            "in a deterministic run the planned delays alone take time: got deterministic=true with "
            f"sim.evaluation={config.sim.evaluation:g}, sim.communication={config.sim.communication:g}. Leave both out."
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


def run(config: RunConfig, *, model: Model | None, sink: Sink, root: Path) -> Result:
    """Simulate a run from its first step to its last.

    Args:
        config: checked with ``check``.
        model: from ``model_of``; None leaves the gradients out: nothing is trained, losses are null.
        sink: sees every record as it comes; must not block.
        root: where the run directory is made.
    """
    scheme = check(config)
    layout = _layout(config, scheme)
    directory = create_directory(root, build.run_name(config, "sim"))
    (directory / "config.toml").write_text(config.to_toml())
    evaluation: list[EvalRecord] = []
    with BatchLog(directory) as log:

        def record(record: Record) -> None:
            if isinstance(record, EvalRecord):
                evaluation[:] = [record]
            log.record(record)
            sink(record)

        sink(_about(config, layout, directory, model))
        if model is None:
            ending = _drive(config, scheme, TimingOnly(), Aside(), record)
        else:
            ending = _drive(config, scheme, model.training, _aside(config, layout, directory, model), record)
    result = result_of(
        config,
        ending,
        k=layout.k,
        evaluation=evaluation[-1] if evaluation else None,
        weights_sha256="" if model is None else model.learner.sha256(),
        run=str(directory),
    )
    mean = ending.seconds / ending.steps if ending.steps else None
    result = replace(result, virtual_seconds=ending.seconds, seconds_per_step=mean)
    write_result(directory, replace(result, run=HERE))  # the same bytes whatever the directory is called
    sink(result)
    return result


def time_only(config: RunConfig, scheme: Scheme | None) -> Ending:
    """The same without gradients, records and a run directory: only how long the run takes."""
    return _drive(config, scheme, TimingOnly(), Aside(), None)


def observe(config: RunConfig, *, model: Model | None, sink: Sink) -> Ending:
    """The same as ``run`` without a run directory: the records are the sink's alone, and no checkpoint is made."""
    scheme = check(config)
    if model is None:
        return _drive(config, scheme, TimingOnly(), Aside(), sink)
    evaluator, learner = model.evaluator, model.learner
    aside = Aside(None if evaluator is None else lambda: evaluator.evaluate(*learner.snapshot()))
    return _drive(config, scheme, model.training, aside, sink)


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
    return Model(learner, gradient, training, evaluator)


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


def _drive(
    config: RunConfig,
    scheme: Scheme | None,
    training: Training,
    aside: Aside,
    record: Sink | None,
) -> Ending:
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
        ).run()
    engine = Engine(scheme, build.rules_of(config), build.delay_of(config).seconds, 0.0)
    return Simulation(
        engine,
        scheme,
        durations=durations,
        training=training,
        aside=aside,
        sink=record,
        failures=build.failures_of(config),
    ).run()


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
    )


def _aside(config: RunConfig, layout: Layout, directory: Path, model: Model | None) -> Aside:
    if model is None:
        return Aside()
    learner, evaluator, rows = model.learner, model.evaluator, layout.coefficients_NC

    def checkpoint(step: int) -> str:
        state = learner.checkpoint_state()
        return write_checkpoint(config, directory, step, state=state, run_id=RUN_ID, coefficients_NC=rows)

    return Aside(None if evaluator is None else lambda: evaluator.evaluate(*learner.snapshot()), checkpoint)
