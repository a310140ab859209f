"""When a run has diverged although every number was finite: its losses grow."""

import math

from pgczmq.core.values import value

LOSS_WINDOW = 25
DIVERGED_FACTOR = 10.0


@value
class Losses:
    """What is remembered of the losses of the steps applied so far.

    Args:
        first: loss of step 0; None before it, NaN when it had none.
        recent: the last LOSS_WINDOW finite ones, oldest first.

    Source: schemes.md section 2 (divergence).
    """

    first: float | None = None
    recent: tuple[float, ...] = ()

    def after(self, loss: float) -> "Losses":
        """The same with one more applied step; its loss may be NaN."""
        recent = (*self.recent, loss)[-LOSS_WINDOW:] if math.isfinite(loss) else self.recent
        return Losses(loss if self.first is None else self.first, recent)

    @property
    def exploded(self) -> bool:
        """Whether the mean of a full window is over DIVERGED_FACTOR times the first."""
        if self.first is None or not math.isfinite(self.first) or self.first <= 0 or len(self.recent) < LOSS_WINDOW:
            return False
        return sum(self.recent) / LOSS_WINDOW > DIVERGED_FACTOR * self.first
