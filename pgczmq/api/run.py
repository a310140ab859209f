"""A run that is over, or was interrupted, as its directory has it."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgczmq import checkpoints, config, runlog
from pgczmq.config import RunConfig
from pgczmq.errors import ClusterError, ConfigError, PgcError
from pgczmq.runlog import EvalRecord, EventRecord, LatencyRecord, Record, Result, StepRecord

if TYPE_CHECKING:
    from torch import Tensor, nn

INTERRUPTED = 75
OF_THE_CLUSTER = range(71, 75)  # exit codes of ClusterError and what is below it
_TENSORS = "model.pt"


class Run:
    """A run directory: what became of the run, and what was trained. Any will do, whoever made it.

        run = pgczmq.Run("runs/digits-cnn-dgd-20260101-120000")
        losses = [step.loss for step in run.steps]
        frame = pandas.DataFrame(run.latencies)

    Everything is read when it is first asked for, and kept; another ``Run`` reads it again. Times are in seconds since
    the run's start, virtual ones of a simulated run.

    Args:
        directory: of the run.

    Raises:
        ConfigError: there is no run in it; so say its attributes, of whatever is not there.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        if not (self.directory / "config.toml").is_file():
            raise ConfigError(f"a run directory holds a config.toml: there is none in {self.directory}.")

    def __repr__(self) -> str:
        """How it ended, in a line."""
        if not (self.directory / "result.json").exists():
            return f"<Run {self.directory}: no result yet>"
        result = self.result
        loss = "" if result.loss is None else f", loss {result.loss:.4g}"
        return f"<Run {self.directory}: {result.scheme}, {result.steps} steps{loss}, {result.reason}>"

    @cached_property
    def result(self) -> Result:
        """What it came to. There is none while it runs."""
        return runlog.read_result(self.directory)

    @cached_property
    def config(self) -> RunConfig:
        """Every setting of it."""
        return config.loads((self.directory / "config.toml").read_text(encoding="utf-8"))

    @cached_property
    def steps(self) -> list[StepRecord]:
        """One record a step."""
        return self._records(StepRecord)

    @cached_property
    def evals(self) -> list[EvalRecord]:
        """One record for each time that the held-out data was looked at."""
        return self._records(EvalRecord)

    @cached_property
    def events(self) -> list[EventRecord]:
        """What happened beside the steps: joins, leaves, refusals, checkpoints."""
        return self._records(EventRecord)

    @cached_property
    def latencies(self) -> list[LatencyRecord]:
        """One record for each worker's answer: where its time went."""
        return self._records(LatencyRecord)

    def _records(self, kind: type[Record]) -> list[Any]:
        return list(runlog.read(self.directory, kind))

    def plot(self, file: str | Path) -> None:
        """Draw what it did, as ``pgc plot``: losses, time per step, ages, k, who answered when.

        Args:
            file: .png, .svg or .pdf.

        Raises:
            ConfigError: it is none of these, cannot be written, or the run has no step yet.
        """
        from pgczmq.rundirs import look
        from pgczmq.view.pictures import paper
        from pgczmq.view.pictures.run_plots import figure_of, shown

        paper.check_picture(Path(file))
        paper.write(figure_of(shown([look(self.directory)])), Path(file))

    def state_dict(self) -> "dict[str, Tensor]":
        """The trained parameters and buffers by name, on the CPU: those of the newest whole checkpoint.

        Raises:
            ConfigError: there is none, as after a run that diverged early, or one without gradients.
        """
        newest = checkpoints.newest(self.directory / "checkpoints").path
        if newest is None or not (newest / _TENSORS).exists():
            raise ConfigError(
                f"a trained model is read from a checkpoint: {self.directory} has no whole one with {_TENSORS}. A run "
                "makes one every checkpoint.every steps and at its end, unless it diverged or had no gradients."
            )
        from pgczmq.train.checkpoint import read_files

        return dict(read_files(newest).model)

    def model(self) -> "nn.Module":
        """The task's model with the trained parameters, in evaluation mode.

        It takes what the task's ``transform`` makes of a batch.

        Raises:
            ConfigError: as ``state_dict``, or the task cannot be built here.
        """
        from pgczmq.train.task import load_task

        state = self.state_dict()
        task = self.config.task
        module = load_task(task.name, task.args, self.config.seed).model()
        module.load_state_dict(state)
        return module.eval()


class Interrupted(KeyboardInterrupt):
    """A run that was stopped by Ctrl+C, or a notebook's stop button, and saved: it can be gone on with.

    Attributes:
        run: as far as it went.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        result, again = run.result, f'the same call with resume="{run.directory}"'
        super().__init__(f"{result.reason} after {result.steps} steps. To go on, {again}.")

    def __reduce__(self) -> Any:
        """An exception is rebuilt from what it was made of."""
        return Interrupted, (self.run,)


def finished(result: Result) -> Run:
    """The run, if it came to its end.

    Raises:
        Interrupted: it was.
        ClusterError: there were too few workers for too long, or one was not let in.
        PgcError: it ended of something else.
    """
    run = Run(result.run)
    if result.exit == INTERRUPTED:
        raise Interrupted(run)
    if result.exit:
        kind = ClusterError if result.exit in OF_THE_CLUSTER else PgcError
        where = "" if run.directory.name in result.reason else f" (see {run.directory})"
        raise kind(f"{result.reason}{where}.")
    return run
