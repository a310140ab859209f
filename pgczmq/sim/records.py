"""Records of a simulated run on their way to the run directory."""

from collections import defaultdict
from pathlib import Path
from types import TracebackType

from pgczmq.errors import ConfigError
from pgczmq.runlog import FILES, Record, to_json

TOGETHER = 4096
"""Lines written at once: nobody reads along, and a slow disk delays nothing that counts in virtual time."""


class BatchLog:
    """What ``recorder.RunLog`` does, without a thread of its own and in batches.

    Use as a context manager; everything recorded is on disk when it ends.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._count = 0

    def __enter__(self) -> "BatchLog":
        """Make the files, which are there even when nothing is recorded."""
        for name in FILES.values():
            self._append(name, "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left."""
        self.flush()

    def record(self, record: Record) -> None:
        """Take a record; kinds without a file are left out."""
        name = FILES.get(type(record))
        if name is not None:
            self._lines[name].append(to_json(record))
            self._count += 1
            if self._count >= TOGETHER:
                self.flush()

    def flush(self) -> None:
        """Write everything recorded so far."""
        for name, lines in self._lines.items():
            self._append(name, "".join([line + "\n" for line in lines]))
        self._lines.clear()
        self._count = 0

    def _append(self, name: str, text: str) -> None:
        try:
            with (self._directory / name).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"cannot write the run's records in {self._directory}: {error.strerror}.") from None
