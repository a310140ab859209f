"""What ``pgc doctor`` says of this machine for a run, before it."""

import socket

import pytest

from pgczmq.app import fitness
from pgczmq.app.doctor import examine
from pgczmq.app.fitness import Built
from pgczmq.config import load


def config(*settings):
    return load(settings=settings, environment={})


def by_name(*settings):
    return {check.name: check for check in examine(config("task.name=soak", "net.port=0", *settings), None)}


def test_a_run_that_works_has_neither_problems_nor_warnings():
    found = by_name("workers=2", "scheme.name=dgd")
    del found["clock"]  # a machine that is busy with other tests may oversleep
    assert {check.verdict for check in found.values()} == {"ok"}
    assert "a step closes with 2" in found["run"].text and "1,000 parameters" in found["task"].text


def test_a_scheme_that_cannot_be_is_a_problem():
    assert "Nearest valid worker counts" in by_name("workers=3", "scheme.name=gc-fr")["run"].text


def test_more_threads_than_cores_by_the_users_own_doing_are_a_warning():
    assert fitness.threads(config("workers=4000")).verdict == "ok"
    many = fitness.threads(config("workers=4000", "threads=2"))
    assert many.verdict == "warning" and "Leave threads out" in many.text


def test_a_task_is_told_from_others_by_its_fingerprint():
    checks, built = fitness.task(config("task.name=linear-regression", "workers=4", "seed=1"))
    again, _ = fitness.task(config("task.name=linear-regression", "workers=4", "seed=1"))
    other, _ = fitness.task(config("task.name=linear-regression", "workers=4", "seed=2"))
    assert built is not None and (built.parameters, built.minibatch) == (21, 21 * 21 * 4)
    assert checks == again and checks[1].text != other[1].text and "on every machine" in checks[1].text


def test_a_task_that_does_not_work_is_a_problem_in_its_own_words():
    checks, built = fitness.task(config("task.name=nowhere:task"))
    assert built is None and checks[0].verdict == "problem" and "cannot import nowhere" in checks[0].text


TORN = """
import torch
from pgczmq import Task

class Torn(list):
    def __getitem__(self, index):
        if index == 9:
            raise OSError("sample 9 is torn")
        return torch.ones(2), 0

def task():
    return Task(model=lambda: torch.nn.Linear(2, 2), train=Torn(range(400)))
"""


def test_data_that_cannot_be_read_are_a_problem_with_their_place(tmp_path, monkeypatch):
    (tmp_path / "torn.py").write_text(TORN)
    monkeypatch.syspath_prepend(tmp_path)
    checks, built = fitness.task(config("task.name=torn:task", "workers=1", "task.batch_size=400"))
    assert built is None and checks[0].verdict == "problem" and "OSError: sample 9 is torn" in checks[0].text


@pytest.mark.parametrize(("available", "verdict"), [(2 * 10**9, "ok"), (10**9, "warning"), (None, "ok")])
def test_memory_is_that_of_all_workers_and_the_master(available, verdict):
    check = fitness.memory(config("workers=6"), Built(10**6, 1000), available)
    assert check.verdict == verdict and "workers=6 takes about 1." in check.text


def test_memory_grows_with_the_parameters():
    assert fitness.memory(config("workers=6"), Built(10**8, 1000), 4 * 10**9).verdict == "warning"


@pytest.mark.parametrize("limit", ["8000", "max"])
@pytest.mark.parametrize(
    ("names", "reclaimable"),
    [
        (("memory.max", "memory.current"), "inactive_file"),
        (("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"),
    ],
)
def test_memory_is_what_a_container_has_not_used_yet(tmp_path, monkeypatch, names, reclaimable, limit):
    machine = fitness.available_memory()
    (tmp_path / names[0]).write_text(f"{limit}\n")
    (tmp_path / names[1]).write_text("5000\n")
    (tmp_path / "memory.stat").write_text(f"anon 4000\n{reclaimable} 700\n")
    monkeypatch.setattr(fitness, "_MEMORY_FILES", ((tmp_path, *names, reclaimable), (tmp_path / "no", *names, "")))
    found = fitness.available_memory()
    assert machine is not None
    assert found == 3700 if limit == "8000" else found > machine / 2


def test_checkpoints_have_to_fit(tmp_path):
    assert fitness.disk(config(), Built(1000), tmp_path / "runs").verdict == "ok"
    full = fitness.disk(config(), Built(10**15), tmp_path / "runs")
    assert full.verdict == "warning" and "checkpoint.keep=3" in full.text


@pytest.mark.parametrize(("limit", "verdict"), [(1024, "ok"), (256, "warning")])
def test_a_master_may_need_more_open_files_than_it_may_have(limit, verdict):
    assert fitness.files(config("workers=64"), limit).verdict == verdict


def test_a_port_that_is_taken_is_named_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        run = config("task.name=soak", f"net.port={min(port, 65532)}")
        found = next(check for check in examine(run, None) if check.name == "ports")
        assert found.verdict == "warning" and str(port) in found.text and "Choose another net.port" in found.text
        its_own = next(check for check in examine(run, f"tcp://127.0.0.1:{min(port, 65532)}") if check.name == "ports")
        assert its_own.verdict == "ok" and "those of the master at tcp://127.0.0.1" in its_own.text


def test_a_device_that_is_not_there_is_a_problem(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = config("task.name=linear-regression", "net.port=0", "device=cuda")
    found = next(check for check in examine(run, None) if check.name == "device")
    assert found.verdict == "problem" and 'Use device = "cpu"' in found.text


def test_a_worker_that_would_compute_something_else_is_told_beforehand():
    theirs = {"data": "100 samples, aa", "model": "m", "torch": "2.9"}
    assert fitness.same_as(theirs, {**theirs, "device": "cpu"}).verdict == "ok"
    check = fitness.same_as(theirs, {**theirs, "data": "100 samples, bb", "device": "cpu"})
    assert check.verdict == "problem" and "data is 100 samples, aa there and 100 samples, bb here" in check.text
