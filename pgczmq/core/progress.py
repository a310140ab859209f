"""How far a run is: what of the engine decides its future, and is kept in a checkpoint beside what is trained.

Workers, open steps and deadlines are not in it: whoever goes on begins with workers that join anew.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pgczmq.core.divergence import Losses
from pgczmq.core.policies import Policy, PolicyState


@dataclass(frozen=True)
class Progress:
    """After ``steps`` applied updates; plain numbers.

    Args:
        steps: the next step to be published.
        policy: where the policy is.
        losses: what is remembered of them, for divergence.
        planned: planned seconds of all these steps, which a deterministic run's policy goes by; else 0.
        lasted: seconds from the first publication to the last update, without any time between two masters.
        messages: received in the run, and ...
        late: ... how many of them late.
    """

    steps: int
    policy: PolicyState
    losses: Losses = field(default_factory=Losses)
    planned: float = 0.0
    lasted: float = 0.0
    messages: int = 0
    late: int = 0

    @classmethod
    def none(cls, policy: Policy) -> "Progress":
        """Before step 0."""
        return cls(0, policy.first())

    @property
    def loss(self) -> float | None:
        """The last one that was a number."""
        return self.losses.recent[-1] if self.losses.recent else None

    def plain(self) -> dict[str, Any]:
        """As JSON values; a first loss that is not finite is null."""
        first = self.losses.first
        kept = {"first": first if first is not None and math.isfinite(first) else None, "recent": self.losses.recent}
        return asdict(self) | {"policy": self.policy.plain(), "losses": kept}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Progress":
        """What ``plain`` gave."""
        first, recent = values["losses"]["first"], tuple(values["losses"]["recent"])
        losses = Losses(math.nan if first is None and values["steps"] else first, recent)
        return cls(**{**values, "policy": PolicyState.from_plain(values["policy"]), "losses": losses})
