"""Writes what a run leaves behind while it goes on."""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from pgczmq.errors import PgcError
from pgczmq.runlog import FILES, Record, to_json

log = logging.getLogger("pgczmq.runlog")


class RunLog:
    """Writes records into a run directory from a thread of its own, so that neither JSON nor a slow disk delays a step.

    Use as a context manager; everything recorded is on disk when it ends.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._queue: queue.SimpleQueue[Record | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="runlog", daemon=True)
        self._failure: Exception | None = None
        self._tell: Callable[[str], None] | None = None

    def __enter__(self) -> "RunLog":
        """Start the writer."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left; a disk that failed is an error now, if nothing worse happened."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None and error is None:
            raise PgcError(f"{self._reason}. What it did since then is not on record: free space, then --resume auto.")

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Call this, on the writer's thread, as soon as nothing can be written any more."""
        self._tell = tell
        if self._failure is not None:
            tell(self._reason)

    def record(self, record: Record) -> None:
        """Take a record; kinds without a file are left out. Never blocks."""
        if type(record) in FILES and self._failure is None:
            self._queue.put(record)

    def sync(self) -> None:
        """Wait until everything recorded so far is on disk.

        Raises:
            OSError: it is not, since the disk has failed.
        """
        written = threading.Event()
        self._queue.put(written)
        while self._thread.is_alive() and not written.wait(0.1):
            pass
        if self._failure is not None:
            raise OSError(self._reason)

    @property
    def _reason(self) -> str:
        return f"the run's records cannot be written in {self.directory}: {_said(self._failure)}"

    def _write(self) -> None:
        files: dict[str, TextIO] = {}
        try:
            for name in FILES.values():
                files[name] = (self.directory / name).open("a", encoding="utf-8")
            self._drain(files)
        except Exception as error:  # whatever it is, somebody may be waiting for this thread
            self._failure = error
            log.error("%s", self._reason)
            if self._tell is not None:
                self._tell(self._reason)
        finally:
            for file in files.values():
                with contextlib.suppress(OSError):  # said already
                    file.close()

    def _drain(self, files: dict[str, TextIO]) -> None:
        while (record := self._queue.get()) is not None:
            if isinstance(record, threading.Event):
                for file in files.values():
                    file.flush()
                    os.fsync(file.fileno())
                record.set()
                continue
            files[FILES[type(record)]].write(to_json(record) + "\n")
            if self._queue.empty():
                for file in files.values():
                    file.flush()


def _said(error: Exception | None) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
