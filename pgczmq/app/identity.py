"""A worker's number: from its user, else from what launched it, else from the master.

A launcher numbers the processes that it starts, and says so in their environment. One may start another: with
``srun torchrun pgc-worker`` Slurm numbers machines and torchrun workers. So the innermost launcher counts where it is
known which that is, and of two numbers that may both be the worker's none is preferred.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgczmq.errors import ConfigError


@dataclass(frozen=True)
class Identity:
    """A worker's number, and where it was found.

    Args:
        number: None where the master is to choose.
        source: names of variables, or words for the log.
    """

    number: int | None
    source: str


# Variables with a process's number, and those that say how many have one.
_OWN = {"PGC_WORKER_ID": ""}
_TORCH = {"RANK": "WORLD_SIZE"}
_MPI = {"OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}  # Open MPI; MPICH, Intel MPI
_MACHINES = {"SLURM_PROCID": "SLURM_STEP_NUM_TASKS", "JOB_COMPLETION_INDEX": ""}
_STARTED_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # RANK alone may be set by anybody


def identity(given: int | None, environment: Mapping[str, str]) -> Identity:
    """The worker's number: ``--id``, else PGC_WORKER_ID, else the launcher's, else the master's choice.

    torchrun is inside of every other launcher, MPI inside of Slurm and Kubernetes. RANK without torchrun must be what
    the others say.

    Raises:
        ConfigError: a variable is not a number, or two of them disagree.
    """
    if given is not None:
        return Identity(given, "--id")
    for launchers in _innermost_first(environment):
        found = _numbers(launchers, environment)
        if len(set(found.values())) > 1:
            listed = " and ".join(f"{name}={number}" for name, number in found.items())
            raise ConfigError(f"a worker has one number, but {listed} are set here. Give --id or PGC_WORKER_ID.")
        if found:
            return Identity(next(iter(found.values())), " and ".join(found))
    return Identity(None, "the master")


def _innermost_first(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    yield _OWN
    if environment.get(_STARTED_BY_TORCHRUN):
        yield _TORCH
    if _numbers(_MPI, environment):
        yield _TORCH | _MPI
    yield _TORCH | _MACHINES


def _numbers(launchers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, int]:
    """What those variables say that are set.

    Raises:
        ConfigError: one is not a number.
    """
    found = {}
    for name, size in launchers.items():
        text = environment.get(name, "")
        if not text or _is_alone(name, environment.get(size, "")):
            continue
        if not (text.isascii() and text.isdecimal()):
            raise ConfigError(f"{name} must be a worker's number, 0 or more: got {text!r}. Give --id instead.")
        found[name] = int(text)
    return found


def _is_alone(name: str, processes: str) -> bool:
    """Whether a launcher has started one process only: it calls it 0, though a user may start several workers in it.

    Slurm's batch script is alone as well: it has a number, and does not say of how many.
    """
    return processes == "1" or (name == "SLURM_PROCID" and not processes)
