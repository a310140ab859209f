"""Going on with a run: which checkpoint, whether it fits the configuration, and the run directory made ready.

``--resume never`` begins a new run, PATH goes on with a run directory's newest whole checkpoint or with the one
checkpoint named, and ``auto`` with whatever was interrupted, so that a master can be started again with the same
command: the run directory of that name, or, without a name, the newest unfinished one of the same configuration.
"""

import contextlib
import logging
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgczmq import checkpoints
from pgczmq import config as configuration
from pgczmq.app.outcome import Keeper
from pgczmq.app.software import made_with
from pgczmq.config import RunConfig
from pgczmq.core.codes import Floats
from pgczmq.core.progress import Progress
from pgczmq.errors import ConfigError, PgcError
from pgczmq.rewind import is_in_use, locked, rewind
from pgczmq.runlog import (
    FILES,
    PARTIAL,
    EvalRecord,
    EventRecord,
    StepRecord,
    create_directory,
    read,
    read_result,
    write_whole,
)

log = logging.getLogger("pgczmq.resume")

NEVER, AUTO = "never", "auto"
SIMULATED = "simulated"
"""The run id of every simulated run: it must not differ between two of them."""
CHECKPOINTS = "checkpoints"
_FREE = ("name", "steps", "device", "threads", "faults", "delay", "eval", "sim", "net", "checkpoint", "ui")
"""What may be another than before: it does not say what is trained."""
_UNTOLD = ("name", "ui")
"""What nobody needs to know of who reads a run's records."""


@dataclass(frozen=True)
class Found:
    """What a run goes on with.

    Args:
        directory: the run directory it goes on in; None when the checkpoint does not lie in one.
        checkpoint: None to begin again at step 0 in a directory that was left without any.
    """

    directory: Path | None
    checkpoint: Path | None
    run_id: str
    progress: Progress | None


@dataclass(frozen=True)
class Beginning:
    """Where a run begins, in a run directory of its own.

    Args:
        progress: None at step 0.
        at: the clock of the records, seconds: goes on where it was.
        events: for the record: with what the run is made, and that it goes on.
        evaluations: on record.
    """

    directory: Path
    run_id: str
    progress: Progress | None = None
    at: float = 0.0
    events: tuple[EventRecord, ...] = ()
    evaluations: tuple[EvalRecord, ...] = ()


# ---------------------------------------------------------------- which


def find(config: RunConfig, asked: str, root: Path, *, run_id: str) -> Found | None:
    """What to go on with; None for a new run. Changes nothing.

    Args:
        asked: auto, never, or the path of a run directory or a checkpoint.
        root: where run directories are.
        run_id: of a new run; simulated runs go on with simulated ones, real ones with real ones.

    Raises:
        ConfigError: what is named cannot be gone on with, or only with another configuration, or is in use: whoever
            works on it may write another checkpoint until this one is read.
    """
    if asked == NEVER:
        return None
    found = _automatic(config, root, run_id) if asked == AUTO else _named(config, Path(asked), root, run_id)
    if found is not None and found.directory is not None:
        with locked(found.directory):
            pass
    if found is None:
        log.info("nothing to go on with in %s: a new run begins", root)
    elif found.progress is None:
        log.info("%s has no checkpoint: the run begins again", found.directory)
    else:
        log.info("going on from %s, after %d steps", found.checkpoint, found.progress.steps)
    return found


def _automatic(config: RunConfig, root: Path, run_id: str) -> Found | None:
    if not config.name:
        return _interrupted(config, root, run_id)
    directory = root / config.name
    if not directory.is_dir():
        return None
    found = _newest(config, directory, run_id)
    if found is None and checkpoints.newest(directory / CHECKPOINTS).damaged:
        raise ConfigError(
            f"all checkpoints of {directory} are damaged, as the lines above say. To begin this run again, move that "
            "directory away; to go on, put a whole checkpoint back."
        )
    if found is None and _is_unfinished(directory):
        saved = _resolved(directory)
        if _is_bare(directory) or (saved is not None and not differing(saved, config)):
            return Found(directory, None, run_id, None)
    return found


def _is_bare(directory: Path) -> bool:
    """Whether whoever made it was killed before anything was in it."""
    return all(path.name.startswith(PARTIAL) for path in directory.iterdir())


