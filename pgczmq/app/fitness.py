"""What ``pgc doctor`` says of this machine for one run: cores, memory, disk, open files, and the task itself."""

import os
import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgczmq.app import build, processes
from pgczmq.app.check import Check
from pgczmq.app.task_means import said
from pgczmq.app.task_memory import BYTES, costs, master_bytes
from pgczmq.config import RunConfig
from pgczmq.train import plain

FILES_A_WORKER = 8
"""That a master has open for each: connections to four sockets, and shared memory."""
FILES_AT_LEAST = 100
"""That a master needs beside them."""
PROCESS_BYTES = 110 * 2**20
"""Of a worker that was forked with torch loaded."""
MASTER_PROCESS_BYTES = 800 * 2**20
"""Of pgc local's other processes: the master, the one that workers are forked from, and the one that evaluates."""
_DIGITS = 12
# Of a container: where it is told what it may use, what it uses, and what of that can go when something else is wanted.
_MEMORY_FILES = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True)
class Built:
    """A task that could be built: its parameters, bytes of a minibatch, and what it is told from others by."""

    parameters: int
    minibatch: int = 0
    fingerprint: Mapping[str, str] = field(default_factory=dict)


def threads(config: RunConfig) -> Check:
    """Whether threads outnumber cores by the user's own doing, or more workers than cores share this machine."""
    have, workers = processes.cores(), config.workers
    each = 1 if config.threads == "auto" else config.threads
    if each > 1 and each * workers > have:
        text = (
            f"threads={each} for each of workers={workers} is more than the {have} cores here: under pgc local they "
            "slow each other down. Leave threads out; on a machine for each worker this is fine"
        )
        return Check("cores", "warning", text)
    text = f"{have}, one torch thread for each of workers={workers} under pgc local"
    if workers > have:
        text += f": they take turns, {round(workers / have, 1):g} times as long a step as with a core for each"
    return Check("cores", "ok", text)


def task(config: RunConfig) -> tuple[list[Check], Built | None]:
    """Build the run's task, say by what its data can be told from others, and how large it is; imports torch."""
    if config.task.name == plain.NAME:
        size = plain.Arguments.of(config.task.args).size
        return [Check("task", "ok", f"{plain.NAME}: {size:,} parameters, no data")], Built(size)
    import torch

    from pgczmq.train.fingerprint import fingerprints
    from pgczmq.train.flat import build_model
    from pgczmq.train.task import load_task

    try:
        found = load_task(config.task.name, config.task.args, config.seed)
        partitions = build.partitions_of(config, found)
        flat = build_model(found, config.seed)
        prints = fingerprints(found, flat, seed=config.seed)
        minibatch = found.train.batch(torch.from_numpy(partitions.minibatch(0, 0)))
    except Exception as error:  # the user's code among others
        return [Check("task", "problem", said(error))], None
    samples = prints["data"].partition(",")[0]
    text = ", ".join(f"{key} {_short(prints[key])}" for key in ("data", "model", "torch"))
    same = "the same on every machine of this run, or its worker is not let in: ask pgc doctor --master there"
    checks = [
        Check("task", "ok", f"{config.task.name}: {len(flat):,} parameters, {samples}"),
        Check("fingerprint", "ok", f"{text}: {same}"),
    ]
    return checks, Built(len(flat), sum(part.nbytes for part in minibatch), prints)


def memory(config: RunConfig, built: Built, available: int | None) -> Check:
    """Whether a run of pgc local fits, without what the model needs while it computes and the data set.

    Args:
        available: bytes that this process and its children may still get; None where the system does not tell.
    """
    cost = costs(config, parameters=built.parameters, minibatch=built.minibatch)[0]
    needed = MASTER_PROCESS_BYTES + master_bytes(config, parameters=built.parameters)
    needed += config.workers * (PROCESS_BYTES + cost.worker)
    text = f"pgc local with workers={config.workers} takes about {_said(needed)} beside data and activations"
    if available is None:
        return Check("memory", "ok", f"{text}; how much there is, this system does not tell")
    if needed > available:
        text += f", and {_said(available)} are free: fewer workers, another scheme.load, or a machine for each worker"
        return Check("memory", "warning", text)
    return Check(
        "memory", "ok", f"{text}, of {_said(available)}; shared memory is a part of it, whatever /dev/shm says"
    )


def available_memory() -> int | None:
    """Bytes that this process may still get: what the machine has left, or what its container may still use."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    return min([found, *(left for files in _MEMORY_FILES if (left := _left(*files)) is not None)])


def _left(folder: Path, limit: str, used: str, reclaimable: str) -> int | None:
    """Bytes that a container may still use; None where there is no limit."""
    try:
        at_most, uses, detail = [(folder / name).read_text(encoding="utf-8") for name in (limit, used, "memory.stat")]
    except OSError:
        return None
    if not at_most.strip().isdecimal():
        return None
    details = dict(line.split() for line in detail.splitlines())
    return max(0, int(at_most) - int(uses) + int(details.get(reclaimable, 0)))


def disk(config: RunConfig, built: Built, directory: Path) -> Check:
    """Whether checkpoints fit where runs are kept."""
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not os.access(place, os.W_OK):
        return Check("disk", "problem", f"{directory} cannot be written by this user: go to a directory of your own")
    # The best one stays as well, and a new one is written before an old one goes; each has the optimizer's vectors.
    needed = (config.checkpoint.keep + 2) * BYTES * built.parameters * 3
    free = shutil.disk_usage(place).free
    text = f"{directory}/ has {_said(free)} free; checkpoints take up to {_said(needed)}"
    if needed > free:
        return Check("disk", "warning", f"{text}: make room, or lower checkpoint.keep={config.checkpoint.keep}")
    return Check("disk", "ok", text)


def files(config: RunConfig, limit: int | None = None) -> Check:
    """Whether a master may have as many files open as its workers take."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    may = hard if limit is None else limit
    needed = FILES_AT_LEAST + FILES_A_WORKER * config.workers
    if may == resource.RLIM_INFINITY or needed <= may:
        return Check("open files", "ok", f"a master takes about {needed} of them with workers={config.workers}")
    text = f"a master takes about {needed} with workers={config.workers}, and may have {may}: raise it with ulimit -Hn"
    return Check("open files", "warning", f"{text} (as root), or in /etc/security/limits.conf")


def _short(fingerprint: str) -> str:
    """Of a hash, as much as tells it from others."""
    before, comma, digest = fingerprint.rpartition(", ")
    return before + comma + digest[:_DIGITS]


def _said(nbytes: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def same_as(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Check:
    """Whether a worker of this machine would compute what the master's run does.

    Args:
        theirs, ours: fingerprints of the master's run and of the run that was named here.
    """
    unlike = [key for key in ours if key != "device" and key in theirs and theirs[key] != ours[key]]
    if not unlike:
        return Check("same run", "ok", "data, model and torch are the same here as the master's: a worker may join")
    told = "; ".join(f"{key} is {_short(theirs[key])} there and {_short(ours[key])} here" for key in unlike)
    mend = "Name the master's configuration with --config; then compare the data, the task's file and torch's version"
    return Check("same run", "problem", f"a worker would not be let in: {told}. {mend}")
