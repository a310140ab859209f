"""How long somebody has not been heard, as far as this process was awake to hear it; whoever asks has the clock."""

OVERSLEPT_SECONDS = 0.25


class Silence:
    """Seconds without a message; those in which this process itself was stopped or blocked do not count.

    What came meanwhile is read first when it goes on.

    Args:
        at: monotonic time now, seconds.
    """

    def __init__(self, at: float) -> None:
        self._heard_at = self._looked_at = at

    def heard(self, at: float) -> None:
        """A message came."""
        self._heard_at = at

    def look(self, at: float, planned: float) -> float:
        """Seconds of silence until now.

        Args:
            planned: seconds since the last look, if nothing held this process up.
        """
        gap = at - self._looked_at
        if gap > planned + OVERSLEPT_SECONDS:
            self._heard_at = min(at, self._heard_at + gap)
        self._looked_at = at
        return self.seconds(at)

    def seconds(self, at: float) -> float:
        """Of silence until now, without looking whether this process was held up."""
        return at - self._heard_at
