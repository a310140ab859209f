"""Many runs as one: simulated side by side or real one by one, kept as they finish, continued where broken off.

While a study works, its finished runs are in ``FILE.part``, one JSON line each; its first line tells which study it
is. The same study started again takes them over. FILE itself appears when everything is done.
"""

import hashlib
import json
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import TypeAdapter

from pgczmq.app import simulate
from pgczmq.bench.side_by_side import each
from pgczmq.bench.tally import Goal, GoalReached, Row, Tally
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError, PgcError

Engine = Literal["sim", "timing", "local"]
"""Simulated with gradients, simulated without, or real processes on this machine."""

_ROW = TypeAdapter(Row)


@dataclass(frozen=True)
class Case:
    """One run of a study: what its results are filed under, and what is run."""

    label: str
    config: RunConfig
    engine: Engine
    goal: Goal

    @property
    def key(self) -> str:
        """Runs with the same key have the same figures, as far as the engine allows."""
        text = json.dumps([self.label, self.engine, asdict(self.goal), self.config.model_dump(mode="json")])
        return hashlib.sha256(text.encode() + _trace(self.config)).hexdigest()[:16]


def _trace(config: RunConfig) -> bytes:
    """The contents of the trace files that the run reads, in short."""
    names = config.delay.file or ()
    paths = [Path(name) for name in ([names] if isinstance(names, str) else names)]
    files = [path / "latencies.jsonl" if path.is_dir() else path for path in paths]
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files if file.exists())


@dataclass(frozen=True)
class Spread:
    """Of one figure over seeds."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median, least, largest and number of the values that there are; None when there are none."""
    there = [value for value in values if value is not None]
    return Spread(statistics.median(there), min(there), max(there), len(there)) if there else None


def by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The runs of each label in the order of their seeds; labels in the order of their first run."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.label, []).append(row)
    return {label: sorted(group, key=lambda row: row.seed) for label, group in groups.items()}


def run(cases: Sequence[Case], *, part: Path, root: Path) -> Iterator[tuple[Case, Row]]:
    """Each case's figures as they are known, those of an earlier attempt first; in no particular order.

    Args:
        cases: all of one study.
        part: where finished runs are kept meanwhile; the caller removes it when it has saved the whole.
        root: where real runs make their directories.

    Raises:
        ConfigError: a run cannot be, or ``part`` cannot be read or written.
        PgcError: a real run failed.
        KeyboardInterrupt: Ctrl+C; what was finished is kept.
    """
    kept = _Part(part, cases)
    todo = []
    for case in cases:
        row = kept.rows.get(case.key)
        if row is None:
            todo.append(case)
        else:
            yield case, row
    with kept:
        for case, row in _work(todo, root):
            kept.add(case, row)
            yield case, row


def _work(cases: Sequence[Case], root: Path) -> Iterator[tuple[Case, Row]]:
    planned = [case for case in cases if case.engine != "local"]
    if planned:
        yield from each(simulated, planned, task=planned[0].config.task.name)
    for case in cases:
        if case.engine == "local":
            yield case, _real(case, root)


# ---------------------------------------------------------------- one run


def simulated(case: Case) -> Row:
    """The figures of a simulated run."""
    model = None if case.engine == "timing" else simulate.model_of(case.config)
    tally = Tally(case.config, case.goal)
    try:
        ending = simulate.observe(case.config, model=model, sink=tally.see)
    except GoalReached:
        return tally.row(case.label, diverged=False)
    return tally.row(case.label, diverged=ending.diverged)


def _real(case: Case, root: Path) -> Row:
    from pgczmq.app import local

    tally = Tally(case.config, case.goal)
    result = local.run(case.config, sink=tally.see, root=root)
    if result.exit in (75, 130, 143):
        raise KeyboardInterrupt
    if result.exit:
        raise PgcError(f"the run {case.label}, seed={case.config.seed}, failed: {result.reason} (see {result.run}).")
    return tally.row(case.label, diverged=result.diverged)


# ---------------------------------------------------------------- files


class _Part:
    """Finished runs of an unfinished study. Open it as a context manager to add more.

    Raises:
        ConfigError: the file belongs to another study, or cannot be read.
    """

    def __init__(self, path: Path, cases: Sequence[Case]) -> None:
        self._path = path
        self._study = hashlib.sha256(" ".join(case.key for case in cases).encode()).hexdigest()
        self._file: TextIO | None = None
        self.rows = self._read()

    def _read(self) -> dict[str, Row]:
        if not self._path.exists() or not self._path.stat().st_size:
            return {}
        try:
            first, *lines = [
                line for line in self._path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")
            ]
            if json.loads(first)["study"] != self._study:
                raise ConfigError(
                    f"{self._path} holds finished runs of another study, or of one with other settings. Give this one "
                    "another file, or remove that one."
                )
            found = [json.loads(line) for line in lines]
            return {entry["key"]: _ROW.validate_python(entry["row"]) for entry in found}
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self._path} does not hold finished runs of a study: remove it.") from None

    def __enter__(self) -> "_Part":
        lines = [json.dumps({"study": self._study})]
        lines += [json.dumps({"key": key, "row": asdict(row)}) for key, row in self.rows.items()]
        write_whole(self._path, "".join(line + "\n" for line in lines))  # a half-written last line goes
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._file is not None
        self._file.close()

    def add(self, case: Case, row: Row) -> None:
        """Keep a finished run."""
        assert self._file is not None
        self._file.write(json.dumps({"key": case.key, "row": asdict(row)}) + "\n")
        self._file.flush()


def write_whole(path: Path, text: str) -> None:
    """Replace a file: whoever reads it sees all of the old one or all of the new one.

    Raises:
        ConfigError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}.") from None


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as JSON values."""
    return [asdict(row) for row in rows]


def rows_from(values: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows from JSON values."""
    return [_ROW.validate_python(value) for value in values]
