"""``pgc keygen``: makes key files. None is ever overwritten, and nobody else can read one at any moment."""

import contextlib
import errno
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgczmq.app.keyfiles import (
    ALLOWED_FILE,
    CONNECTION_FILE,
    MASTER_FILE,
    check_available,
    check_name,
    key_in,
    read_allowed,
    read_secret,
    to_json,
    write,
)
from pgczmq.errors import ConfigError
from pgczmq.net.auth import new_pair, public_of

SHARED_NAME = "shared"
_HEADER = "# Who may join: a name and a public key a line. The master reads it again whenever it has changed.\n"


def make(directory: Path, master: str, workers: Sequence[str]) -> list[Path]:
    """Make a master's keys, the list of who may join, and connection files: for each named worker, or one for all.

    All at once: the directory is there with everything in it, or not at all.

    Args:
        directory: that does not exist, or is empty.
        master: tcp://HOST:PORT, as workers reach it.

    Returns:
        The connection files.

    Raises:
        ConfigError: something is there, a name does not fit, or it cannot be written.
    """
    check_available()
    for name in workers:
        check_name(name)
    if len(set(workers)) != len(workers):
        raise ConfigError(f"every worker has a name of its own: got {', '.join(workers)}.")
    public, secret = new_pair()
    with _never_overwritten(directory), tempfile.TemporaryDirectory(dir=directory.absolute().parent) as scratch:
        part = Path(scratch) / "keys"
        part.mkdir(mode=0o700)
        write(part / MASTER_FILE, to_json({"master": master, "secret_key": secret}))
        write(part / ALLOWED_FILE, _HEADER)
        files = [_add(part, name, master, public) for name in workers or [SHARED_NAME]]
        part.rename(directory)  # takes the place of an empty directory, and of nothing else
    return [directory / file.relative_to(part) for file in files]


def add(directory: Path, name: str) -> Path:
    """Make a key for one more worker and put it on the list; returns the connection file.

    Raises:
        ConfigError: there is no master's key, the name is taken or does not fit, or it cannot be written.
    """
    check_available()
    check_name(name)
    file = directory / MASTER_FILE
    if not file.exists():
        raise ConfigError(f"there is no {file}. Make the master's keys first: pgc keygen --master tcp://HOST:PORT")
    table = read_secret(file)
    public = public_of(key_in(table, "secret_key", file))
    if name in read_allowed(directory / ALLOWED_FILE).values():
        raise ConfigError(f"{name} is on the list {directory / ALLOWED_FILE} already. Choose another name.")
    with _never_overwritten(directory / name):
        return _add(directory, name, str(table.get("master")), public)


def _add(directory: Path, name: str, master: str, server_key: str) -> Path:
    public, secret = new_pair()
    own = directory if name == SHARED_NAME else directory / name
    if own != directory:
        own.mkdir(mode=0o700)
    write(
        own / CONNECTION_FILE, to_json({"master": master, "server_key": server_key, "name": name, "secret_key": secret})
    )
    allowed = directory / ALLOWED_FILE
    begin = "" if allowed.read_bytes().endswith(b"\n") else "\n"
    with allowed.open("a", encoding="utf-8") as file:
        file.write(f"{begin}{name} {public}\n")
    return own / CONNECTION_FILE


@contextlib.contextmanager
def _never_overwritten(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise ConfigError(f"keys are never overwritten: {path} is there already. Move it away first.") from None
        raise ConfigError(f"cannot write {path}: {error.strerror}.") from None
