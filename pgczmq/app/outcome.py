"""What a driver's run leaves, the same for real and simulated ones: its result, and its checkpoints."""

import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from pgczmq import checkpoints
from pgczmq.config import RunConfig
from pgczmq.core.codes import Floats
from pgczmq.core.progress import Progress
from pgczmq.runlog import EvalRecord, Result


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
    config: RunConfig,
    ending: Ending,
    *,
    k: int,
    evaluation: EvalRecord | None,
    metric: str,
    weights_sha256: str,
    run: str,
) -> Result:
    """The result; its loss is the held-out one where the last evaluation was at the end of the run.

    Args:
        config, ending: of the run.
        k: arrivals that close a step.
        evaluation: the last one.
        metric: name of what it measures beside the loss.
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
        metric=metric,
    )


class Keeper:
    """Writes a run's checkpoints: the newest ``checkpoint.keep``, and the one that was evaluated best.

    Args:
        config: of the run.
        directory: of the run.
        run_id: of the run.
        coefficients_NC: the code.
        sync: waits until all records so far are on disk: a checkpoint must not know more steps than they.
        evaluations: on record already, of a run that goes on.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        *,
        run_id: str,
        coefficients_NC: Floats,
        sync: Callable[[], None],
        evaluations: Iterable[EvalRecord] = (),
    ) -> None:
        self._keep = config.checkpoint.keep
        self._directory = directory / "checkpoints"
        self._sync = sync
        self._about: dict[str, Any] = {
            "run": run_id,
            "seed": config.seed,
            "scheme": config.scheme.name,
            "coefficients": coefficients_NC.tolist(),
            "config": config.to_toml(),
        }
        self._losses: dict[int, float] = {}  # by step
        for record in evaluations:
            self.evaluated(record)

    def evaluated(self, record: EvalRecord) -> None:
        """The held-out loss after so many steps is known."""
        if math.isfinite(record.loss):
            self._losses[record.step] = record.loss

    def write(self, progress: Progress, files: Callable[[Path], None]) -> str:
        """Write a checkpoint of the run as far as it is; returns what the record says of it.

        Args:
            files: writes the model's into a directory.

        Raises:
            OSError: a full disk. Earlier checkpoints are as they were.
        """
        self._sync()
        state = self._about | {"step": progress.steps, "progress": progress.plain()}
        best = self._best()
        try:
            written = checkpoints.write(
                self._directory, progress.steps, files=files, state=state, keep=self._keep, best=best
            )
        except (OSError, RuntimeError) as error:  # torch does not say what is the matter
            free = shutil.disk_usage(self._directory.parent).free
            raise OSError(f"{error}; {free / 1e6:,.1f} MB are free in {self._directory}") from error
        kept = checkpoints.steps(self._directory)
        is_spared = best is not None and best in kept[: -self._keep]
        return f"saved {written.name}" + (f"; step_{best:06d} is kept, evaluated best" if is_spared else "")

    def _best(self) -> int | None:
        """Of the checkpoints there are, the one with the least held-out loss."""
        known = [(self._losses[step], step) for step in checkpoints.steps(self._directory) if step in self._losses]
        return min(known)[1] if known else None
