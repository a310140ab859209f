"""The step bench: real local runs of one task under several schemes, between measurements of its gradients alone.

Compute of a step = its evaluations x seconds of one core for a gradient / cores. Gradients are measured before and
after each run, so that a machine that slows down does so for both.
"""

import multiprocessing.util
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgczmq import config as configs
from pgczmq.app import local, master, processes
from pgczmq.bench.step.account import Account, accounts
from pgczmq.bench.step.gradients import Baseline, baseline, between, busy_cores
from pgczmq.bench.study import Spread, spread
from pgczmq.config import RunConfig
from pgczmq.errors import PgcError
from pgczmq.runlog import Record, StepRecord

TASK = "resnet18-cifar"
OVERHEAD_AT_MOST = 0.05
"""Of a step of TASK over its compute: what is asked for, where payloads go through shared memory."""
WARM_UP = 3
"""Steps that do not count: pipelined schemes evaluate all places first, and memory is touched for the first time."""
BATCH_SIZE = 21
BATCHES = 4
"""Minibatches that a partition of generated images has. Held-out images, a fifth as many, are looked at in the end."""
OPTIMIZER = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}

Said = Callable[[str], None]
"""Told of everything that is done; must not block."""


@dataclass(frozen=True)
class Row:
    """A run.

    Args:
        cores: that its workers can keep busy.
        before, after: gradients alone, before and after it.
        steps: those that count.
    """

    scheme: str
    workers: int
    cores: int
    before: Baseline
    after: Baseline
    steps: tuple[Account, ...]

    @property
    def gradient(self) -> Baseline:
        """What is taken to hold for the run."""
        return between(self.before, self.after)

    @property
    def compute(self) -> Spread:
        """Seconds of a step's gradients on all cores, if evaluating them were all there is to do."""
        return self.over_steps(lambda step: step.evaluations * self.gradient.alone / self.cores)

    @property
    def overhead(self) -> Spread:
        """Of a step over its compute: 0.05 is five percent."""
        return self.over_steps(lambda step: step.seconds * self.cores / step.evaluations / self.gradient.alone - 1)

    @property
    def sharing(self) -> float:
        """The same of gradients of as many processes as workers, without any transport."""
        return self.gradient.together / self.gradient.alone - 1

    @property
    def own(self) -> Spread:
        """Overhead of a step over that: what the transport, the master and waiting for each other cost."""
        return self.over_steps(lambda step: step.seconds * self.cores / step.evaluations / self.gradient.together - 1)

    def over_steps(self, figure: Callable[[Account], float]) -> Spread:
        """Of any figure, over the steps that count."""
        found = spread(map(figure, self.steps))
        assert found is not None
        return found

    @property
    def missed(self) -> bool:
        """Whether it is over what is asked for of TASK."""
        return self.overhead.median > OVERHEAD_AT_MOST


def run_config(task: str, scheme: str, *, workers: int, steps: int) -> RunConfig:
    """A run whose steps are all there is: no evaluation and no checkpoint before the end, one core a worker.

    Args:
        steps: that count.

    Raises:
        ConfigError: the scheme cannot be with so many workers.
    """
    generated = {"dataset": "generated", "samples": BATCHES * BATCH_SIZE * workers}
    table = {
        "workers": workers,
        "steps": WARM_UP + steps + 1,
        "device": "cpu",
        "threads": 1,
        "task": {"name": task, "batch_size": BATCH_SIZE, "args": generated if task.startswith("resnet18") else {}},
        "scheme": {"name": scheme},
        "optimizer": OPTIMIZER,
        "eval": {"every": 0},
        "checkpoint": {"every": 0},
    }
    config = configs.parse(table)
    master.check(config)
    return config


def turns(runs: Sequence[RunConfig]) -> int:
    """How often ``measure`` says something: after every step, and after gradients alone."""
    return sum(config.steps for config in runs) + len(runs) + 1


def measure(runs: Sequence[RunConfig], said: Said) -> Iterator[tuple[Row, list[Record]]]:
    """Each run's figures and records as they are known.

    Args:
        runs: from ``run_config``, of one task.

    Raises:
        ConfigError: something about the task does not work.
        PgcError: a run failed.
        KeyboardInterrupt: Ctrl+C; nothing is left behind.
    """
    processes.start_helper(runs[0].task.name)
    before = baseline(runs[0])
    said("gradients alone")
    for config in runs:
        scheme = config.scheme.name
        records, processor = _run(config, said)
        after = baseline(config)
        said("gradients alone")
        counted = tuple(accounts(records, processor)[WARM_UP - 1 :])
        yield Row(scheme, config.workers, busy_cores(config.workers), before, after, counted), records
        before = after


def _run(config: RunConfig, said: Said) -> tuple[list[Record], Mapping[int, float]]:
    """Records of a local run, and the processor seconds of this process, the master's, after each step."""
    records: list[Record] = []
    processor: dict[int, float] = {}

    def see(record: Record) -> None:
        records.append(record)
        if isinstance(record, StepRecord):
            processor[record.step] = time.process_time()
            said(f"{config.scheme.name}, step {record.step}")

    # In the helper's directory, which goes with this process however it ends.
    with tempfile.TemporaryDirectory(dir=multiprocessing.util.get_temp_dir()) as root:
        result = local.run(config, sink=see, root=Path(root))
    if result.exit in (75, 130, 143):
        raise KeyboardInterrupt
    if result.exit:
        raise PgcError(f"the run of {config.scheme.name} failed: {result.reason}.")
    return records, processor
