"""What SIGINT, SIGTERM and SIGHUP do to a process that runs something: the first asks it to end, the second ends it.

A thread of its own hears of signals, through a pipe that is written to the moment one comes, whatever the main thread
is doing: an event loop that is blocked cannot put them off. Only code in C that keeps Python's lock (the GIL) to itself
can, until it is done; SIGQUIT, Ctrl+\\ on a terminal, ends that too.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn, Self

from pgczmq.app import processes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ANSWER_SECONDS = 1.5
"""An event loop that has not begun to end the run by then is blocked, and the process ends without it."""

Stop = Callable[[signal.Signals], None]


class Interrupts:
    """While entered, signals are heard; on the main thread only, elsewhere they are nobody's business here.

    Before there is something to end, and after a first signal, the process ends at once with 128 and the signal's
    number. SIGHUP that is ignored, as under nohup, stays so.

    Args:
        signals: those to hear.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = SIGNALS) -> None:
        self._signals = signals
        self._tell: Stop | None = None
        self._answered = threading.Event()
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        self._writing: int | None = None
        self._noted_first: signal.Signals | None = None  # by the main thread
        self._heard_first: signal.Signals | None = None  # by the thread that listens

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._fd_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(reading,), name="signals", daemon=True).start()
        for number in self._signals:
            if not (number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._noted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is None:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._writing)  # the thread's end
        self._answered.set()

    def end(self, stop: Stop) -> None:
        """From now on there is something to end: ``stop`` is called for the first signal, on the running event loop."""
        loop = asyncio.get_running_loop()

        def answer(number: signal.Signals) -> None:
            self._answered.set()
            stop(number)

        def tell(number: signal.Signals) -> None:
            try:
                loop.call_soon_threadsafe(answer, number)
            except RuntimeError:  # the loop is closed: it ends already
                self._answered.set()

        self._tell = tell

    def _noted(self, number: int, frame: FrameType | None) -> None:
        """Python writes to the pipe for signals with a handler only, and this is one.

        The thread has done what there is to do, unless the main thread keeps Python's lock, as a regular expression
        does for as long as it takes: then the second signal ends the process here.
        """
        if self._noted_first is None:
            self._noted_first = signal.Signals(number)
        elif not _is_the_same(self._noted_first, signal.Signals(number)):
            leave_at_once(signal.Signals(number))

    # ------------------------------------------------------------ on the thread

    def _listen(self, reading: int) -> None:
        try:
            while heard := os.read(reading, 1):
                if heard[0] in self._before:
                    self._heard(signal.Signals(heard[0]))
        finally:
            os.close(reading)

    def _heard(self, number: signal.Signals) -> None:
        if self._tell is None:
            if self._heard_first is not None and _is_the_same(self._heard_first, number):
                return
            leave_at_once(number)
        self._heard_first = number
        tell, self._tell = self._tell, None
        tell(number)
        threading.Thread(target=self._await_answer, args=(number,), name="patience", daemon=True).start()

    def _await_answer(self, number: signal.Signals) -> None:
        if not self._answered.wait(ANSWER_SECONDS):
            leave_at_once(number)


def _is_the_same(first: signal.Signals, second: signal.Signals) -> bool:
    """A window that is closed says so twice, through the kernel and through the shell."""
    return first == second == signal.SIGHUP


def leave_at_once(number: signal.Signals) -> NoReturn:
    """End the process for a signal, whatever its threads are doing."""
    processes.give_terminal_back()
    processes.end_helper()
    os._exit(128 + number)
