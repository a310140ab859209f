"""``pgc keygen``: makes key files and says what to do with them."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pgczmq.app import keygen
from pgczmq.app.keyfiles import ALLOWED_FILE, MASTER_FILE
from pgczmq.app.worker import parse_address
from pgczmq.errors import ConfigError
from pgczmq.net.sockets import endpoint


def make(directory: Path, master: str | None, workers: Sequence[str]) -> None:
    """A master's keys where its address is given, and one for each worker.

    Raises:
        ConfigError: neither is given, or as ``app.keygen``.
    """
    if master is not None:
        host, port = parse_address(master)
        if host in {"0.0.0.0", "::"}:
            raise ConfigError(f"workers cannot reach {host}. Say the address that the master has for them.")
        files = keygen.make(directory, endpoint(host, port), workers)
        _say(f"{directory / MASTER_FILE}: the master's key, which stays on its machine")
        _say(f"{directory / ALLOWED_FILE}: who may join; delete a line to shut its key out")
    elif workers:
        files = [keygen.add(directory, name) for name in workers]
    else:
        raise ConfigError(
            "pgc keygen makes keys for a master, or for one more worker of it. Say --master tcp://HOST:PORT, as its "
            "workers reach it, or --worker NAME."
        )
    for file in files:
        _say(f"{file}: copy it to {_whom(file, directory)}, over a way that nobody reads along (scp)")


def _whom(file: Path, directory: Path) -> str:
    return "every worker" if file.parent == directory else f"worker {file.parent.name}"


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
