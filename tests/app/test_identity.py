"""Which number a worker takes, in the environments that launchers make.

Those of Slurm, Open MPI, MPICH and torchrun are what these set for real, alone and inside of each other.
"""

import pytest

from pgczmq.app.identity import Identity, identity
from pgczmq.errors import ConfigError

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "6"}
SRUN = {"SLURM_PROCID": "4", "SLURM_NTASKS": "6", "SLURM_STEP_NUM_TASKS": "6", "SLURM_NODEID": "1"}
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4"}
INDEXED = {"JOB_COMPLETION_INDEX": "5"}

NOBODY = Identity(None, "the master")


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, NOBODY),
        (TORCHRUN, Identity(2, "RANK")),
        (SRUN, Identity(4, "SLURM_PROCID")),
        (OPEN_MPI, Identity(3, "OMPI_COMM_WORLD_RANK")),
        (MPICH, Identity(1, "PMI_RANK")),
        (INDEXED, Identity(5, "JOB_COMPLETION_INDEX")),
        ({"RANK": "1"}, Identity(1, "RANK")),
        ({"RANK": "4", **SRUN}, Identity(4, "RANK and SLURM_PROCID")),
        ({"PGC_WORKER_ID": "7", **SRUN}, Identity(7, "PGC_WORKER_ID")),
        ({"RANK": "", **INDEXED}, Identity(5, "JOB_COMPLETION_INDEX")),
    ],
    ids=str,
)
def test_the_launchers_number_is_the_workers(environment: dict[str, str], found: Identity) -> None:
    assert identity(None, environment) == found
    assert identity(9, environment) == Identity(9, "--id")


@pytest.mark.parametrize(
    ("outer", "inner", "number"),
    [
        (SRUN, TORCHRUN, 2),
        (INDEXED, TORCHRUN, 2),
        (OPEN_MPI, TORCHRUN, 2),
        (SRUN | {"SLURM_PROCID": "0"}, OPEN_MPI, 3),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, MPICH, 1),
        (INDEXED, OPEN_MPI, 3),
    ],
)
def test_of_launchers_that_start_each_other_the_innermost_counts(
    outer: dict[str, str], inner: dict[str, str], number: int
) -> None:
    assert identity(None, outer | inner).number == number


@pytest.mark.parametrize(
    "environment",
    [
        BATCH,
        SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMI_RANK": "0", "PMI_SIZE": "1"},
        TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"},
        OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    ],
    ids=["batch script", "srun --pty", "torchrun of one", "mpirun of one"],
)
def test_a_process_that_was_started_alone_has_no_number(environment: dict[str, str]) -> None:
    """Workers that are started by hand from there would all be number 0."""
    assert identity(None, environment) == NOBODY


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"RANK": "3", **INDEXED}, "RANK=3 and JOB_COMPLETION_INDEX=5 are set"),
        ({"RANK": "3", **SRUN}, "RANK=3 and SLURM_PROCID=4 are set"),
        ({"RANK": "0", **OPEN_MPI}, "RANK=0 and OMPI_COMM_WORLD_RANK=3 are set"),
        ({"RANK": "-1"}, "RANK must be a worker's number, 0 or more: got '-1'"),
        ({"PGC_WORKER_ID": "vm-3"}, "PGC_WORKER_ID must be a worker's number, 0 or more: got 'vm-3'"),
        ({"PGC_WORKER_ID": "²"}, "PGC_WORKER_ID must be"),
    ],
    ids=str,
)
def test_a_conflict_is_an_error_that_names_both(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        identity(None, environment)
    assert sentence in str(error.value)
    assert "--id" in str(error.value)
