"""Workers that launchers start: each has its launcher's number, nobody gave one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_site import SOAK, Site, settings
from conftest import BIN

WORKERS = 3
LAUNCHERS = {
    "torchrun": ([str(BIN / "torchrun"), "--nproc-per-node", str(WORKERS), "--no-python"], "RANK"),
    "mpirun.openmpi": (
        ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(WORKERS)],
        "OMPI_COMM_WORLD_RANK",
    ),
    "mpiexec.hydra": (["mpiexec.hydra", "-np", str(WORKERS)], "PMI_RANK"),
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launchers_numbers_are_the_workers(launcher: str, site: Site) -> None:
    words, source = LAUNCHERS[launcher]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{launcher} is not installed here")
    options = settings(*SOAK, f"workers={WORKERS}", "steps=10", f"net.port={site.port}", "name=run")
    master = site.start("master", ["pgc-master", *options])
    launched = site.start(
        "launched", [*words, str(BIN / "pgc-worker")], extra={"PGC_MASTER": f"tcp://127.0.0.1:{site.port}"}
    )
    assert site.end_of(launched, "launched") == 0, site.log("launched")
    assert site.end_of(master, "master") == 0
    said = site.log("launched")
    assert all(f"worker number {number}, from {source}\n" in said for number in range(WORKERS)), said


def test_numbers_that_disagree_end_a_worker_before_it_joins(site: Site) -> None:
    worker = site.start("worker", ["pgc-worker"], extra={"RANK": "3", "JOB_COMPLETION_INDEX": "1"})
    assert site.end_of(worker, "worker") == 2
    assert "RANK=3 and JOB_COMPLETION_INDEX=1 are set here" in site.log("worker")


def test_a_number_that_the_run_does_not_have_is_named(site: Site) -> None:
    site.start("master", ["pgc-master", *settings(*SOAK, "workers=2", f"net.port={site.port}", "name=run")])
    worker = site.start(
        "worker",
        ["pgc-worker"],
        extra={"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "PGC_MASTER": f"tcp://127.0.0.1:{site.port}"},
    )
    assert site.end_of(worker, "worker") == 71
    assert "worker numbers run from 0 to 1 in this run: got 2" in site.log("worker")
