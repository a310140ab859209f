"""What is asked of this machine: ports that are free, doors to listen at, and who still works in a directory."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from pgczmq.errors import ClusterError

PORTS = 4
"""Of a master, one after the other: control, gradients, parameters, metrics."""
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below what the system gives to whoever asks for any port: it must still be free when the master is started again."""

Welcome = Callable[[int, socket.socket], None]
"""Takes a connection to a port, counted from control."""


class Doors:
    """Listens at an address as a master does, on a thread for each port.

    Args:
        host: this machine's address.
        port: of control; the three after it are taken, too.
        welcome: takes each connection, on its port's thread.

    Raises:
        OSError: one of the ports is not free; none is held then.
    """

    def __init__(self, host: str, port: int, welcome: Welcome) -> None:
        with contextlib.ExitStack() as opened:
            make, keep = socket.create_server, opened.enter_context
            self._doors = [keep(make((host, port + offset))) for offset in range(PORTS)]
            opened.pop_all()
        for offset, door in enumerate(self._doors):
            threading.Thread(target=_listen, args=(offset, door, welcome), daemon=True).start()

    def close(self) -> None:
        """Nobody is let in any more; the threads end with that."""
        for door in self._doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()


def _listen(offset: int, door: socket.socket, welcome: Welcome) -> None:
    while True:
        try:
            stream, _ = door.accept()
        except OSError:
            return
        welcome(offset, stream)


def free_port() -> int:
    """The first of four neighbouring ports that are free on this machine now.

    Raises:
        ClusterError: there are none.
    """
    bases = list(range(FIRST_PORT, LAST_PORT, PORTS))
    begin = os.getpid() % len(bases)  # several soaks at a time need not all begin at the first
    for base in [*bases[begin:], *bases[:begin]]:
        if not taken_ports(base):
            return base
    raise ClusterError("no four neighbouring ports are free on this machine.")


def taken_ports(base: int) -> list[int]:
    """Which of the four ports from here on somebody listens on."""
    taken = []
    for port in range(base, base + PORTS):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            taken.append(port)
    return taken


def working_in(directory: Path) -> list[int]:
    """Processes whose current directory this is."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == directory:
                found.append(int(entry.name))
    return found
