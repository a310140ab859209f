"""The course of a soak: everybody up, mischief, quiet, everybody down."""

import signal
import time
from collections.abc import Callable

from pgczmq.bench.torture.soak.cast import END_SECONDS, Cast
from pgczmq.bench.torture.soak.mischief import Act, Mischief

SAY_SECONDS = 5.0
QUIET_SECONDS = 3.0
"""With everybody there, before the first deed and after the last: what everybody holds then can be compared."""
READY_SECONDS = 120.0
"""A cluster that nobody disturbs is complete by then, and goes on; longer is a hang."""


class Course:
    """What is done with a cast from its beginning to its end.

    Args:
        cast: not started yet.
        mischief: what is done to it.
        seconds: for how long, unless the run is over before.
        patience: seconds in which a run that is left alone then comes to its own end; 0 ends it at once.
        say: takes a line of progress.
    """

    def __init__(
        self, cast: Cast, mischief: Mischief, *, seconds: float, patience: float, say: Callable[[str], None]
    ) -> None:
        self._cast = cast
        self._mischief = mischief
        self._lasts = seconds
        self._patience = patience
        self._say = say
        self._interrupted = False
        self._begun_at = self._said_at = time.monotonic()

    def run(self) -> float:
        """All of it; returns for how many seconds mischief was done. Ctrl+C ends that, and then everybody in order."""
        self._begun_at = time.monotonic()
        lasted = 0.0
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            try:
                self._up()
                lasted = self._disturb()
                self._quiet()
            except KeyboardInterrupt:
                lasted = lasted or time.monotonic() - self._begun_at
                self._say("interrupted: ending everybody")
            self._down()
        finally:
            for program in self._cast.programs:
                program.end(signal.SIGKILL, "killed")
                program.collect(END_SECONDS)
            signal.signal(signal.SIGINT, before)
        return lasted

    def _interrupt(self, *signal_and_frame: object) -> None:
        """Heard at the next look, and not while a process is being started, of which nobody would know then."""
        self._interrupted = True

    def _up(self) -> None:
        for program in self._cast.programs:
            program.start()
        self._until(lambda: self._cast.complete, READY_SECONDS, "everybody is ready at the beginning")
        self._pause(QUIET_SECONDS)
        self._cast.told.first = self._cast.sample()

    def _disturb(self) -> float:
        begun_at = self._begun_at = time.monotonic()
        for act in self._mischief.acts():
            while time.monotonic() < begun_at + min(act.at, self._lasts) and not self._cast.closing:
                self._look()
            if act.at > self._lasts or self._cast.closing:
                break
            self._do(act)
        return time.monotonic() - begun_at

    def _do(self, act: Act) -> None:
        """To whom it is meant for, or the next who runs."""
        cast = self._cast
        if act.deed == "kill master":
            if cast.master.runs:
                cast.kill_master(act.seconds)
            return
        order = [(act.worker + offset) % len(cast.workers) for offset in range(len(cast.workers))]
        number = next((number for number in order if cast.workers[number].runs), None)
        if number is None:
            return
        if act.deed == "stop":
            cast.stop(number, act.seconds)
        else:
            cast.end(number, "killed" if act.deed == "kill" else "terminated", act.seconds)

    def _quiet(self) -> None:
        """Undo everything; then everybody must come back, and steps go on."""
        cast = self._cast
        cast.undo_all()
        self._until(lambda: cast.complete or cast.closing, READY_SECONDS, "everybody is ready after the last deed")
        at = cast.watch.applied_at
        self._until(lambda: cast.watch.applied_at > at or cast.closing, READY_SECONDS, "steps go on after that")
        self._pause(QUIET_SECONDS)
        cast.told.last = cast.sample()
        if self._patience:
            self._until(lambda: cast.closing, self._patience, "the run comes to its end")

    def _down(self) -> None:
        """The master tells whoever is ready that the run is over; others would wait for the next one."""
        cast = self._cast
        cast.closing = True
        cast.undo_all()
        cast.master.end(signal.SIGTERM, "ended")
        self._until(lambda: cast.master.pid is None, END_SECONDS, "the master has ended")
        for number, worker in enumerate(cast.workers):
            if number not in cast.watch.ready:
                worker.end(signal.SIGTERM, "terminated")
        self._until(lambda: cast.gone, END_SECONDS, "everybody has ended")

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            self._look()
            if time.monotonic() > limit:
                self._cast.told.findings.append(f"not in {seconds:g} s: {what}; {self._who_is_where()}")
                return

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()

    def _look(self) -> None:
        self._cast.look()
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
        if time.monotonic() - self._said_at >= SAY_SECONDS:
            self._said_at = time.monotonic()
            deeds = ", ".join(f"{count} {deed}" for deed, count in sorted(self._cast.told.deeds.items()))
            self._say(
                f"{time.monotonic() - self._begun_at:5.0f} s: {self._cast.watch.steps} steps, "
                f"{self._who_is_where()}; {deeds or 'nothing done yet'}"
            )

    def _who_is_where(self) -> str:
        cast = self._cast
        living = sum(worker.pid is not None for worker in cast.workers)
        master = "lives" if cast.master.pid is not None else "is gone"
        return f"the master {master}, {living} of {len(cast.workers)} workers live, {len(cast.watch.ready)} are ready"