def _interrupted(config: RunConfig, root: Path, run_id: str) -> Found | None:
    """The newest unfinished run of this configuration that nobody works on and that has a checkpoint."""
    resolved = [path for path in root.glob("*/config.toml") if not is_in_use(path.parent)]
    for path in sorted(resolved, key=lambda path: path.stat().st_mtime, reverse=True):
        saved = _resolved(path.parent)
        if saved is None or saved.steps != config.steps or differing(saved, config):
            continue
        if _is_unfinished(path.parent) and _has_one_of_kind(path.parent, run_id):
            return _newest(config, path.parent, run_id)
    return None


def _has_one_of_kind(directory: Path, run_id: str) -> bool:
    path = checkpoints.newest(directory / CHECKPOINTS).path
    return path is not None and _kind(checkpoints.read_state(path).get("run", "")) == _kind(run_id)


def _named(config: RunConfig, path: Path, root: Path, run_id: str) -> Found:
    if (path / checkpoints.MANIFEST).exists():
        _verify(path)
        at_home = path.resolve().parent.name == CHECKPOINTS
        return _checked(config, path, path.resolve().parents[1] if at_home else None, run_id)
    found = _newest(config, path, run_id)
    if found is None:
        what = "has no whole checkpoint" if path.is_dir() else "is not there"
        meant = root / path
        hint = f" --resume {shlex.quote(str(meant))} would work." if (meant / CHECKPOINTS).is_dir() else ""
        raise ConfigError(
            f"--resume is auto, never, or the path of a run directory or a checkpoint: {path} {what}.{hint}"
        )
    return found


def _verify(path: Path) -> None:
    """The one that was asked for, and no other, must be whole."""
    try:
        checkpoints.verify(path)
    except PgcError as error:
        raise ConfigError(str(error)) from None


def _newest(config: RunConfig, directory: Path, run_id: str) -> Found | None:
    newest = checkpoints.newest(directory / CHECKPOINTS)
    for sentence in newest.damaged:
        log.warning("%s", sentence)
    return None if newest.path is None else _checked(config, newest.path, directory, run_id)


def _checked(config: RunConfig, path: Path, directory: Path | None, run_id: str) -> Found:
    """A whole checkpoint, if this configuration can go on with it."""
    state = checkpoints.read_state(path)
    if "progress" not in state or "config" not in state:
        raise ConfigError(f"{path} was written by a version of pgczmq that could not yet go on with a run.")
    if _kind(state["run"]) != _kind(run_id):
        raise ConfigError(f"a simulated run goes on with pgc sim, a real one without: {path} is of the other kind.")
    progress = Progress.from_plain(state["progress"])
    _check_same(config, configuration.loads(state["config"]), path, progress)
    return Found(directory, path, state["run"], progress)


def _kind(run_id: str) -> bool:
    return run_id == SIMULATED


# ---------------------------------------------------------------- the same run


def _check_same(config: RunConfig, saved: RunConfig, path: Path, progress: Progress) -> None:
    differences = differing(saved, config)
    if differences:
        raise ConfigError(
            f"a run goes on as it began: {'; '.join(differences)} ({path}). Change that back, or begin a new run."
        )
    if config.steps < progress.steps:
        raise ConfigError(
            f"steps counts from the beginning of a run: got steps={config.steps}, {path} has {progress.steps} already."
        )


def differing(saved: RunConfig, config: RunConfig) -> list[str]:
    """Settings that say what is trained and are not what they were, as in ``seed was 1 and is 2``."""
    free = set(_FREE)
    if config.optimizer.schedule == "cosine":
        free.remove("steps")  # the learning rate depends on it
    if config.deterministic:
        free.remove("delay")  # decides who is late
    return _changes(saved, config, free)


def _changes(saved: RunConfig, config: RunConfig, but: Collection[str]) -> list[str]:
    """Settings outside of these sections that are not what they were."""
    before, now = _flat(saved), _flat(config)
    return [
        f"{key} was {before.get(key, 'unset')} and is {now.get(key, 'unset')}"
        for key in sorted(before.keys() | now.keys())
        if key.partition(".")[0] not in but and before.get(key) != now.get(key)
    ]


