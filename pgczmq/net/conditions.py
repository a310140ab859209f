"""What a worker works under. Here every message goes straight through and nothing happens; see ``faulty``."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import zmq
import zmq.asyncio

from pgczmq.net.compute import Memory
from pgczmq.net.sockets import send_now

Sending = asyncio.Future[zmq.MessageTracker]
"""Done once the message is with ZeroMQ; its tracker is done once the message has left the process."""


class Conditions:
    """The way of a worker's messages, and what befalls it at work."""

    async def receive(self, source: zmq.asyncio.Socket) -> list[zmq.Frame]:
        """The next message from the master."""
        return await source.recv_multipart(copy=False)

    def send_control(self, socket: zmq.asyncio.Socket, frames: Sequence[Any]) -> bool:
        """Send a small message now, or not at all; tells whether it has left."""
        return send_now(socket, frames) is None

    def send(self, socket: zmq.asyncio.Socket, frames: Sequence[Any]) -> Sending:
        """Send an answer, or a question about one, now or as soon as the master can be reached."""
        return cast("Sending", socket.send_multipart(frames, copy=False, track=True))

    def begins(self, step: int) -> None:
        """An evaluation at this step comes next; called where it is made, on the compute thread or the loop."""

    def encoded(self, step: int, vector: Memory) -> None:
        """The coded gradient of the answer to this step is in ``vector``; called where it was put there."""
