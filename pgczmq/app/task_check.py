"""``pgc task check``: does a task do what a run needs of it, and what does it cost?

Two trials of it stand for two workers that hold the same partitions, in this process; what another process says of the
task is compared with the first. Each check is a sentence, with what to do where something is wrong.
"""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pgczmq.app.check import Check
from pgczmq.app.task_means import held_out, loss_is_mean, said
from pgczmq.app.testimony import Witness, other_process, trial_of
from pgczmq.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from pgczmq.train.trial import Evaluation, Trial

STEPS = 2
"""Real ones: after the first, parameters are where an update has put them."""
LARGE = 20.0
"""A mean magnitude of inputs, or of targets that are no classes, above which most models train badly."""
LEFT_OUT = 0.2
"""Part of a partition that no epoch looks at, above which it is worth a word."""
_DIGITS = re.compile(r"\d+")
NAMED = 5
"""Parameters that are named in a sentence; the others are counted."""


class Stop(Exception):
    """What comes after cannot be checked."""


class Examination:
    """Of one task, in the order of ``checks``.

    Args:
        config: of a run with the task.

    Attributes:
        trials: the two workers, as far as there are any yet.
        seconds: that evaluations took; empty unless both workers agree.
        minibatch_bytes: of inputs and targets.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.trials: list[Trial] = []
        self.seconds: list[float] = []
        self.minibatch_bytes = 0
        self._warned: list[warnings.WarningMessage] = []
        self._evaluations: list[Evaluation] = []

    @property
    def parameter_count(self) -> int:
        """P, once there are trials."""
        return len(self.trials[0].flat)

    def checks(self) -> Iterator[Check]:
        """All of them but another process's, as they are made; imports torch."""
        import torch

        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings(record=True) as self._warned:
                warnings.simplefilter("always")
                yield from self._build()
                yield from self._data()
                yield from self._replicas()
                yield from self._gradient()
                yield from self._means()
        except Stop:
            pass
        yield from self._warnings()

    # ------------------------------------------------------------ task, data, model

    def _build(self) -> Iterator[Check]:
        try:
            for streams in range(2):
                self.trials.append(trial_of(self.config, streams))
        except Exception as error:
            yield Check("task", "problem", said(error))
            raise Stop from error
        task = self.trials[0].task
        held_out = f"{len(task.test):,} held out" if task.test is not None else "none held out"
        yield Check("task", "ok", f"{self.config.task.name}: {len(task.train):,} samples to train on, {held_out}")
        flat = self.trials[0].flat
        frozen = sum(one.numel() for one in flat.module.parameters() if not one.requires_grad)
        beside = f", {frozen:,} frozen ones" if frozen else ""
        beside += f", {flat.buffers.nbytes:,} bytes of buffers" if flat.buffers.nbytes else ""
        yield Check("model", "ok", f"{type(flat.module).__name__} with {len(flat):,} parameters{beside}")

    def _data(self) -> Iterator[Check]:
        first = self.trials[0]
        try:
            inputs, target = first.minibatch(0, 0)
            raw, _ = first.raw(0)
        except Exception as error:
            yield Check("data", "problem", f"a minibatch cannot be read: {said(error)}")
            raise Stop from error
        self.minibatch_bytes = inputs.nbytes + target.nbytes
        text = f"inputs {_shape(inputs)}, targets {_shape(target)}"
        text += "" if raw.dtype == inputs.dtype else f"; inputs are {_dtype(raw)} before transform"
        verdict, text = _scale(inputs, target, text)
        yield Check("data", verdict, text)
        if verdict == "problem":
            raise Stop
        yield self._batch_size()

    def _batch_size(self) -> Check:
        cut, size = self.trials[0].partitions, self.config.task.batch_size
        smallest = cut.samples // cut.count
        used = cut.steps_per_epoch * size
        text = f"{size} of the {smallest:,} samples in each of {cut.count} partitions; an epoch is "
        text += f"{cut.steps_per_epoch:,} step{'s' if cut.steps_per_epoch > 1 else ''}"
        left = 1 - used / smallest
        if left <= LEFT_OUT or self.config.task.sampler != "reshuffle":
            return Check("batch size", "ok", text)
        fitting = smallest // (cut.steps_per_epoch + 1)
        instead = f" task.batch_size={fitting} leaves out fewer." if fitting else ""
        return Check("batch size", "warning", f"{text}, which leaves out {left:.0%} of them each time.{instead}")

    # ------------------------------------------------------------ two steps of two workers

    def _replicas(self) -> Iterator[Check]:
        first, second = self.trials
        params, buffers = first.flat.params.cpu().clone(), first.gradient.base_buffers
        partitions = range(min(2, self.config.workers))
        with ThreadPoolExecutor(1, thread_name_prefix="second-worker") as thread:
            for step in range(STEPS):
                asked = [{"step": step, "partition": partition} for partition in partitions]
                try:
                    mine = [first.evaluate(params, buffers, **one) for one in asked]
                    theirs = [thread.submit(second.evaluate, params, buffers, **one) for one in reversed(asked)]
                    others = [future.result() for future in reversed(theirs)]
                except Exception as error:
                    yield Check("evaluation", "problem", said(error) + self._hint(error))
                    raise Stop from error
                for one, my, other in zip(asked, mine, others, strict=True):
                    if not my.same(other):
                        yield self._why_different(params, **one)
                        return
                self._evaluations += mine
                params = params - self.config.optimizer.lr * sum(one.gradient for one in mine) / len(mine)
                buffers = mine[0].buffers
        self.seconds = [one.seconds for one in self._evaluations]
        count = len(self._evaluations)
        yield Check(
            "replicas", "ok", f"two workers agree to the bit on {count} gradients, dropout and augmentation too"
        )

    def _hint(self, error: Exception) -> str:
        """For the commonest mistakes with whole numbers: torch names dtypes and targets, but not whose they are."""
        inputs, _ = self.trials[0].minibatch(0, 0)
        if "out of bounds" in str(error):
            return " Classes are numbered from 0, and a model has an output for each of them."
        if inputs.is_floating_point() or "dtype" not in str(error):
            return ""
        return f" The inputs are {_dtype(inputs)}: transform=lambda inputs: inputs.float() makes floats of them."

    def _why_different(self, params: "Tensor", *, step: int, partition: int) -> Check:
        from pgczmq.train.trial import why_different

        first, second = self.trials
        why = why_different(first, second, params, step=step, partition=partition)
        text = "two workers with the same partition do not agree, though one must be able to stand for the other: "
        if first.flat.device.type == "cuda":
            why += " Or it is CUDA, where some operations add in another order each time: see --set device=cpu."
        return Check("replicas", "problem", text + why)

    # ------------------------------------------------------------ loss, gradient, metric

    def _gradient(self) -> Iterator[Check]:
        if not self._evaluations:
            return
        losses = [one.loss for one in self._evaluations]
        if not all(map(math.isfinite, losses)):
            text = f"not a number: {', '.join(f'{loss:g}' for loss in losses)}. "
            rate = f"It is one after a step with optimizer.lr={self.config.optimizer.lr:g}: is that too large?"
            text += rate if math.isfinite(losses[0]) else "Is there a logarithm of 0, or a division by it?"
            yield Check("loss", "problem", text)
            raise Stop
        trial = self.trials[0]
        parts = [dict(trial.parts(one.gradient)) for one in self._evaluations]
        infinite = [name for name in parts[0] if not all(part[name].isfinite().all() for part in parts)]
        zero = [name for name in parts[0] if not any(part[name].any() for part in parts)]
        if infinite:
            yield Check("gradient", "problem", f"NaN or infinity in {_names(infinite)}, though the loss is finite.")
        elif len(zero) == len(parts[0]):
            text = "the loss does not depend on any parameter: every gradient is 0. Is something detached?"
            yield Check("gradient", "problem", text)
        elif zero:
            text = (
                f"0 at every step for {_names(zero)}: is it used? Set requires_grad=False for what is not to be trained"
            )
            yield Check("gradient", "warning", text)
        else:
            text = f"finite, and not 0 for any of {len(parts[0])} parameter tensors"
            yield Check("gradient", "ok", text)

    def _means(self) -> Iterator[Check]:
        if not self._evaluations:
            return
        yield from loss_is_mean(self.trials[0], first_loss=self._evaluations[0].loss)
        yield from held_out(self.trials[0])

    def _warnings(self) -> Iterator[Check]:
        texts = [f"{one.category.__name__}: {str(one.message).splitlines()[0]}" for one in self._warned]
        seen = {_DIGITS.sub("", text): text for text in reversed(texts)}  # the same of another size is the same
        for text in reversed(seen.values()):
            yield Check("python says", "warning", text)


