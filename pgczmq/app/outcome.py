"""What a driver's run leaves, the same for real and simulated ones: its result, and its checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pgczmq.config import RunConfig
from pgczmq.core.codes import Floats
from pgczmq.runlog import EvalRecord, Result

if TYPE_CHECKING:
    from pgczmq.train.checkpoint import CheckpointState


class Ending(Protocol):
    """How a run ended, as its driver tells it."""

    @property
    def exit_code(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def diverged(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def late_fraction(self) -> float: ...


def result_of(
    config: RunConfig, ending: Ending, *, k: int, evaluation: EvalRecord | None, weights_sha256: str, run: str
) -> Result:
    """The result; its loss is the held-out one where the last evaluation was at the end of the run.

    Args:
        config, ending: of the run.
        k: arrivals that close a step.
        evaluation: the last one.
        weights_sha256: of the parameters; empty for a run without any.
        run: the run directory.
    """
    evaluated = evaluation if evaluation is not None and evaluation.step == ending.steps else None
    return Result(
        scheme=config.scheme.name,
        workers=config.workers,
        stragglers=config.workers - k,
        steps=ending.steps,
        seconds=ending.seconds,
        loss=evaluated.loss if evaluated else ending.loss,
        accuracy=evaluated.metric if evaluated else None,
        late_fraction=ending.late_fraction,
        diverged=ending.diverged,
        weights_sha256=weights_sha256,
        exit=ending.exit_code,
        reason=ending.reason,
        run=run,
    )


def write_checkpoint(
    config: RunConfig, directory: Path, step: int, *, state: "CheckpointState", run_id: str, coefficients_NC: Floats
) -> str:
    """Write the checkpoint after so many updates into a run directory; returns its name."""
    from pgczmq.train import checkpoint

    about = {"step": step, "run": run_id, "seed": config.seed, "scheme": config.scheme.name}
    code = {"coefficients": coefficients_NC.tolist()}
    directory = directory / "checkpoints"
    return checkpoint.write(directory, step, learner=state, state=about | code, keep=config.checkpoint.keep).name
