"""What a soak consists of: deeds that a seed decides, a watcher of records, a comparison of losses, a configuration."""

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from pgczmq.bench.torture.machine import free_port, taken_ports
from pgczmq.bench.torture.soak import measure, undisturbed
from pgczmq.bench.torture.soak.cast import Told
from pgczmq.bench.torture.soak.fates import Sample
from pgczmq.bench.torture.soak.measure import Plan, configured, held, left_over, spread
from pgczmq.bench.torture.soak.mischief import Act, Mischief
from pgczmq.bench.torture.soak.troop import Program
from pgczmq.bench.torture.soak.watch import Watch, last_line
from pgczmq.errors import ConfigError


def acts(count: int, seed: int = 1, master_every: float = 60.0) -> list[Act]:
    return list(itertools.islice(Mischief(seed, 12, 3.0, master_every).acts(), count))


def test_a_seed_decides_what_is_done_to_whom_and_when() -> None:
    assert acts(200) == acts(200)
    assert acts(200) != acts(200, seed=2)
    assert [act.at for act in acts(200)] == sorted(act.at for act in acts(200))
    assert {act.worker for act in acts(500)} == set(range(12))


def test_deeds_come_as_often_as_is_asked_for() -> None:
    many = acts(20_000)
    for deed, every in (("kill", 3.0), ("stop", 6.0), ("terminate", 9.0), ("kill master", 60.0)):
        times = [act.at for act in many if act.deed == deed]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert statistics.mean(gaps) == pytest.approx(every, rel=0.2)


def event(kind: str, text: str = "", worker: int | None = None) -> dict[str, Any]:
    return {"at": 1.0, "kind": kind, "text": text, "worker": worker, "step": None}


def written(path: Path, *tables: dict[str, Any], torn: str = "") -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(table) + "\n" for table in tables)
        file.write(torn)


def test_a_watcher_sees_who_is_ready_and_how_far_the_run_is(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.look() == []
    joined = event("joined", "worker 3 joined from host (process 77)", 3)
    written(tmp_path / "events.jsonl", joined, event("ready", "worker 3 is ready", 3), torn='{"at":')
    written(tmp_path / "steps.jsonl", {"step": 0, "applied_at": 1.0}, {"step": 1, "applied_at": 2.0}, torn='{"st')
    assert [(seen.worker, seen.pid) for seen in watch.look()] == [(3, 77)]
    assert (watch.ready, watch.steps, watch.applied_at) == ({3}, 2, 2.0)
    assert watch.look() == []
    written(tmp_path / "events.jsonl", torn='1.0,"kind":"left","text":"","worker":3,"step":null}\n')
    assert watch.look() == []
    assert watch.ready == set()


def test_the_last_line_is_found_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    assert last_line(path) is None
    written(path, *({"step": step, "filling": "x" * 300} for step in range(1000)))
    assert last_line(path) == {"step": 999, "filling": "x" * 300}


def test_a_disturbed_loss_is_compared_with_the_spread_of_undisturbed_ones() -> None:
    calm = [0.10, 0.11, 0.12, 0.13, 0.14]
    assert undisturbed.verdict(0.15, calm) == ""
    assert undisturbed.verdict(0.05, calm) == ""
    assert "ends with a loss of 0.17, over 0.16" in undisturbed.verdict(0.17, calm)
    assert "a run has no loss" in undisturbed.verdict(None, calm)
    assert "a run has no loss" in undisturbed.verdict(0.1, [*calm, None])


def test_what_processes_held_is_told_by_kind() -> None:
    first = [Sample("master", 1, 4.0, 60_000_000, 12), Sample("worker 0", 3, 1.0, 40_000_000, 5)]
    last = [Sample("master", 2, 1.0, 65_000_000, 11), Sample("worker 1", 4, 1.0, 41_000_000, 6)]
    told = Told([*first, Sample("master", 1, 9.0, 70_000_000, 14), *last], first=first, last=last)
    assert held(told) == {
        "master": {
            "memory_start": 60.0,
            "memory_end": 65.0,
            "memory_most": 70.0,
            "files_start": 12,
            "files_end": 11,
            "files_most": 14,
        },
        "worker": {
            "memory_start": 40.0,
            "memory_end": 41.0,
            "memory_most": 41.0,
            "files_start": 5,
            "files_end": 6,
            "files_most": 6,
        },
    }


def test_a_spread_has_a_median_and_a_worst() -> None:
    assert spread([]) == {"count": 0}
    assert spread([3.0, 1.0, 2.0]) == {"count": 3, "median": 2.0, "worst": 3.0}


def test_a_soak_is_a_run_like_any_other(tmp_path: Path) -> None:
    config = configured(Plan(60.0, workers=6, settings=["scheme.stragglers=2", "scheme.load=3"]), tmp_path, 20_000)
    assert (config.workers, config.task.name, config.net.port) == (6, "soak", 20_000)
    assert {fault.kind for fault in config.faults} == {"drop", "duplicate", "delay", "reorder", "corrupt"}
    model = configured(Plan(60.0, task="digits-cnn", settings=["steps=40"]), tmp_path, 20_000)
    assert (model.task.name, model.steps, model.task.args) == ("digits-cnn", 40, {})
    with pytest.raises(ConfigError, match="workers=2"):
        configured(Plan(60.0, workers=2), tmp_path, 20_000)
    with pytest.raises(ConfigError, match=r"got scheme.name=is-gc-cr. Use one of gc-cr, dgd"):
        configured(Plan(60.0, settings=["scheme.name=is-gc-cr"]), tmp_path, 20_000)


def test_what_is_left_over_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "HELPERS_SECONDS", 0.1)
    port = free_port()
    assert left_over(tmp_path, port) == []
    (tmp_path / "runs" / "soak" / ".partial-step_000020").mkdir(parents=True)
    sleeper = Program("master", ["python", "-c", "import time; time.sleep(600)"], tmp_path)
    sleeper.start()
    try:
        found = left_over(tmp_path, port)
    finally:
        sleeper.end(9, "killed")
        life = sleeper.collect(20.0)
    assert life is not None and (life.how, life.code) == ("killed", -9)
    assert len(found) == 2
    assert found[0] == f"process {life.pid} still works in {tmp_path}"
    assert found[1].endswith(".partial-step_000020 was left half-written")
    assert taken_ports(port) == []
