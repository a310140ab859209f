"""examples/clusters/slurm.sbatch, whole lives of a job, with programs that stand in for Slurm's.

Slurm numbers tasks and passes signals on; so do these. examples/clusters/README.md tells what was tried on Slurm
itself.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_site import CLUSTERS, SOAK, Site, settings
from conftest import BIN

WORKERS = 3
SRUN = f"""#!/usr/bin/env bash
while [ "$1" != pgc-worker ]; do shift; done
for number in {{0..{WORKERS - 1}}}; do
    SLURM_PROCID=$number SLURM_STEP_NUM_TASKS={WORKERS} "$@" &
    tasks+=($!)
done
echo "${{tasks[@]}}" >tasks
trap 'kill -TERM "${{tasks[@]}}"' TERM
worst=0
for task in "${{tasks[@]}}"; do
    while kill -0 "$task" 2>/dev/null; do wait "$task"; done
    wait "$task"; code=$?
    if [ "$code" -gt "$worst" ]; then worst=$code; fi
done
exit "$worst"
"""
STAND_INS = {
    "srun": SRUN,
    "scontrol": '#!/bin/sh\necho "$*" >>scontrol.said\n',
    "hostname": "#!/bin/sh\necho 127.0.0.1\n",
}


class Slurm:
    """One job, which is started again and again as Slurm does when it is requeued."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.number = (site.port - 12_000) // 4  # the script makes its port of it
        self.run = f"slurm-{self.number}"
        self.keys = site.directory / f"keys-{self.number}"
        self.programs = site.directory / "bin"
        self.programs.mkdir()
        for name, text in STAND_INS.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def start(self, steps: int) -> "subprocess.Popen[bytes]":
        extra = {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_NTASKS": str(WORKERS),
            "PATH": f"{self.programs}:{BIN}:{os.environ['PATH']}",
        }
        script = str(CLUSTERS / "slurm.sbatch")
        return self.site.start("job", ["bash", script, *settings(*SOAK, f"steps={steps}")], extra=extra)

    def end_of(self, job: "subprocess.Popen[bytes]") -> int:
        return self.site.end_of(job, "job")

    def was_requeued(self) -> bool:
        said = self.site.directory / "scontrol.said"
        return said.exists() and said.read_text() == f"requeue {self.number}\n"

    def until_steps(self, count: int) -> None:
        self.site.until(lambda: self.site.steps(self.run) > count)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    site = Site(tmp_path)
    yield Slurm(site)
    site.close()


def test_near_its_time_limit_a_job_requeues_itself_and_goes_on_from_where_it_was(slurm: Slurm) -> None:
    first = slurm.start(steps=1_000_000)
    slurm.until_steps(20)
    first.send_signal(signal.SIGUSR1)
    assert slurm.end_of(first) == 75, slurm.site.log("job")
    assert slurm.was_requeued() and slurm.keys.is_dir()
    done = slurm.site.steps(slurm.run)

    assert slurm.end_of(slurm.start(steps=done + 20)) == 0, slurm.site.log("job")
    assert slurm.site.steps(slurm.run) == done + 20
    assert f"resumed from step {done}" in slurm.site.log("job")
    assert not slurm.keys.exists()


def test_a_job_that_is_ended_is_not_requeued(slurm: Slurm) -> None:
    job = slurm.start(steps=1_000_000)
    slurm.until_steps(20)
    for task in (slurm.site.directory / "tasks").read_text().split():
        os.kill(int(task), signal.SIGTERM)
    job.send_signal(signal.SIGTERM)
    assert slurm.end_of(job) == 75, slurm.site.log("job")
    assert not slurm.was_requeued()
    assert list((slurm.site.directory / "runs" / slurm.run / "checkpoints").glob("step_*"))


def test_what_cannot_run_ends_the_job_with_its_code(slurm: Slurm) -> None:
    job = slurm.start(steps=-1)
    assert slurm.end_of(job) == 2
    assert not slurm.was_requeued() and not slurm.keys.exists()
