"""Processes that are stopped, woken, killed and started again, and how they talk with the test: packets over a socket.

A ``Member`` is the test's end of one, a ``Channel`` the process's own. Where a process pauses it waits to be told to go
on; the test stops it there, so that it is known in which state it was stopped.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

HANG_SECONDS = 30.0
PACKET_BYTES = 4096
STAYS = (1, 5, 20, 120)
"""Steps that a stop lasts."""
DOOMED = 0.15
"""The part of those who are stopped that never wakes."""
GO_ON, END, PAUSE = ["go on"], ["end"], "pause"


class Channel:
    """A process's own end.

    Args:
        descriptor: of the socket that it was given.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._backlog: deque[Any] = deque()
        self._pause_at = ""
        self.holds: Callable[[], list[int]] = list

    def say(self, *what: object) -> None:
        self._socket.send(json.dumps(what).encode())

    def pause(self, state: str) -> None:
        """Wait to be told to go on, if it was told to pause in this state: as a process that is stopped there."""
        if self._pause_at == state:
            self._pause_at = ""
            self.say("paused", state, self.holds())
            while (message := self._receive()) != GO_ON:
                self._note(message)

    def newest(self) -> Iterator[Any]:
        """The last of all messages that are there, again and again until the end."""
        while True:
            while not self._backlog or select.select([self._socket], [], [], 0)[0]:
                self._note(self._receive())
            message = self._backlog.pop()
            self._backlog.clear()
            if message == END:
                return
            yield message

    def _note(self, message: Any) -> None:
        if message[0] == PAUSE:
            self._pause_at = message[1]
        else:
            self._backlog.append(message)

    def _receive(self) -> Any:
        packet = self._socket.recv(PACKET_BYTES)
        return json.loads(packet) if packet else sys.exit("the test is gone")


class Member:
    """One process of a crowd.

    Args:
        file: of this folder.
        arguments: for it, behind the socket's descriptor.
    """

    def __init__(self, file: str, *arguments: object) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = Path(__file__).with_name(file)
        command = [sys.executable, str(path), str(other.fileno()), *map(str, arguments)]
        self.process = subprocess.Popen(command, pass_fds=[other.fileno()])
        other.close()
        self.paused_at = ""
        self.held: set[int] = set()  # steps, while it is paused
        self.stopped = False
        self.due = 0  # the step at which its stop or pause ends
        self.doomed = False  # then it is killed

    @property
    def running(self) -> bool:
        return not self.stopped and not self.paused_at

    def fileno(self) -> int:
        return self._socket.fileno()

    def say(self, message: list[Any]) -> None:
        """Now or, where it does not read, never."""
        try:
            self._socket.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return

    def pause_at(self, state: str) -> None:
        """It is to pause when it comes to this state."""
        self.say([PAUSE, state])

    def hear(self) -> Any:
        """What it says next; None when it has ended."""
        if not select.select([self], [], [], HANG_SECONDS)[0]:
            raise AssertionError(f"nothing comes from a process that should run: {vars(self)}")
        packet = self._socket.recv(PACKET_BYTES)
        message = json.loads(packet) if packet else None
        if message is not None and message[0] == "paused":
            self.paused_at, self.held = message[1], set(message[2])
        return message

    def stop(self) -> None:
        """Wherever it is; nothing where it is stopped already."""
        if self.stopped:
            return
        os.kill(self.process.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        self.stopped = True

    def wake(self) -> None:
        """Go on from a stop and from a pause."""
        if self.stopped:
            os.kill(self.process.pid, signal.SIGCONT)
        if self.paused_at:
            self.say(GO_ON)
        self.stopped, self.paused_at, self.held = False, "", set()

    def kill(self) -> None:
        """Gone, and with it what it said last."""
        self.process.kill()
        self.process.wait()
        self._socket.close()

    def end(self) -> Iterator[Any]:
        """Whatever it still says until it has ended of itself."""
        self.say(END)
        while (message := self.hear()) is not None:
            yield message
            self.wake()
        assert self.process.wait() == 0
        self._socket.close()


class Crowd:
    """Members, and what becomes of them.

    Args:
        seed: of all that is drawn; when what happens is up to the machine.
        count: how many members.
        start: starts the one with this number.
    """

    def __init__(self, seed: int, count: int, start: Callable[[int], Member]) -> None:
        self.draw = random.Random(seed)
        self._start = start
        self.members = [start(number) for number in range(count)]
        self.stopped: Counter[str] = Counter()  # how often, by state
        self.killed: Counter[str] = Counter()

    def disturb(self, step: int) -> None:
        """Some go on, some are stopped wherever they are, some die and are started again."""
        for number, member in enumerate(self.members):
            if not member.running and member.due <= step:
                if member.doomed:
                    self.replace(number)
                else:
                    member.wake()
        running = [number for number, member in enumerate(self.members) if member.running]
        if running and self.draw.random() < 0.15:
            self.stop(self.members[self.draw.choice(running)], step, "anywhere")
        elif running and self.draw.random() < 0.01:
            self.replace(self.draw.choice(running))

    def stop(self, member: Member, step: int, state: str) -> None:
        """For some steps, or for good."""
        member.stop()
        member.due = step + self.draw.choice(STAYS)
        member.doomed = self.draw.random() < DOOMED
        self.stopped[state] += 1

    def replace(self, number: int) -> None:
        """Kill one, and start another in its place."""
        member = self.members[number]
        self.killed[member.paused_at or "anywhere"] += 1
        member.kill()
        self.members[number] = self._start(number)

    def said(self, expected: Collection[Member]) -> list[Member]:
        """Who has said something; waits for one of those of whom something is expected."""
        ready: list[Member] = select.select(self.members, [], [], HANG_SECONDS if expected else 0)[0]
        assert ready or not expected, "nobody who is awake says anything"
        return ready

    def close(self) -> None:
        """Nobody is left."""
        for member in self.members:
            member.kill()
