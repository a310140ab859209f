"""What the shell offers behind some options when Tab is pressed; whatever is quick to find."""

from pathlib import Path


def toml_files(incomplete: str) -> list[str]:
    """Configurations, and directories that may hold some."""
    return [name for name in _entries(incomplete) if name.endswith(("/", ".toml"))]


def run_directories(incomplete: str) -> list[str]:
    """Runs of this directory, unless another place was begun."""
    return [name for name in _entries(incomplete or "runs/") if name.endswith("/")]


def schemes(incomplete: str) -> list[str]:
    """Names of schemes, behind those that the comma list has already."""
    from pgczmq.core.schemes import SCHEMES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in SCHEMES if name.startswith(last) and name not in before.split(",")]


def settings(incomplete: str) -> list[str]:
    """Keys of the configuration."""
    from pgczmq.config import keys

    return [f"{key}=" for key in keys() if key.startswith(incomplete)]


def _entries(incomplete: str) -> list[str]:
    """Paths that begin so; directories end in a slash, hidden ones are left out."""
    written, slash, begin = incomplete.rpartition("/")
    directory = Path(written + slash)
    if not directory.is_dir():
        return []
    names = sorted(
        f"{path.name}/" if path.is_dir() else path.name for path in directory.iterdir() if path.name[:1] != "."
    )
    return [written + slash + name for name in names if name.startswith(begin)]
