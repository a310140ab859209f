"""What a life of a worker holds once it is prepared: memory and sockets for payloads, and later a workbench."""

import asyncio
from collections.abc import Sequence
from typing import Any

import zmq

from pgczmq.errors import WireError
from pgczmq.net import wire
from pgczmq.net.beside import Beside
from pgczmq.net.born import MasterLost
from pgczmq.net.line import Line
from pgczmq.net.payload import Way
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.tasks import Start
from pgczmq.net.ways import ends
from pgczmq.net.workbench import Prepared, Workbench


class Workplace:
    """Of one life.

    Args:
        welcome: the master's.
        prepared: what the application has built.
        way: of payloads.
        mine: what all messages of this life carry.

    Attributes:
        beacon: the broadcast has been heard.
        bench: where steps are worked on, once the master counts on this worker.

    Raises:
        MasterLost: the memory that it shares is gone.
    """

    def __init__(self, welcome: wire.Welcome, prepared: Prepared, way: Way, mine: dict[str, Any]) -> None:
        self.beacon = asyncio.Event()
        self.bench: Workbench | None = None
        self._welcome = welcome
        self._prepared: Prepared | None = prepared
        self._way = way
        self._mine = mine
        self._early: tuple[wire.Params, Sequence[zmq.Frame]] | None = None
        size = {"parameter_count": prepared.compute.parameter_count, "buffer_bytes": prepared.compute.buffer_bytes}
        try:
            self._ends = ends(welcome, way, **size)
        except OSError as error:
            raise MasterLost(f"the master's memory is gone: {error}") from None

    def open(self, sockets: Sockets, host: str) -> list[Line]:
        """The sockets for payloads, to be listened to and dropped with the life.

        Args:
            host: the master's, for payloads that go over the network.
        """
        host = host if self._way == "tcp" else self._welcome.local
        name = f"{self._welcome.worker}:{self._mine['incarnation']}"
        total = self._ends.size.total if self._way == "tcp" else 0
        self._gradients = sockets.bulk_dealer(endpoint(host, self._welcome.gradients_port), name, total)
        return [self._gradients, sockets.subscriber(endpoint(host, self._welcome.params_port), total)]

    def begin(self, beside: Beside, start: Start) -> Workbench:
        """The master counts on this worker from now on: what it has already published is worked on first."""
        assert self._prepared is not None
        self.bench = Workbench(
            self._prepared, self._mine, ends=self._ends, gradients=self._gradients, beside=beside, start=start
        )
        if self._early is not None:
            self.bench.take_params(*self._early)
            self._early = None
        return self.bench

    def take(self, message: wire.ToWorker, frames: Sequence[zmq.Frame]) -> None:
        """What comes over these sockets.

        Raises:
            WireError: it does not belong there.
        """
        match message:
            case wire.Params():
                self.beacon.set()  # as good as one
                if self.bench is None:
                    self._early = (message, frames)
                else:
                    self.bench.take_params(message, frames)
            case wire.Beacon():
                self.beacon.set()
                if self.bench is not None:
                    self.bench.take_beacon(message.step)
            case _:
                raise WireError(f"{message.type} does not belong on a bulk socket")

    def close(self) -> None:
        """On the compute thread, when nothing is computed there any more: neither memory nor a model is held on to."""
        if self.bench is not None:
            self.bench.close()
        self.bench = self._prepared = None
        self._ends.close()
