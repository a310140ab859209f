"""Loss and metric on held-out data."""

import torch

from pgczmq.errors import ConfigError
from pgczmq.train.blocks import Buffer
from pgczmq.train.flat import build_model
from pgczmq.train.task import Task

BATCH = 256


class Evaluator:
    """Evaluates parameters on the task's test set, with a module of its own.

    Raises:
        ConfigError: the task has no test set; ask ``task.test is None`` first.
    """

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        if task.test is None or not len(task.test):
            raise ConfigError("an evaluation needs held-out data: the task has no test set.")
        self._task = task
        self._test = task.test
        self._flat = build_model(task, seed, device)
        self._flat.module.eval()

    def evaluate(self, params: Buffer, buffers: Buffer) -> tuple[float, float | None]:
        """Mean loss over all test samples, and the mean metric, or None if the task has none.

        Args:
            params: float32 [P].
            buffers: uint8.

        Raises:
            WireError: a size is not the model's.
        """
        self._flat.load(params)
        self._flat.buffers.restore(buffers)
        loss = metric = 0.0
        for indices in torch.split(torch.arange(len(self._test)), BATCH):
            one_loss, one_metric = self._batch(indices)
            loss += one_loss * len(indices)
            metric += one_metric * len(indices)
        count = len(self._test)
        return loss / count, None if self._task.metric is None else metric / count

    @torch.no_grad()  # not inference_mode: data sets may decode on threads of their own, where it does not hold
    def _batch(self, indices: torch.Tensor) -> tuple[float, float]:
        raw, target = self._test.batch(indices)
        target = target.to(self._flat.device)
        output = self._flat.module(self._task.transform(raw.to(self._flat.device)))
        metric = 0.0 if self._task.metric is None else float(self._task.metric(output, target))
        return float(self._task.loss(output, target)), metric
