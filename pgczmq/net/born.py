"""How a life of a worker begins: with what it knows, how it says hello, how long it pauses before it tries again."""

import os
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgczmq import __version__
from pgczmq.net import wire
from pgczmq.net.conditions import Conditions

PAUSE_SECONDS = (0.1, 5.0)
"""First and longest pause between hellos that have left, and between lives."""


class MasterLost(Exception):
    """This life is over, since its master is silent or does not know it; the next may find one."""


@dataclass(frozen=True)
class Born:
    """What a life begins with.

    Args:
        host: the master's numeric address.
        port: its control port.
        number: this worker's, None for the lowest free one.
        incarnation: names this life.
        conditions: that it lives under until it has prepared.
        lost_at: when the master was last heard in an earlier life, on time.monotonic; None in the first.
    """

    host: str
    port: int
    number: int | None
    incarnation: str
    conditions: Conditions = field(default_factory=Conditions)
    lost_at: float | None = None

    def hello(self) -> wire.Hello:
        """How it introduces itself now."""
        return wire.Hello(
            worker=self.number,
            incarnation=self.incarnation,
            away=None if self.lost_at is None else time.monotonic() - self.lost_at,
            package=__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def pauses(incarnation: str) -> Iterator[float]:
    """Seconds to wait before the next try, and the next: longer each time, and not the same as everybody else's."""
    draw = random.Random(incarnation)
    pause, longest = PAUSE_SECONDS
    while True:
        yield pause * draw.uniform(0.5, 1.0)
        pause = min(2 * pause, longest)
