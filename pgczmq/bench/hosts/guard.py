"""Ends every process of some network namespaces, also when whoever made them is gone. Imports nothing of the program.

A namespace without a name and without processes is taken away by the kernel, with its links and addresses. As a
program this reads namespaces, one a line, until its standard input ends, as it does when its parent is killed.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path


def namespace_of(pid: int) -> str:
    """The network namespace of a process, such as net:[4026532281]; "" when there is no such process any more."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def members(namespaces: Collection[str]) -> Iterator[int]:
    """The processes in these namespaces; in the one where this process is itself, as if there were none."""
    others = set(namespaces) - {namespace_of(os.getpid())}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and namespace_of(int(entry.name)) in others:
            yield int(entry.name)


def end_all(namespaces: Collection[str]) -> None:
    """Kill whoever is in these namespaces, until nobody is; one that is dead but not waited for is in none."""
    while found := list(members(namespaces)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    end_all({line.strip() for line in sys.stdin})
