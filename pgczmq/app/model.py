"""What a run trains, as its master and its workers have it: in torch, or the NumPy task without it.

Torch is imported only where the task is one of its own, so that master and workers of the other start in no time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pgczmq.app import build, processes
from pgczmq.config import RunConfig
from pgczmq.core.policies import Needs
from pgczmq.net import wire
from pgczmq.net.compute import MasterCompute, WorkerCompute
from pgczmq.train import plain

if TYPE_CHECKING:
    from pgczmq.app.evaluator import EvaluatorProcess


class Trained(MasterCompute, Protocol):
    """Parameters and optimizer that can be kept and taken up again."""

    def checkpoint_state(self) -> Any:
        """Copies of everything that the run needs to go on; on the compute thread."""
        ...

    def write_files(self, directory: Path, state: Any) -> None:
        """Write what ``checkpoint_state`` gave into a directory; on any thread."""
        ...

    def restore(self, directory: Path) -> None:
        """Take up what ``write_files`` wrote, to the same bits."""
        ...


@dataclass(frozen=True)
class MasterModel:
    """What the master has of the task.

    Args:
        trained: the parameters.
        start_evaluator: starts the process that looks at the held-out data; None without such data.
        metric: name of what it measures beside the loss; empty without it.
    """

    trained: Trained
    start_evaluator: Callable[[], "EvaluatorProcess"] | None
    metric: str = ""


def master_model(config: RunConfig, needs: Needs) -> MasterModel:
    """Build what is trained.

    Args:
        needs: the statistics that the scheme's policy reads.

    Raises:
        ConfigError: something about the task does not work.
    """
    if config.task.name == plain.NAME:
        args = plain.Arguments.of(config.task.args)
        return MasterModel(plain.PlainMaster(args, seed=config.seed, lr=config.optimizer.lr), None)
    context = processes.start_helper(config.task.name)  # loads torch beside what follows
    task, learner = build.task_and_learner(config, needs, threads=processes.cores())
    if task.test is None:
        return MasterModel(learner, None)
    from pgczmq.app.evaluator import EvaluatorProcess

    return MasterModel(learner, lambda: EvaluatorProcess(context, config), task.metric_name)


def worker_compute(config: RunConfig, welcome: wire.Welcome, *, threads: int) -> WorkerCompute:
    """Build the gradients of a worker.

    Args:
        welcome: says which partitions it holds.
        threads: torch threads when the run leaves it to the worker.

    Raises:
        ConfigError: something about the task does not work.
    """
    if config.task.name == plain.NAME:
        return _plain_worker(config, welcome)
    import torch

    from pgczmq.train.data import hold
    from pgczmq.train.gradient import Gradients, resolve_device
    from pgczmq.train.task import load_task

    processes.long_slices()
    torch.set_num_threads(_threads(config, threads))
    task = load_task(config.task.name, config.task.args, config.seed)
    partitions = build.partitions_of(config, task)
    compute = Gradients(
        task,
        held=welcome.held,
        coefficients=welcome.coefficients,
        partitions=partitions,
        seed=config.seed,
        device="cpu" if config.deterministic else resolve_device(config.device),
    )
    hold(task.train, partitions, welcome.held)
    return compute


def begin_life(compute: WorkerCompute, welcome: wire.Welcome) -> None:
    """Another life of a worker that holds the same partitions: nothing is retained of the one before."""
    for place in range(len(welcome.held)):
        compute.forget(place)
    if isinstance(compute, plain.PlainWorker):
        compute.begin(welcome.run, welcome.master, welcome.incarnation)


def _plain_worker(config: RunConfig, welcome: wire.Welcome) -> plain.PlainWorker:
    args = plain.Arguments.of(config.task.args)
    compute = plain.PlainWorker(
        args, seed=config.seed, worker=welcome.worker, held=welcome.held, coefficients=welcome.coefficients
    )
    begin_life(compute, welcome)
    return compute


def _threads(config: RunConfig, otherwise: int) -> int:
    if config.threads != "auto":
        return config.threads
    return 1 if config.deterministic else otherwise
