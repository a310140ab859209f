"""Who has said hello to a master, and where each of them is answered."""

import time

from pgczmq.errors import WireError
from pgczmq.net import wire
from pgczmq.net.limits import ANSWERS_A_SECOND, JOINS_A_SECOND, STRANGERS_AT_MOST, Allowance, words


class Guests:
    """Admitted workers, each in its present life, and strangers: only so many, and only so often admitted or answered.

    Args:
        workers: of the run.
    """

    def __init__(self, workers: int) -> None:
        self._admitted: dict[str, tuple[bytes, wire.Hello]] = {}  # by incarnation
        self._strangers: dict[str, tuple[bytes, wire.Hello]] = {}  # the one heard longest ago first
        self._joins = Allowance(JOINS_A_SECOND, JOINS_A_SECOND + 2 * workers)
        self._answers = Allowance(ANSWERS_A_SECOND, ANSWERS_A_SECOND + 2 * workers)

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._admitted) + len(self._strangers)

    def note(self, identity: bytes, hello: wire.Hello) -> None:
        """Remember where whoever says hello can be answered.

        Raises:
            WireError: too many strangers have been admitted just now.
        """
        if hello.incarnation in self._admitted:
            self._admitted[hello.incarnation] = (identity, hello)
            return
        if not self._joins.is_left(time.monotonic()):
            raise WireError(f"{JOINS_A_SECOND:g} workers a second may join: this one has to ask again")
        self._strangers.pop(hello.incarnation, None)
        self._strangers[hello.incarnation] = (identity, hello)
        if len(self._strangers) > STRANGERS_AT_MOST:
            del self._strangers[next(iter(self._strangers))]

    def admit(self, incarnation: str) -> None:
        """This one is no stranger any more."""
        hello = self._strangers.pop(incarnation, None)
        if hello is not None:  # else it was admitted before, or was forgotten and will ask again
            self._joins.take(time.monotonic())
            self._admitted[incarnation] = hello

    def forget(self, incarnation: str) -> None:
        """This life of a worker is over."""
        self._admitted.pop(incarnation, None)

    def turn_away(self, incarnation: str) -> bytes | None:
        """Forget a stranger; returns where it can be told so, if it is one, and known."""
        known = self._strangers.pop(incarnation, None)
        return None if known is None else known[0]

    def identity(self, incarnation: str) -> bytes | None:
        """Where somebody is answered; None for whoever is not known."""
        known = self._find(incarnation)
        return None if known is None else known[0]

    def origin(self, incarnation: str) -> str:
        """Host and process, in the guest's own words."""
        known = self._find(incarnation)
        return "somewhere" if known is None else f"{words(known[1].host)} (process {known[1].pid})"

    def away(self, incarnation: str) -> float | None:
        """For how many seconds a worker had no master when it said hello; None in its first life."""
        known = self._find(incarnation)
        return None if known is None else known[1].away

    def may_answer(self) -> bool:
        """Whether one more stranger is answered now."""
        return self._answers.take(time.monotonic())

    def _find(self, incarnation: str) -> tuple[bytes, wire.Hello] | None:
        return self._admitted.get(incarnation) or self._strangers.get(incarnation)
