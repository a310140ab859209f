"""A ZeroMQ socket on the event loop: messages are handed over as they come, all that are there at one wake-up.

zmq.asyncio makes a future and a task's turn of each message. On small models that counts: a bare loop of 12 workers
with 1,000 parameters takes .53 to .59 of the processor time this way.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from pgczmq.net.limits import FRAMES_AT_MOST

MESSAGES_IN_A_ROW = 32
"""Then others on the loop have their turn."""
FRAMES_IN_A_ROW = 1000
"""Of one message, that are read and dropped."""

# As whole numbers: arithmetic on enumerations would take longer than the sending.
_CAN_READ, _CAN_WRITE = int(zmq.POLLIN), int(zmq.POLLOUT)
_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)

Take = Callable[[list[zmq.Frame]], None]
"""Takes a message; called on the event loop."""
Failed = Callable[[Exception], None]


class Sending:
    """A message on its way out."""

    def __init__(self) -> None:
        self.tracker: zmq.MessageTracker | None = None  # once it is with ZeroMQ

    @property
    def has_left(self) -> bool:
        """Whether it has left this process."""
        return self.tracker is not None and self.tracker.done


class Line:
    """One socket, used on one event loop.

    Only FRAMES_AT_MOST frames of a message are kept, those behind them are read and dropped: a million of nothing would
    cost half a gigabyte.

    Args:
        socket: with all its options set.

    Attributes:
        socket: the same.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self._loop: asyncio.AbstractEventLoop | None = None  # while it tells when something can be done
        self._due = False  # a look, at the loop's next turn
        self._take: Take | None = None
        self._failed: Failed = _raise
        self._frames: list[zmq.Frame] = []  # of a message that is not read to its end
        self._last: zmq.Frame | None = None  # that was read of it
        self._unsent: deque[tuple[Sequence[Any], Sending]] = deque()

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.socket.closed

    def close(self, linger: int) -> None:
        """What has not been sent yet may leave for so many milliseconds more."""
        self._unsent.clear()
        self.ignore()
        self.socket.close(linger)

    # ------------------------------------------------------------ in

    def listen(self, take: Take, failed: Failed) -> None:
        """Give every message to ``take`` from now on; an error that it raises ends that, and is told."""
        self._take, self._failed = take, failed
        self._attend()

    def ignore(self) -> None:
        """Nothing is read any more."""
        self._take = None
        if self._loop is not None and not self._unsent:
            if not self._loop.is_closed():
                self._loop.remove_reader(self.socket.FD)
            self._loop = None

    def look(self) -> None:
        """Whatever is asked of a socket, ZeroMQ may have told it that there is something to do, and tells it once."""
        if self._loop is not None and not self._due:
            self._due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        self._wake()

    def _attend(self) -> None:
        if self._loop is None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self.socket.FD, self._wake)
            self._loop = loop
        self.look()

    def _wake(self) -> None:
        """Send what has room now, and take what has come."""
        if self._loop is None:
            return
        failed = self._failed
        try:
            self._send_unsent()
            if self._take_some():
                self.look()
        except Exception as error:
            self._take = None
            failed(error)
        finally:
            if self._take is None:
                self.ignore()
            if self._unsent:
                self._look_if_wanted()

    def _take_some(self) -> bool:
        """Take what has come; whether there may be more."""
        for count in range(MESSAGES_IN_A_ROW):
            if self._take is None:
                return False
            # Most often one comes alone, and asking is quicker than an error. Where there are many, reading is.
            if count == 1 and not self._can(_CAN_READ):
                return False
            try:
                if not self._read():
                    return True
            except zmq.Again:
                return False
            frames, self._frames = self._frames, []
            self._take(frames)
        return True

    def _can(self, events: int) -> bool:
        """Whether one of these can be done."""
        return not self.socket.closed and int(self.socket.getsockopt(zmq.EVENTS)) & events != 0

    def _look_if_wanted(self) -> None:
        """Something can be done by now that is still to be done."""
        wanted = (_CAN_READ if self._take is not None else 0) | (_CAN_WRITE if self._unsent else 0)
        if wanted and self._can(wanted):
            self.look()

    def _send_unsent(self) -> None:
        while self._unsent:
            frames, sending = self._unsent.popleft()
            try:
                sending.tracker = self._push(frames)
            except zmq.Again:
                self._unsent.appendleft((frames, sending))
                self._look_if_wanted()
                return

    def _read(self) -> bool:
        """Read on in the message that comes; whether it was read to its end.

        Raises:
            zmq.Again: there is none.
        """
        frames, last = self._frames, self._last
        if last is None:
            last = self.socket.recv(_NOW, copy=False)
            frames.append(last)
        for _ in range(FRAMES_IN_A_ROW):
            if not last.more:
                self._last = None
                return True
            last = self.socket.recv(_NOW, copy=False)  # it has come with the others
            if len(frames) < FRAMES_AT_MOST:
                frames.append(last)
        self._last = last
        return False

    # ------------------------------------------------------------ out

    def send_now(self, frames: Sequence[Any]) -> zmq.ZMQError | None:
        """Send without waiting, large frames without copying; returns what went wrong instead of raising it.

        zmq.Again is a peer whose queue is full, EHOSTUNREACH one that is gone.
        """
        try:
            self._push(frames)
        except zmq.ZMQError as error:
            return error
        return None

    def send(self, frames: Sequence[Any]) -> Sending:
        """Send, behind what waits already, now or as soon as the peer can be reached; for sockets with one peer."""
        sending = Sending()
        self._unsent.append((frames, sending))
        self._send_unsent()
        if self._unsent:
            self._attend()
        return sending

    def _push(self, frames: Sequence[Any]) -> zmq.MessageTracker:
        *others, last = frames
        try:
            for frame in others:
                self.socket.send(frame, _MORE, copy=False)
            tracker: zmq.MessageTracker = self.socket.send(last, _NOW, copy=False, track=True)
            return tracker
        finally:  # ZeroMQ tells once that something can be done: it may have told this call
            self._look_if_wanted()


def _raise(error: Exception) -> None:
    raise error
