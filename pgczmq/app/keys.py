"""Who may join a run, as its configuration and the key files say; what a worker's connection file says."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgczmq.app.keyfiles import (
    ALLOWED_FILE,
    CONNECTION_FILE,
    MASTER_FILE,
    check_available,
    key_in,
    read_allowed,
    read_secret,
    read_table,
)
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.net.auth import PLAIN, CurveClient, CurveServer, Security, new_pair
from pgczmq.net.sockets import at_loopback

log = logging.getLogger("pgczmq.master")


@dataclass(frozen=True)
class Connection:
    """What a connection file says.

    Args:
        master: the master's address, tcp://HOST:PORT.
        security: how to connect to it.
    """

    master: str
    security: Security


@dataclass(frozen=True)
class Access:
    """Who may join a run.

    Args:
        master: the security of its master.
        local: that of the workers which the master's process starts itself.
    """

    master: Security
    local: Security


def access_of(config: RunConfig) -> Access:
    """The security of a run that workers join from outside.

    Raises:
        ConfigError: keys are needed and there are none, or their files cannot be used.
    """
    net = config.net
    loopback = is_loopback(net.bind)
    if net.security == "insecure" or (net.security == "auto" and loopback):
        return Access(PLAIN, PLAIN)
    file = Path(net.keys) / MASTER_FILE
    if not file.exists():
        raise ConfigError(
            f"workers need keys to join where net.security is curve or net.bind is not 127.0.0.1: got net.bind="
            f"{net.bind}, net.security={net.security} and no {file}. Make keys with pgc keygen --master "
            f"tcp://{net.bind if loopback else 'THIS-HOST'}:{net.port or 'PORT'}. On a network that you trust you can "
            "add --insecure instead; or keep 127.0.0.1 and let workers come through an SSH tunnel."
        )
    return Access(server(file.parent), PLAIN)


def access_of_local(config: RunConfig) -> Access:
    """The security of a run on this machine: with net.security="curve" its keys are made for it, and kept nowhere.

    Raises:
        ConfigError: this machine's ZeroMQ cannot do it.
    """
    if config.net.security != "curve":
        return Access(PLAIN, PLAIN)
    check_available()
    (public, secret), (mine, own) = new_pair(), new_pair()
    return Access(CurveServer(secret, {mine: "this machine"}.get), CurveClient(public, own))


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach an address.

    Raises:
        ConfigError: it is not numeric.
    """
    try:
        return at_loopback(bind)
    except ValueError:
        raise ConfigError(
            f"net.bind is the numeric address to listen on, for example 127.0.0.1 or 0.0.0.0: got {bind!r}."
        ) from None


def server(directory: Path) -> CurveServer:
    """A master's keys, and who may join it.

    Raises:
        ConfigError: a file is missing, others can read it, or it is not as ``pgc keygen`` writes it.
    """
    check_available()
    file = directory / MASTER_FILE
    return CurveServer(key_in(read_secret(file), "secret_key", file), AllowList(directory / ALLOWED_FILE).name_of)


def connection(environment: Mapping[str, str], directory: Path) -> Connection | None:
    """What the connection file says that PGC_CONNECT names, else ``pgc-connect.json`` there; None if there is none.

    Raises:
        ConfigError: it cannot be used.
    """
    named = environment.get("PGC_CONNECT", "")
    file = Path(named) if named else directory / CONNECTION_FILE
    return read_connection(file) if named or file.exists() else None


def read_connection(file: Path) -> Connection:
    """Raises ConfigError: it cannot be used, or others can read the key in it."""
    table, _ = read_table(file)
    master = table.get("master")
    if not isinstance(master, str):
        raise ConfigError(f'{file} must hold {{"master": "tcp://HOST:PORT"}}, as pgc keygen writes it.')
    if "secret_key" not in table and "server_key" not in table:
        return Connection(master, PLAIN)
    check_available()
    table = read_secret(file)
    return Connection(master, CurveClient(key_in(table, "server_key", file), key_in(table, "secret_key", file)))


class AllowList:
    """The names of the keys that may join; follows its file.

    A file that cannot be read any more, in the middle of a run, leaves the list as it was, and the log says so.

    Raises:
        ConfigError: others can write to it, or a line is not a name and a key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._look()
        self._names = read_allowed(path)

    def name_of(self, public: str) -> str | None:
        """Whose public key this is; None if nobody's."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._names = read_allowed(self._path)
                log.info("%s has changed: %d keys may join from now on", self._path, len(self._names))
            except ConfigError as error:
                log.warning("the list of who may join stays as it was: %s", error)
        return self._names.get(public)

    def _look(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
