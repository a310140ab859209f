"""A terminal that a view has to itself, and that is given back whatever happens.

    take:       alternate screen, no cursor, keys as they are pressed
    draw:       what has changed since the last frame; never waits for a terminal that takes nothing
    give back:  as it was found

Job control is kept: a process in the background neither draws nor reads nor sets anything, and Ctrl+Z gives the
terminal back before the process stops. Everything goes through a file description of its own, since the one of stderr
is shared with others, and only this one may be told not to wait.
"""

import contextlib
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

from pgczmq.view.live.keys import Key, keys_in
from pgczmq.view.live.lines import Frame

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
LEAVE = "\x18\x1b[0m\x1b[?2026l\x1b[?7h\x1b[?25h\x1b[?1049l"  # CAN first: a sequence may have been cut off
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # drawn at once, by terminals that know this
ORDINARY_SIZE = (80, 24)
REPAINT_FRAMES = 20  # whoever else wrote on the screen is painted over at least so often
PATIENCE_SECONDS = 0.5


class TerminalGoneError(Exception):
    """Nobody is at the other end any more."""


class Terminal:
    """One terminal, from ``open_terminal``.

    Args:
        descriptor: of the terminal, open for both ways, not waiting; this object's own.
        job: whether it is this process's controlling terminal, so that others may be in its foreground.
        keys: whether keys pressed on it are for this process.
        colour: whether to use any.
    """

    def __init__(self, descriptor: int, *, job: bool, keys: bool, colour: bool) -> None:
        self.descriptor = descriptor
        self.has_keys = keys
        self.taken = False
        self._job = job
        self._colour = colour
        self._found: list[Any] | None = None  # its settings, before they were changed; as termios has them
        self._pending = b""
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._frames = 0
        self._giving = threading.RLock()  # a signal's handler may come in between

    # ------------------------------------------------------------ whose it is

    @property
    def is_ours(self) -> bool:
        """Whether this process is in the foreground, or there is no such thing."""
        if not self._job:
            return True
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:
            raise TerminalGoneError from None

    def take(self) -> None:
        """Begin to draw on it; again, when somebody else may have changed it meanwhile."""
        if self.has_keys:
            with contextlib.suppress(termios.error):
                if self._found is None:
                    self._found = termios.tcgetattr(self.descriptor)
                with _unstoppable():
                    termios.tcsetattr(self.descriptor, termios.TCSANOW, self._settings())
        self.taken = True
        self._pending = ENTER.encode()
        self._forget()

    def _settings(self) -> list[Any]:
        """Keys at once and unseen; Ctrl+Z as a key, so that the screen can be left first. Ctrl+C stays a signal."""
        settings = termios.tcgetattr(self.descriptor)
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        settings[6] = list(settings[6])
        settings[6][termios.VMIN], settings[6][termios.VTIME] = b"\x01", b"\x00"
        settings[6][termios.VSUSP] = os.fpathconf(self.descriptor, "PC_VDISABLE").to_bytes(1, "little")
        return settings

    def give_back(self) -> None:
        """Leave it as it was found; from any thread, any number of times, and without waiting long."""
        with self._giving:
            if not self.taken:
                return
            self.taken = False
        self._pending = b""
        with contextlib.suppress(OSError):
            _write_all(self.descriptor, LEAVE.encode())
        with contextlib.suppress(termios.error, OSError, TerminalGoneError):
            if self._found is not None and self.is_ours:
                with _unstoppable():
                    termios.tcsetattr(self.descriptor, termios.TCSANOW, self._found)

    def stop_job(self) -> None:
        """What Ctrl+Z does: stop all of this job, until it is told to go on."""
        self.give_back()
        os.killpg(0, signal.SIGTSTP)
        time.sleep(0.1)  # the signal may reach another thread first, and this one must not draw meanwhile

    def close(self) -> None:
        """Give it back for good."""
        self.give_back()
        os.close(self.descriptor)

    # ------------------------------------------------------------ both ways

    @property
    def size(self) -> tuple[int, int]:
        """Cells in a line, and lines; a usual size for a terminal that does not know its own."""
        try:
            width, height = os.get_terminal_size(self.descriptor)
        except OSError:
            raise TerminalGoneError from None
        return (width, height) if width > 0 and height > 0 else ORDINARY_SIZE

    @property
    def is_behind(self) -> bool:
        """Whether it has not taken all of what was drawn; then nothing more is drawn."""
        return bool(self._pending)

    def draw(self, frame: Frame) -> None:
        """Show a frame: those of its lines that have changed."""
        size = self.size
        self._frames += 1
        if size != self._size or self._frames % REPAINT_FRAMES == 0:
            clear = size != self._size
            self._forget()
            self._size = size
            self._pending += b"\x1b[2J" if clear else b""
        lines = [line.ansi(self._colour) + ("\x1b[K" if line.width < size[0] else "") for line in frame.lines]
        lines = lines[: size[1]]
        lines += ["\x1b[K"] * (len(self._drawn) - len(lines))
        before = self._drawn + [""] * (len(lines) - len(self._drawn))
        changed = [f"\x1b[{row + 1}H{line}" for row, line in enumerate(lines) if line != before[row]]
        self._drawn = lines
        if changed:
            self._pending += f"{BEGIN}{''.join(changed)}{END}".encode()
        self.flush()

    def flush(self) -> None:
        """Hand over what it takes now."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self.descriptor, self._pending) :]
        except BlockingIOError:
            pass
        except OSError:
            self._pending = b""
            raise TerminalGoneError from None

    def hear(self) -> list[Key]:
        """What was pressed since."""
        try:
            typed = os.read(self.descriptor, 1024)
        except BlockingIOError:
            return []
        except OSError:
            raise TerminalGoneError from None
        if not typed:
            raise TerminalGoneError
        return keys_in(typed)

    def _forget(self) -> None:
        """The next frame is drawn whole."""
        self._drawn = []


def open_terminal(stream: TextIO, *, colour: bool) -> Terminal | None:
    """The terminal that a stream writes to, on a descriptor of its own; None when it is none, or may not be opened.

    Args:
        stream: stderr, most likely.
        colour: whether to use any.
    """
    try:
        shared = stream.fileno()
        if not os.isatty(shared):
            return None
        job = _is_controlling(shared)
        # By its name a terminal can be opened by its owner alone, who may be another user; /dev/tty by everybody.
        descriptor = os.open("/dev/tty" if job else os.ttyname(shared), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    return Terminal(descriptor, job=job, keys=job and _is_controlling(0), colour=colour)


def _is_controlling(descriptor: int) -> bool:
    """Whether this is a terminal that this process's jobs are controlled from."""
    try:
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) > 0
    except OSError:
        return False


