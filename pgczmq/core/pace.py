"""How long answers take lately, and with that when a step has waited long enough.

Source: field-notes.md, report 40 (hivemind#676): median + k MAD, between a floor and a ceiling.
"""

import math
from collections import deque

import numpy as np

ANSWERS_AT_LEAST = 20
ANSWERS_A_WORKER = 8
SPREAD_AT_LEAST = 0.1
"""Of the median: answers that all take the same time would leave no room for the least delay."""
STEPS_KEPT = 1000


class Pace:
    """The seconds that recent answers took from the opening of their step, late ones too; part of the engine's state.

    Args:
        workers: of the run.
        deviations: a step has waited long enough so many median absolute deviations after the median answer; None
            never.
    """

    def __init__(self, workers: int, deviations: float | None) -> None:
        self._deviations = deviations
        self._seconds: deque[float] = deque(maxlen=max(ANSWERS_AT_LEAST, ANSWERS_A_WORKER * workers))
        self._opened: dict[int, float] = {}

    def opened(self, step: int, at: float) -> float:
        """A step opens; returns when it will have waited long enough, infinite while too little is known."""
        if self._deviations is None:
            return math.inf
        self._opened[step] = at
        self._opened.pop(step - STEPS_KEPT, None)
        return at + self._limit(self._deviations)

    def answered(self, step: int, at: float) -> None:
        """An answer came, in time or late."""
        if step in self._opened:
            self._seconds.append(at - self._opened[step])

    def _limit(self, deviations: float) -> float:
        if len(self._seconds) < ANSWERS_AT_LEAST:
            return math.inf
        seconds = np.array(self._seconds)
        median = float(np.median(seconds))
        spread = max(float(np.median(np.abs(seconds - median))), SPREAD_AT_LEAST * median)
        return median + deviations * spread
