"""``pgc top``: which run is to be watched, and from where."""

import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pgczmq.app.following import Following
from pgczmq.app.keys import connection
from pgczmq.app.playback import Playback
from pgczmq.app.tails import is_run
from pgczmq.app.worker import parse_address, way_to_master
from pgczmq.errors import ConfigError
from pgczmq.net.ports import Ports
from pgczmq.net.viewer import Viewer
from pgczmq.picture import Seen
from pgczmq.rewind import is_in_use

KNOCK_SECONDS = 1.0


class NothingGoesOn(ConfigError):
    """No run was named, and none is going on here; one that has just been started may come."""


class Watched(Protocol):
    """A run that is looked at as long as the context lasts.

    Attributes:
        failure: why there will never be a picture.
        news: set once there is a picture or a failure.
    """

    failure: Exception | None
    news: threading.Event

    def __enter__(self) -> Self:
        """Begin to look."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""

    def seen(self) -> Seen:
        """As a ``picture.Source``."""


def watched(
    asked: str | None, speed: float | None, *, environment: Mapping[str, str], directory: Path, root: Path
) -> Watched:
    """The run that is meant.

    Args:
        asked: a run directory, the name of one in ``root``, or a master's address; None for the master that a worker
            would find here, else for the newest run that goes on in ``root``.
        speed: how many times as fast a recorded run is to be played; None for as it is.
        directory: where a connection file would be.
        root: where run directories are.

    Raises:
        NothingGoesOn: no run was asked for, and there is none.
        ConfigError: there is no such run, or no address like that; says what there could be.
    """
    found = None if asked is None else _run(asked, root)
    if found is None and asked is not None and ":" not in asked:
        raise ConfigError(
            f"pgc top takes a run directory, or a master's address as tcp://HOST:PORT: got {asked}, and no run has "
            f"that name in {root}/."
        )
    meant = _master(asked, environment, directory, root) if found is None else found
    if isinstance(meant, Path):
        return Following(meant) if speed is None else Playback(meant, speed)
    if speed is not None:
        raise ConfigError("--speed is for a recorded run: name its directory, as in pgc top runs/NAME --speed 10.")
    return meant


def _run(asked: str, root: Path) -> Path | None:
    return next((path for path in (Path(asked), root / asked) if is_run(path)), None)


def _master(asked: str | None, environment: Mapping[str, str], directory: Path, root: Path) -> Viewer | Path:
    """The master at the address that is asked for, or that somebody has set; else whatever goes on here.

    Raises:
        NothingGoesOn: nothing does.
    """
    way = way_to_master(asked, environment, directory)
    host, port = parse_address(way.master)
    is_set = asked is not None or "PGC_MASTER" in environment or connection(environment, directory) is not None
    if is_set or _answers(host, port):
        return Viewer(host, port, way.security)
    newest = _newest_in_progress(root)
    if newest is None:
        raise NothingGoesOn(
            f"nothing to watch: no master answers at {way.master}, and no run goes on in {root}/. Start one, with pgc "
            "local for example; or name a master's address, or a run that is over: pgc top runs/NAME."
        )
    return newest


def _answers(host: str, port: int) -> bool:
    """Whether anybody listens where a master would send pictures."""
    try:
        with socket.create_connection((host, Ports.from_first(port).metrics), timeout=KNOCK_SECONDS):
            return True
    except OSError:
        return False


def _newest_in_progress(root: Path) -> Path | None:
    unfinished = [path.parent for path in root.glob("*/config.toml") if not (path.parent / "result.json").exists()]
    newest_first = sorted(unfinished, key=lambda run: run.stat().st_mtime, reverse=True)
    return next((run for run in newest_first if is_in_use(run)), None)
