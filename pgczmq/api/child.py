"""The other side of ``apart``: a fresh interpreter that does one piece of work and tells of it over a pipe.

It is started by ``BOOT`` and leaves at once at its end, since a compute thread may still be busy. Whatever comes from
the other side, its end too, means: stop, as Ctrl+C does.
"""

import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pgczmq import config
from pgczmq.app import processes
from pgczmq.errors import PgcError
from pgczmq.runlog import Record, Result

PENDING_AT_MOST = 100_000
"""Records that wait for the other side; further ones are not shown. They are in the run directory all the same."""

Tell = Callable[[str, Any], None]
"""Takes a kind of message and what it says."""


class Outbox:
    """Sends messages from a thread of its own, so that nobody here waits for the other side."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queue: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
        self._thread.start()

    def tell(self, kind: str, what: Any) -> None:
        """Put a message aside for the thread."""
        if kind != "record" or self._queue.qsize() < PENDING_AT_MOST:
            self._queue.put((kind, what))

    def close(self) -> None:
        """Return when everything is sent, or nobody is there any more."""
        self._queue.put(None)
        self._thread.join()

    def _send(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._pipe.send(message)
            except OSError:
                return


class _Telling(logging.Handler):
    """The log goes to the other side, whose business it is where it is shown."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("log", (record.name, record.levelno, record.getMessage()))


def main(descriptor: int) -> None:
    """Do what comes over the pipe; in the main thread of a process that was started for it."""
    os.set_inheritable(descriptor, False)
    pipe = Connection(descriptor)
    work, arguments = pipe.recv()
    outbox = Outbox(pipe)
    processes.of_a_run = True
    logging.basicConfig(level=logging.INFO, handlers=[_Telling(outbox.tell)], force=True)
    outbox.tell(*_outcome(pipe, WORK[work], outbox.tell, arguments))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outbox.close()
    processes.end_helper()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _outcome(pipe: Connection, work: Callable[..., Any], tell: Tell, arguments: Mapping[str, Any]) -> tuple[str, Any]:
    try:
        threading.Thread(target=_stop_when_told, args=(pipe,), name="told", daemon=True).start()
        return "answer", work(tell, **arguments)
    except PgcError as error:
        return "error", error
    except KeyboardInterrupt:
        return "interrupted", None
    except Exception:
        return "defect", traceback.format_exc()


def _stop_when_told(pipe: Connection) -> None:
    while True:
        try:
            pipe.recv()
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGINT)
            return
        os.kill(os.getpid(), signal.SIGINT)


# ---------------------------------------------------------------- what there is to do


def _train(tell: Tell, *, table: Mapping[str, Any], root: Path, resume: str) -> Result:
    """A run as ``app.local`` does it; its records are told."""
    from pgczmq.app import local, master

    run_config = config.parse(table)
    master.check(run_config)

    def see(record: Record) -> None:
        tell("record", record)

    return local.run(run_config, sink=see, root=root, resume=resume)


def _compare(tell: Tell, **arguments: Any) -> Any:
    """A study; how far it is, is told."""
    from pgczmq.api.comparison import study_of

    return study_of(tell, **arguments)


WORK: Mapping[str, Callable[..., Any]] = {"train": _train, "compare": _compare}