def examine(examination: Examination) -> Iterator[Check]:
    """All checks, as they are made; imports torch, and starts another process that does."""
    witness = Witness(examination.config)
    try:
        yield from examination.checks()
        if examination.seconds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Python warns of has been said
                compared = other_process(examination.trials[0], witness.hear)
            yield compared
    finally:
        witness.dismiss()


def _scale(inputs: "Tensor", targets: "Tensor", text: str) -> tuple[str, str]:
    floats = {name: one for name, one in (("inputs", inputs), ("targets", targets)) if one.is_floating_point()}
    for name, one in floats.items():
        if not bool(one.isfinite().all()):
            return "problem", f"{text}: the {name} hold NaN or infinity. Fill or leave out what is missing."
    large = {name: size for name, one in floats.items() if (size := float(one.abs().mean())) > LARGE}
    if not large:
        return "ok", text
    sizes = " and ".join(f"{name} have a mean magnitude of {size:.0f}" for name, size in large.items())
    text += f": {sizes}; most models train well near 1. Scale them"
    if "inputs" in large:
        text += ", bytes for example with transform=lambda inputs: inputs.float() / 255"
    return "warning", f"{text}."


def _shape(tensor: "Tensor") -> str:
    return f"{_dtype(tensor)} {list(tensor.shape)}"


def _dtype(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