@contextlib.contextmanager
def _unstoppable() -> Iterator[None]:
    """Setting a terminal from the background stops a process; if the shell was quicker, that must not happen."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write_all(descriptor: int, data: bytes) -> None:
    """Hand over all of it, to a terminal that takes it within ``PATIENCE_SECONDS``."""
    until = time.monotonic() + PATIENCE_SECONDS
    while data and time.monotonic() < until:
        if select.select([], [descriptor], [], PATIENCE_SECONDS)[1]:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(descriptor, data) :]


# ---------------------------------------------------------------- whatever happens


OPEN: list[Terminal] = []
"""Those that are to be given back, whatever happens: see ``give_back``."""


def give_back() -> None:
    """For a process that leaves at once: give the terminal back first. Never waits long, and may be called always."""
    for terminal in tuple(OPEN):
        terminal.give_back()


@contextlib.contextmanager
def given_back_when_ended(terminal: Terminal) -> Iterator[None]:
    """Also by a signal that would end this process on the spot; those that somebody else handles are theirs."""

    def ended(number: int, frame: FrameType | None) -> None:
        terminal.give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    OPEN.append(terminal)
    changed = []
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in (signal.SIGTERM, signal.SIGQUIT) if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, ended)
    try:
        yield
    finally:
        for number in changed:
            if signal.getsignal(number) is ended:
                signal.signal(number, signal.SIG_DFL)
        OPEN.remove(terminal)
        terminal.give_back()
