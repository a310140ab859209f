"""Gates: places where a process waits as long as a file says so, for whoever must meet it in just that state."""

import os
import time
from pathlib import Path

LOOK_SECONDS = 0.01


def close(directory: Path, place: str, step: int = 0) -> None:
    """From this step on nobody gets past ``place``."""
    (directory / place).write_text(str(step), encoding="utf-8")


def is_reached(directory: Path, place: str) -> bool:
    """Whether somebody stands there."""
    return (directory / f"{place}.reached").exists()


def open_again(directory: Path, place: str) -> None:
    """Let whoever stands there go on, and all who follow."""
    (directory / place).unlink(missing_ok=True)
    (directory / f"{place}.reached").unlink(missing_ok=True)


class Gates:
    """The gates that a process passes.

    Args:
        directory: where they are files, one with the number of a step for each that is closed; "" for none at all.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory) if directory else None

    def go_through(self, place: str, step: int = 0) -> None:
        """Wait while this gate is closed for ``step``."""
        if self._directory is None:
            return
        gate = self._directory / place
        if _closed_from(gate) <= step:
            (self._directory / f"{place}.reached").write_text(str(os.getpid()), encoding="utf-8")
        while _closed_from(gate) <= step:
            time.sleep(LOOK_SECONDS)


def _closed_from(gate: Path) -> float:
    """The step from which on it is closed."""
    try:
        return int(gate.read_text(encoding="utf-8") or 0)
    except FileNotFoundError:
        return float("inf")
