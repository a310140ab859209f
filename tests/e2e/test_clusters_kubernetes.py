"""examples/clusters/kubernetes.yaml: valid, of one piece, and its pods run, are preempted and started again.

A pod's containers run as processes here, with directories in place of its volumes; the job's rules about exit codes are
read as Kubernetes reads them.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cluster_site import CLUSTERS, SOAK, Site, settings

from pgczmq.config import RunConfig, loads
from pgczmq.errors import AuthenticationFailed, ConfigError, JoinRefused

OLDEST = "1.33.0"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((CLUSTERS / "kubernetes.yaml").read_text()))
JOBS = {found["metadata"]["name"]: found["spec"] for found in DOCUMENTS if found["kind"] == "Job"}
MASTER, WORKER = JOBS["pgc-master"], JOBS["pgc-worker"]


def only(kind: str) -> dict[str, Any]:
    (found,) = (document for document in DOCUMENTS if document["kind"] == kind)
    return found


def run_config() -> RunConfig:
    return loads(only("ConfigMap")["data"]["run.toml"])


def rule_for(job: dict[str, Any], code: int) -> str:
    """What becomes of a pod with an exit code: the first rule that names it; Count where there is none."""
    rules = [rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    return next((rule["action"] for rule in rules if code in rule["onExitCodes"]["values"]), "Count")


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_every_part_is_what_kubernetes_takes(version: str) -> None:
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_parts_fit_each_other() -> None:
    config = run_config()
    assert config.workers == WORKER["completions"] == WORKER["parallelism"]
    assert [port["port"] for port in only("Service")["spec"]["ports"]] == [
        config.net.port + place for place in range(4)
    ]
    assert only("Service")["spec"]["selector"] == MASTER["template"]["metadata"]["labels"]
    (container,) = WORKER["template"]["spec"]["containers"]
    assert str(config.threads) == container["resources"]["limits"]["cpu"]
    for job in JOBS.values():
        pod = job["template"]["spec"]
        (name,) = (container["name"] for container in pod["containers"])
        rules = [rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
        assert {rule["containerName"] for rule in rules} == {name}
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_what_would_be_wrong_again_is_not_started_again() -> None:
    assert rule_for(MASTER, ConfigError.exit_code) == "FailJob"
    for error in (ConfigError, JoinRefused, AuthenticationFailed):
        assert rule_for(WORKER, error.exit_code) == "FailIndex"
    assert {rule_for(job, 70) for job in JOBS.values()} == {"Count"}


class Pods:
    """Runs pods of the two jobs; containers see ``site.directory`` in place of /."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._started = 0
        (site.directory / "config").mkdir()
        (site.directory / "config" / "run.toml").write_text(only("ConfigMap")["data"]["run.toml"])
        made = site.start("keygen", ["pgc", "keygen", "pgc-keys", "--master", f"tcp://127.0.0.1:{site.port}"])
        assert site.end_of(made, "keygen") == 0
        secret = site.directory / "secret"
        secret.mkdir()
        for file in (site.directory / "pgc-keys").iterdir():
            (secret / file.name).write_bytes(file.read_bytes())
            (secret / file.name).chmod(0o440)  # as Kubernetes has them for a pod with an fsGroup

    def start(self, name: str, job: dict[str, Any], *more: str, **extra: str) -> "subprocess.Popen[bytes]":
        """A pod with keys of its own; its one container is what is returned."""
        self._started += 1
        keys = f"/keys-{self._started}"
        (self.site.directory / keys[1:]).mkdir()
        pod = job["template"]["spec"]
        (init,), (container,) = pod["initContainers"], pod["containers"]
        assert self.site.end_of(self.site.start(name, self._here(init["command"], keys)), name) == 0
        env = {entry["name"]: self._here([entry["value"]], keys)[0] for entry in container.get("env", ())}
        return self.site.start(name, [*self._here(container["command"], keys), *more], extra=env | extra)

    def _here(self, words: list[str], keys: str) -> list[str]:
        root = self.site.directory
        mapped = {"/secret": f"{root}/secret", "/keys": f"{root}{keys}", "/config": f"{root}/config"}
        for inside, outside in mapped.items():
            words = [word.replace(inside, outside) for word in words]
        return words

    def master(self, steps: int) -> "subprocess.Popen[bytes]":
        changed = (
            f"steps={steps}",
            f"net.port={self.site.port}",
            f"net.keys={self.site.directory}/keys-{self._started + 1}",
        )
        return self.start("master", MASTER, *settings(*SOAK, *changed))

    def worker(self, index: int) -> "subprocess.Popen[bytes]":
        return self.start(f"worker-{index}", WORKER, JOB_COMPLETION_INDEX=str(index))


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    site = Site(tmp_path)
    yield Pods(site)
    site.close()


def test_preempted_pods_are_started_again_and_the_run_comes_to_its_end(pods: Pods) -> None:
    name, count = run_config().name, run_config().workers
    site = pods.site
    master = pods.master(steps=1_000_000)
    workers = [pods.worker(index) for index in range(count)]
    site.until(lambda: site.steps(name) > 20)

    workers[0].send_signal(signal.SIGTERM)
    assert rule_for(WORKER, site.end_of(workers[0], "worker-0")) == "Ignore"
    workers[0], before = pods.worker(0), site.steps(name)
    site.until(lambda: site.steps(name) > before + 20)

    master.send_signal(signal.SIGTERM)
    assert rule_for(MASTER, site.end_of(master, "master")) == "Ignore"
    assert {rule_for(WORKER, site.end_of(worker, f"worker-{index}")) for index, worker in enumerate(workers)} == {
        "Ignore"
    }
    done = site.steps(name)

    workers = [pods.worker(index) for index in range(count)]
    master = pods.master(steps=done + 20)
    codes = [site.end_of(worker, f"worker-{index}") for index, worker in enumerate(workers)]
    assert (site.end_of(master, "master"), codes) == (0, [0] * count), site.log("master")
    assert site.steps(name) == done + 20
    assert all(
        f"worker number {index}, from JOB_COMPLETION_INDEX" in site.log(f"worker-{index}") for index in range(count)
    )
