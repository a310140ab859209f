"""How many arrivals close a step, and how much of a minibatch is evaluated."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What one step asks for: ``k`` arrivals, and the first ceil(batch_fraction * batch_size) samples."""

    k: int
    batch_fraction: float = 1.0


@dataclass(frozen=True)
class FixedPolicy:
    """The same plan at every step."""

    plan: Plan

    def first(self) -> Plan:
        """The plan of step 0, and here of every other."""
        return self.plan
