"""What a policy wants to know of the updates, and nothing that nobody reads."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pgczmq.core.policies import Needs, Plan, Statistics, power_of
from pgczmq.train import blocks
from pgczmq.train.blocks import Threads


class Observer:
    """Keeps the last ``lag`` + 1 estimates, and the parameters at which the present plan began.

    Args:
        needs: what is read.
        size: P.
        threads: that go through the vectors.
    """

    def __init__(self, needs: Needs, size: int, threads: Threads) -> None:
        self._needs = needs
        self._threads = threads
        self._ring = [torch.zeros(size) for _ in range(needs.lag + 1)]
        self._updates = 0
        self._plan: Plan | None = None
        self._reference: Tensor | None = None
        self._since = 0  # updates since the reference was taken

    def next_estimate(self) -> Tensor:
        """Where the next estimate belongs, float32 [P]: the place of the oldest that is kept."""
        return self._ring[self._updates % len(self._ring)]

    def before(self, params: Tensor, plan: Plan | None) -> None:
        """An update begins; a plan other than the last one's takes these parameters as its reference."""
        if self._needs.distance and (self._reference is None or plan != self._plan):
            self._plan, self._since = plan, 0
            self._reference = params.clone()

    def after(self, params: Tensor, norm: float) -> Statistics:
        """The estimate in ``next_estimate`` has been applied; these are the new parameters."""
        estimate = self.next_estimate().numpy()
        self._updates += 1
        self._since += 1
        inner = distance = None
        if self._needs.lag and self._updates > self._needs.lag:
            inner = blocks.inner(estimate, self.next_estimate().numpy(), self._threads)
        if self._reference is not None and power_of(self._since) is not None:
            distance = blocks.squared_distance(params.numpy(), self._reference.numpy(), self._threads)
        finite = distance is None or math.isfinite(distance)
        return Statistics(norm, inner, distance if finite else None)

    def state(self) -> dict[str, Any]:
        """Copies of everything, readable with ``weights_only=True``; empty when nothing is kept."""
        if self._needs == Needs():
            return {}
        plan = None if self._plan is None else [self._plan.k, self._plan.batch_fraction]
        reference = None if self._reference is None else self._reference.clone()
        counts = {"updates": self._updates, "since": self._since}
        return {"ring": [one.clone() for one in self._ring], "plan": plan, "reference": reference, **counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what ``state`` gave; a run that kept something else is observed from here on."""
        if not state or len(state["ring"]) != len(self._ring):
            return
        for place, saved in zip(self._ring, state["ring"], strict=True):
            place.copy_(saved)
        self._updates, self._since = state["updates"], state["since"]
        self._plan = None if state["plan"] is None else Plan(*state["plan"])
        self._reference = state["reference"]
