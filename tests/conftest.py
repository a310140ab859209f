"""Which tests run alone: ``bin/test`` runs all others side by side first. And what any of them may need."""

import errno
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ALONE = [
    TESTS / name
    for name in (
        "bench",
        "net",
        "e2e/test_clusters_kubernetes.py",
        "e2e/test_clusters_slurm.py",
        "e2e/test_clusters_ssh.py",
        "e2e/test_ctrl_c.py",
        "e2e/test_keyed_runs.py",
        "e2e/test_launchers.py",
        "e2e/test_leftover_memory.py",
        "e2e/test_leftovers.py",
        "e2e/test_matrix_sample.py",
        "e2e/test_planned_kills.py",
        "e2e/test_real_policies.py",
        "e2e/test_resume.py",
        "e2e/test_soak.py",
        "e2e/test_survival.py",
        "e2e/test_tmux.py",
        "e2e/test_top.py",
        "e2e/test_worker_lives.py",
    )
]
"""Those that take ports they found free, and those in which it matters who is late: others would make somebody late."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in ALONE):
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is written to a file does not fit there."""

    def write_some(path: Path, text: str, **about: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_some)
