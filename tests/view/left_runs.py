"""Run directories of runs that never happened."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from made_up_run import late, latency_record, result, step_record

from pgczmq.runlog import FILES, EvalRecord, EventRecord, Record, Result, to_json, write_result

CONFIG = """
name = "{name}"
workers = {workers}
steps = 40
seed = 1

[task]
name = "digits-cnn"

[scheme]
name = "{scheme}"
stragglers = {stragglers}
"""


def made_up(workers: int = 4, steps: int = 40) -> list[Record]:
    """The last worker misses every second step, and comes late to every fourth."""
    records: list[Record] = []
    for step in range(steps):
        missing = [workers - 1] if step % 2 else []
        records.append(replace(step_record(step, workers, loss=2.0 / (step + 1), missing=missing), k=3))
        records += [latency_record(worker, step, 0.01 * (worker + 1)) for worker in range(workers - len(missing))]
        if step % 4 == 3:
            records.append(late(workers - 1, step))
            records.append(latency_record(workers - 1, step, 0.25, "late"))
    records.append(EventRecord(1.5, "left", "worker 3 can no longer be reached", 3))
    records += [EvalRecord(step, 2.0, 1.0 / step, step / (steps + 1), 0.1) for step in (max(1, steps // 2), steps)]
    return records


def left_run(
    directory: Path,
    records: Sequence[Record] | None = None,
    *,
    end: Result | None = None,
    scheme: str = "pgc-cr",
    stragglers: int = 1,
    more: str = "",
) -> Path:
    """Write what a run would have left; without ``end`` it left no result."""
    directory.mkdir(parents=True)
    text = CONFIG.format(name=directory.name, workers=4, scheme=scheme, stragglers=stragglers)
    (directory / "config.toml").write_text(text + more)
    for name in FILES.values():
        (directory / name).touch()
    for record in made_up() if records is None else records:
        with (directory / FILES[type(record)]).open("a") as file:
            file.write(to_json(record) + "\n")
    if end is not None:
        write_result(directory, end)
    return directory


def checkpoint(directory: Path) -> None:
    """Nothing of one but that it is there."""
    place = directory / "checkpoints" / "step_000020"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")


def done(**other: object) -> Result:
    return result(scheme="pgc-cr", steps=40, seconds=10.0, **other)


def spoil(directory: Path, name: str, **fields: object) -> None:
    """Foreign values in the first record of a file."""
    first, *rest = (directory / name).read_text().splitlines(keepends=True)
    (directory / name).write_text(json.dumps(json.loads(first) | fields) + "\n" + "".join(rest))
