"""The bench of the simulator measures what its rows say. How fast it is here, no test asks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pgczmq.bench import simulator as bench
from pgczmq.cli import races as command
from pgczmq.core.schemes import SCHEMES
from pgczmq.train.gradient import PartitionGradient


def test_a_row_names_its_run_and_its_numbers_agree() -> None:
    (row,) = bench.speeds(("gc-cr",), ((6, 2, 5),))
    assert (row.scheme, row.workers, row.stragglers, row.steps) == ("gc-cr", 6, 2, 5)
    assert row.worker_microseconds * row.workers * row.steps_per_second == pytest.approx(1e6)


def test_every_scheme_can_be_measured_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REPEATS", 1)
    sizes = [(workers, stragglers, 2) for workers, stragglers, _ in bench.SIZES]
    rows = list(bench.speeds(sizes=sizes))
    assert [(row.scheme, row.workers) for row in rows] == [(name, size[0]) for name in SCHEMES for size in sizes]


def test_what_is_asked_for_is_in_the_rows() -> None:
    small, middle, large = bench.speeds(("dgd",), ((12, 3, 1), (64, 1, 1), (256, 1, 1)))
    assert (small.at_least, middle.at_least, large.at_least) == (5000, None, 10_000 / 60)
    (no_demand,) = bench.speeds(("gc-fr",), ((12, 3, 1),))
    assert no_demand.at_least is None


def test_the_cost_of_a_gradient_run_is_over_gradients_of_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: dict[PartitionGradient, Counter[tuple[int, int, float]]] = {}
    evaluate = PartitionGradient.evaluate

    def counting(self: PartitionGradient, step: int, partition: int, batch_fraction: float = 1.0, **more: Any) -> Any:
        evaluated.setdefault(self, Counter())[step, partition, batch_fraction] += 1
        return evaluate(self, step, partition, batch_fraction, **more)

    monkeypatch.setattr(PartitionGradient, "evaluate", counting)
    cost = bench.gradient_cost(steps=bench.TURN, rounds=1)
    of_run, of_gradients, *second_round = evaluated.values()
    assert len(second_round) == 2  # the first one does not count
    assert of_run == of_gradients == second_round[0] == second_round[1]
    assert {step for step, *_ in of_run} == set(range(bench.TURN)) and set(of_run.values()) == {1}
    assert cost.steps == bench.TURN
    assert cost.lowest == cost.ratio == cost.highest == cost.run_seconds / cost.gradient_seconds


def test_the_table_says_what_is_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = bench.Speed("dgd", 12, 3, 10, 4999.0, 16.67, 5000.0)
    fast = bench.Speed("pgc-fr", 12, 3, 10, 5001.0, 16.66, 5000.0)
    free = bench.Speed("gc-fr", 64, 1, 10, 1.0, 15625.0, None)
    monkeypatch.setattr(command, "speeds", lambda: [slow, fast, free])
    monkeypatch.setattr(command, "gradient_cost", lambda: bench.GradientCost(2, 1.2, 1.0, 1.2, 1.1, 1.3))
    command.simulator(tmp_path / "bench.json")
    _, *lines, last = capsys.readouterr().out.splitlines()
    assert ["too slow" in line for line in (*lines, last)] == [True, False, False, True]
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [(row["scheme"], row["workers"], row["steps_per_second"]) for row in rows] == [
        ("dgd", 12, 4999.0),
        ("pgc-fr", 12, 5001.0),
        ("gc-fr", 64, 1.0),
    ]
