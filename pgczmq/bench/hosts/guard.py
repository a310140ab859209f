"""Ends every process of some network namespaces, also when whoever made them is gone. Imports nothing of the program.

A namespace without a name, processes and open files is taken away by the kernel, with its links and addresses, and
the next that anybody makes gets its number: whoever kills by such numbers keeps the namespaces open meanwhile. As a
program this is given open files of namespaces, by number, and waits until its standard input ends, as it does when its
parent is killed.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

ROUND_SECONDS = 0.01
"""Between looks at who is still there: it takes a killed process a moment to end."""


def namespace_of(pid: int) -> str | None:
    """The network namespace of a process, such as net:[4026532281]; None when it is dead, or not ours to look at."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


def namespace_at(file: int) -> str:
    """The network namespace that is open as this file."""
    return str(Path(f"/proc/self/fd/{file}").readlink())


def members(namespaces: Collection[str]) -> Iterator[int]:
    """The processes in these namespaces; in the one where this process is itself, as if there were none."""
    others = set(namespaces) - {namespace_of(os.getpid())}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and namespace_of(int(entry.name)) in others:
            yield int(entry.name)


def end_all(namespaces: Collection[str]) -> None:
    """Kill whoever is in these namespaces, until nobody is; one that is dead but not waited for is in none.

    Args:
        namespaces: all open in this process, so that they are nobody else's by now.
    """
    while found := list(members(namespaces)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)


if __name__ == "__main__":
    pinned = {namespace_at(int(file)) for file in sys.argv[1:]}
    sys.stdin.read()
    end_all(pinned)
