"""A master's four ports are neighbours, so that one number says where all of them are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgczmq.errors import ConfigError
from pgczmq.net.line import Line
from pgczmq.net.sockets import Sockets

TRIES = 50
"""As often four neighbouring ports are looked for; the first try is nearly always enough."""

Make = Callable[[int], tuple[Line, int]]
"""Makes a socket that is bound to a port, 0 for any; returns it and its port."""


@dataclass(frozen=True)
class Ports:
    """The four ports, neighbours in this order."""

    control: int
    gradients: int
    params: int
    metrics: int

    @classmethod
    def from_first(cls, port: int) -> "Ports":
        """All of them, from the control port: all that anybody is told."""
        return cls(port, port + 1, port + 2, port + 3)


def neighbours(sockets: Sockets, port: int, makers: Sequence[Make]) -> tuple[list[Line], int]:
    """Make each of these sockets, one port after the other; returns them and the first port.

    Args:
        port: of the first; 0 for any that are free together. None is looked for before it is taken: somebody else
            might take it in between.

    Raises:
        ConfigError: one of the ports cannot be bound.
    """
    for tries_left in reversed(range(1 if port else TRIES)):
        first = port
        made: list[Line] = []
        try:
            for make in makers:
                socket, bound = make(first + len(made) if first else 0)
                made.append(socket)
                first = first or bound
            return made, first
        except ConfigError:
            if not tries_left:
                raise
            for socket in made:
                sockets.drop(socket)
    raise AssertionError("the last try returns or raises")
