"""Of ``pgc task check``: is the loss a mean, and what of held-out data and the metric?"""

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgczmq.app.check import Check
from pgczmq.errors import ConfigError
from pgczmq.extensions import reason

if TYPE_CHECKING:
    from pgczmq.train.trial import Measure, Trial

LOOKED_AT = 256
"""Held-out samples that are evaluated; all others take as long."""


def loss_is_mean(trial: "Trial", *, first_loss: float) -> Iterator[Check]:
    """Whether minibatches of any size count alike, as estimates take it.

    Args:
        first_loss: of a minibatch, for people.
    """
    indices = trial.partitions.indices(0)[:32].tolist()
    if len(indices) < 2:
        return
    verdict, text = _is_mean(trial, trial.task.loss, "loss", indices)
    yield Check("loss", verdict, text or f"a mean over the batch; {first_loss:.4g} at first")


def held_out(trial: "Trial") -> Iterator[Check]:
    """Whether there is any such data, what the metric says of it, and how long all of it takes."""
    from pgczmq.train.trial import same_data

    test, metric = trial.task.test, trial.task.metric
    if test is None:
        text = "none: a run shows its training loss alone. Give Task a test=, of samples that it does not train on"
        yield Check("held out", "warning", text)
        return
    if not len(test):
        yield Check("held out", "problem", "the data set is empty: give it samples, or leave test= out")
        return
    try:
        begun = time.perf_counter()
        output, target = trial.outputs(test, range(min(LOOKED_AT, len(test))))
        loss = float(trial.task.loss(output, target))
        value = None if metric is None else float(metric(output, target))
        seconds = (time.perf_counter() - begun) * max(1.0, len(test) / LOOKED_AT)
    except Exception as error:  # the user's code
        yield Check("held out", "problem", f"it cannot be evaluated: {said(error)}")
        return
    same = " These are the training data." if same_data(test, trial.task.train) else ""
    verdict = "problem" if not math.isfinite(loss) else "warning" if same else "ok"
    yield Check("held out", verdict, f"loss {loss:.4g} at first; all {len(test):,} take {_about(seconds)}.{same}")
    if metric is not None and value is not None:
        yield _metric(trial, metric, value)


def _about(seconds: float) -> str:
    return f"about {seconds:.1f} s" if seconds >= 0.1 else "less than 0.1 s"


def _metric(trial: "Trial", metric: "Measure", value: float) -> Check:
    name = trial.task.metric_name
    if not math.isfinite(value):
        return Check("metric", "problem", f"{name} is not a number: {value:g}")
    if name.lower().endswith("accuracy") and not 0 <= value <= 1:
        return Check("metric", "warning", f"{name} is shown in percent and should be from 0 to 1: it is {value:.4g}")
    count = min(32, len(trial.partitions.indices(0)))
    verdict, text = _is_mean(trial, metric, "metric", trial.partitions.indices(0)[:count].tolist())
    if verdict == "problem":
        verdict = "warning"  # it is shown, and decides nothing
    return Check("metric", verdict, text or f"{name} {value:.4g} at first")


def _is_mean(trial: "Trial", measure: "Measure", word: str, indices: list[int]) -> tuple[str, str]:
    """The verdict, and a sentence unless it is ok."""
    from torch import Tensor

    from pgczmq.train.trial import mean_of

    output, target = trial.outputs(trial.task.train, indices)
    if not isinstance(output, Tensor) or len(output) != len(target) or len(target) < 2:
        return "ok", f"a {word} over {type(output).__name__}, of which it was not tried whether it is a mean"
    try:
        mean = mean_of(measure, output, target)
    except Exception as error:  # the user's code
        return "problem", f"the {word} fails: {said(error)}"
    if not mean.of_twice:
        return "problem", (
            f"a task's {word} is a mean over the batch: here it is {mean.whole:.4g}, and {mean.twice:.4g} when every "
            'sample is there twice. Use .mean(), or reduction="mean".'
        )
    if not mean.of_halves:
        return "warning", (
            f"the {word} of a batch, {mean.whole:.4g}, is not the mean of its halves', {mean.halves:.4g}: samples do "
            "not count alike (class weights, ignored targets?). Estimates are means over minibatches"
        )
    return "ok", ""


def said(error: Exception) -> str:
    """A sentence, and where it comes from if it is not one of this program's."""
    return str(error) if isinstance(error, ConfigError) else f"{reason(error)}."