def _flat(config: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted key; those that are not set are left out."""
    flat: dict[str, Any] = {}

    def add(prefix: str, table: dict[str, Any]) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                add(f"{prefix}{key}.", value)
            else:
                flat[prefix + key] = value

    add("", config.model_dump(mode="json", exclude_none=True))
    return flat


def _resolved(directory: Path) -> RunConfig | None:
    """The configuration of a run directory; None where none can be read."""
    try:
        return configuration.loads((directory / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, ConfigError):
        return None


def _is_unfinished(directory: Path) -> bool:
    if not (directory / "result.json").exists():
        return True
    try:
        return read_result(directory).exit != 0  # interrupted, or too few workers for too long
    except ConfigError:
        return True  # half-written


# ---------------------------------------------------------------- its directory


@contextlib.contextmanager
def begin(config: RunConfig, found: Found | None, root: Path, *, name: str, run_id: str) -> Iterator[Beginning]:
    """Make a run directory, or make one ready to be gone on with; nobody else writes there meanwhile.

    Args:
        found: by ``find``; what is trained has been restored from it.
        root: where run directories are.
        name: of a new one.
        run_id: of a new run.

    Raises:
        ConfigError: the directory cannot be made, or another process uses it.
    """
    if found is not None and found.directory is not None:
        with locked(found.directory):
            yield _go_on(found, found.directory, config)
        return
    directory = create_directory(root, name)
    _tell_of_unfinished(root / name, directory)
    with locked(directory):
        try:
            new = Beginning(directory, run_id, events=(made_with(0.0),))
            beginning = new if found is None else _go_on(found, directory, config)
            _write_resolved(directory, config)
            yield beginning
        except ConfigError:  # such as a port that is taken: there has been no run
            if not _has_steps(directory):
                shutil.rmtree(directory, ignore_errors=True)
            raise


def _tell_of_unfinished(of_that_name: Path, directory: Path) -> None:
    """Whoever begins anew may have meant to go on."""
    if directory == of_that_name or not _is_unfinished(of_that_name) or is_in_use(of_that_name):
        return
    if checkpoints.steps(of_that_name / CHECKPOINTS):
        log.info(
            "a new run, %s: %s has not finished; --resume %s goes on with that one instead",
            directory,
            of_that_name,
            shlex.quote(str(of_that_name)),
        )


def _has_steps(directory: Path) -> bool:
    steps = directory / FILES[StepRecord]
    return steps.exists() and steps.stat().st_size > 0


def _go_on(found: Found, directory: Path, config: RunConfig) -> Beginning:
    """Undo what is of later steps. Killed half-way, the directory can be gone on with all the same."""
    saved = _resolved(directory)
    progress = found.progress
    steps = 0 if progress is None else progress.steps
    (directory / "result.json").unlink(missing_ok=True)
    aside = checkpoints.set_aside(directory / CHECKPOINTS, steps)
    rewound = rewind(directory, steps)
    why = "" if found.checkpoint is not None else ", since no checkpoint had been written"
    text = f"from step {steps}{why}; {rewound.undone} recorded steps are done again"
    if aside:
        text += f"; set aside: {', '.join(aside)}"
    if changed := [] if saved is None else _changes(saved, config, _UNTOLD):
        text += f"; {'; '.join(changed)}"
    log.info("resumed %s", text)
    evaluations = tuple(read(directory, EvalRecord)) if (directory / "evals.jsonl").exists() else ()
    _write_resolved(directory, config)
    events = (made_with(rewound.at), EventRecord(rewound.at, "resumed", text, step=steps))
    return Beginning(directory, found.run_id, progress, rewound.at, events, evaluations)


def _write_resolved(directory: Path, config: RunConfig) -> None:
    """Write ``config.toml``, whole or not at all: a run that is killed is found by it."""
    file = directory / "config.toml"
    try:
        write_whole(file, config.to_toml())
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}. Free space there, or go elsewhere.") from None


def keeper_of(config: RunConfig, beginning: Beginning, coefficients_NC: Floats, sync: Callable[[], None]) -> Keeper:
    """What writes the run's checkpoints; see there."""
    return Keeper(
        config,
        beginning.directory,
        run_id=beginning.run_id,
        coefficients_NC=coefficients_NC,
        sync=sync,
        evaluations=beginning.evaluations,
    )
