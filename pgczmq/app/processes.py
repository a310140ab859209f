"""Processes on this machine: forked from one helper that has torch loaded and nothing running.

A process that imports torch costs seconds and hundreds of megabytes; a fork of one that has it costs neither.
The helper never runs torch (no thread pool to inherit) and has no ZeroMQ context.
"""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.util
import os
import platform
import resource
import shutil
import signal
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from pgczmq.train import plain

_ITS_OWN = "pgczmq.app.helper"
PRELOADED = ["pgczmq.app.worker", "pgczmq.app.evaluator", "pgczmq.train.gradient", "pgczmq.train.evaluate"]
_WITHOUT_TORCH = ["pgczmq.app.worker", "pgczmq.train.plain"]
_OF_TASKS = {"digits": "sklearn.datasets", "resnet": "torchvision"}  # by how a built-in task's name begins
_directory: str | None = None  # of the helper's socket, once there is a helper
_DIRECTORY_BYTES = 103 - len("/pymp-12345678/listener-12345678")  # so long a socket's name fits on every system
of_a_run = False
"""Whether this process was started for a run, and not by whoever wanted one."""
FILES = 65_536
SLICE_NANOSECONDS = 100_000_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # the system call, by machine
# M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, in bytes; and M_ARENA_MAX, since any other arena maps what is over
# 64 MB afresh each time: filling 100 MB in a thread takes 12 ms there, 4 ms in the first.
_MALLOC = {-3: 2**30, -1: 2**31 - 1, -2: 2**28, -8: 1}


def start_helper(task: str = "") -> ForkServerContext:
    """Start the helper, which loads torch beside whatever this process does next; only once, the first call counts.

    Args:
        task: name of the run's task, whose own slow imports are made in the helper too; of "soak" no torch at all.
    """
    global _directory
    context = multiprocessing.get_context("forkserver")
    loaded = [*PRELOADED, *(module for begin, module in _OF_TASKS.items() if task.startswith(begin))]
    context.set_forkserver_preload([_ITS_OWN, *(_WITHOUT_TORCH if task == plain.NAME else loaded)])
    _directory = _make_directory()
    # Ctrl+C is for this process to handle; the helper only learns to ignore it once it has loaded everything. The
    # tracker is started first, because its start takes every block of SIGINT away.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # A file called random.py or torch.py in the current directory must not stand in for the real one.
    settings = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "PYTHONSAFEPATH": "1"}
    kept = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def place_for_sockets() -> str:
    """Where directories for sockets are made: TMPDIR, unless names would be too long there, as on batch systems."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= _DIRECTORY_BYTES else "/tmp"


def _make_directory() -> str:
    """Where the helper's socket will be."""
    kept, tempfile.tempdir = tempfile.tempdir, place_for_sockets()
    try:
        return multiprocessing.util.get_temp_dir()
    finally:
        tempfile.tempdir = kept


def spawn(context: ForkServerContext, target: Callable[..., None], *args: Any) -> ForkServerProcess:
    """A process that runs ``target(*args)``, and that does not outlive this one."""
    process = context.Process(target=_adopted, args=(target, *args), daemon=True)
    process.start()
    return process


def _adopted(target: Callable[..., None], *args: Any) -> None:
    """In the child: Ctrl+C is for the parent to handle, and the parent's end is ours."""
    global of_a_run
    of_a_run = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    target(*args)


def _end_with_parent() -> None:
    """The process that asked for this one, not the helper that forked it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(128 + signal.SIGHUP)


def end_helper() -> None:
    """End the helper, if there is one, and remove what it needed on disk, before this process leaves at once.

    By itself it would end once it has loaded everything, and until then hold whatever pipe this process writes to.
    After this no process can be spawned. A process that ends as usual need not call it. Never fails.
    """
    if _directory is None:
        return
    helper = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if isinstance(helper, int):
        with contextlib.suppress(OSError):
            os.kill(helper, signal.SIGKILL)
    shutil.rmtree(_directory, ignore_errors=True)


def open_many_files() -> None:
    """Let this process have FILES open if it may: each connection to a master is one, a stranger's too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_large_blocks() -> None:
    """Tell glibc to keep large blocks it once got: fresh pages for each message would cost more than copying it."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        for option, value in _MALLOC.items():
            ctypes.CDLL(None).mallopt(option, value)


before_leaving: list[Callable[[], object]] = []
"""What a process that leaves at once must put in order first, such as a terminal; never waits long."""


def give_terminal_back() -> None:
    """For a process that leaves at once while a view has the terminal."""
    for put_in_order in before_leaving:
        with contextlib.suppress(Exception):
            put_in_order()


def lowest_priority() -> None:
    """Run this process only on cores that nobody else wants."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


def normal_priority(process: int) -> None:
    """Take back ``lowest_priority`` for another process, where the system lets us."""
    if hasattr(os, "SCHED_OTHER"):
        with contextlib.suppress(OSError):  # it has ended, or this user may not: then it stays as it is
            os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))


def long_slices() -> None:
    """Ask the scheduler to let this thread compute for longer at a time, where it takes such wishes (Linux 6.12).

    Twelve processes on two cores find their caches cold after every switch: gradients of a ResNet-18 take 7 % longer
    in slices of 3 ms than alone, 2 % in these. A thread that wakes up still comes first.
    """
    call = _SCHED_SETATTR.get(platform.machine())
    if sys.platform == "linux" and call is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)  # stays as it is
        wish = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, SLICE_NANOSECONDS, 0, 0)  # struct sched_attr
        ctypes.CDLL(None).syscall(call, 0, ctypes.create_string_buffer(wish, len(wish)), 0)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
