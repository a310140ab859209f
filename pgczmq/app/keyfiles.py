"""Key files: what is in them, and who may read them.

    pgc-keys/master.json               the master's address and secret key: for the master's machine alone
    pgc-keys/workers.allow             who may join: a name and a public key a line
    pgc-keys/pgc-connect.json          the master's address and public key, and one key that all workers share
    pgc-keys/NAME/pgc-connect.json     the same with a key of its own for one worker

Secret ones are refused when others can read them. No key is in a log or an error.
"""

import json
import os
import re
import stat
from pathlib import Path

from pgczmq.errors import ConfigError
from pgczmq.net.auth import is_available, is_key

MASTER_FILE = "master.json"
ALLOWED_FILE = "workers.allow"
CONNECTION_FILE = "pgc-connect.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_available() -> None:
    """Raises ConfigError: ZeroMQ has no CURVE here."""
    if not is_available():
        raise ConfigError(
            "ZeroMQ was built without CURVE here, so there are no keys. Install pyzmq from a wheel, or use "
            'net.security="insecure" on a network that you trust.'
        )


def check_name(name: str) -> None:
    """Raises ConfigError: it is no name of a worker."""
    if not _NAME.fullmatch(name) or name in {MASTER_FILE, ALLOWED_FILE, CONNECTION_FILE}:
        raise ConfigError(f"a worker's name is of letters, digits, dots, - and _, for example vm-3: got {name!r}.")


def read_allowed(path: Path) -> dict[str, str]:
    """Names by public key.

    Raises:
        ConfigError: the file cannot be read, others can write to it, or a line is not a name and a key.
    """
    text, mode = _text(path)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"only you may decide who joins, but others can write to {path}. Run: chmod 600 {path}")
    names = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not is_key(words[1]):
            raise ConfigError(
                f"{path} has a name and a public key a line, as pgc keygen writes them: see line {number}."
            )
        names[words[1]] = words[0]
    return names


def write(path: Path, text: str) -> None:
    """A new file that nobody else can read at any moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _text(path: Path) -> tuple[str, int]:
    """What is in a file, and its mode."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text, as pgc keygen writes it.") from None


def read_table(path: Path) -> tuple[dict[str, object], int]:
    """The table in a file, and the file's mode."""
    text, mode = _text(path)
    try:
        table = json.loads(text)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold a table in JSON, as pgc keygen writes it.")
    return table, mode


def read_secret(path: Path) -> dict[str, object]:
    """The table in a file that is its owner's alone."""
    table, mode = read_table(path)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path} holds a secret key, but others can read or write it. Run: chmod 600 {path}")
    return table


def key_in(table: dict[str, object], name: str, path: Path) -> str:
    """Raises ConfigError: what is under a name in a file's table is no key."""
    key = table.get(name)
    if not isinstance(key, str) or not is_key(key):
        raise ConfigError(
            f"{path} has no {name} of 40 characters, as pgc keygen writes it. Make new keys, or copy it again."
        )
    return key


def to_json(table: dict[str, str]) -> str:
    """As the files have it."""
    return json.dumps(table, indent=2) + "\n"
