"""The way of one worker to its master, on which a stranger listens: so it has real messages of this run to repeat."""

import contextlib
import socket
import threading

from pgczmq.bench.torture.fuzz.zmtp import CHUNK, Parser
from pgczmq.bench.torture.machine import PORTS, Doors

KEPT_AT_MOST = 200
"""Messages to each port, the first ones."""


class Relay:
    """Leads the master's four ports on from another address of this host; use as a context manager.

    Args:
        host: where the worker finds the master, such as 127.0.0.2.
        port: control port, here and of the master.

    Attributes:
        heard: messages of the worker's to each port, counted from the control port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.heard: list[list[list[bytes]]] = [[] for _ in range(PORTS)]
        self._port = port
        self._ends: list[socket.socket] = []
        self._doors = Doors(host, port, self._welcome)

    def __enter__(self) -> "Relay":
        """Open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close everything; its threads end with that."""
        self._doors.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _welcome(self, offset: int, worker: socket.socket) -> None:
        try:
            master = socket.create_connection(("127.0.0.1", self._port + offset))
        except OSError:
            worker.close()
            return
        self._ends += [worker, master]
        threading.Thread(target=self._lead, args=(worker, master, offset), daemon=True).start()
        threading.Thread(target=self._lead, args=(master, worker, None), daemon=True).start()

    def _lead(self, source: socket.socket, sink: socket.socket, offset: int | None) -> None:
        parser = Parser()
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                sink.sendall(data)
                if offset is not None and len(self.heard[offset]) < KEPT_AT_MOST:
                    self.heard[offset] += parser.take(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
