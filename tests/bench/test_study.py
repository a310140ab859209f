"""Many runs as one: against single runs, and broken off in the middle."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pgczmq import config
from pgczmq.app import simulate
from pgczmq.bench import compare, study, summary
from pgczmq.bench.side_by_side import each
from pgczmq.bench.study import Case, Spread
from pgczmq.bench.tally import Goal, Row, Tally
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError, PgcError
from pgczmq.runlog import StepRecord

BASE = config.parse(
    {
        "workers": 6,
        "steps": 30,
        "eval": {"every": 0},
        "delay": {"model": "exponential", "mean": 1.0},
        "task": {"name": "linear-regression", "batch_size": 10},
    }
)


def grid(engine: study.Engine = "timing", *, seeds: int = 2) -> list[Case]:
    made = compare.grid(BASE, ["dgd", "is-sgd"], [1, 2], seeds=seeds, engine=engine, goal=Goal(0.5))
    return list(made.cases)


def rows(cases: list[Case], tmp_path: Path) -> list[Row]:
    found = {case.key: row for case, row in study.run(cases, part=tmp_path / "part", root=tmp_path)}
    return [found[case.key] for case in cases]


def test_a_study_is_its_single_runs(tmp_path: Path) -> None:
    cases = grid("sim", seeds=1)
    for case, row in zip(cases, rows(cases, tmp_path), strict=True):
        seen: list[StepRecord] = []
        simulate.observe(
            case.config,
            model=simulate.model_of(case.config),
            sink=lambda record, seen=seen: seen.append(record) if isinstance(record, StepRecord) else None,  # type: ignore[misc]
        )
        assert row.seconds == pytest.approx(seen[-1].applied_at)
        assert row.loss == pytest.approx(sum(step.loss for step in seen[-25:]) / 25)
        assert (row.label, row.seed, row.steps) == (case.label, case.config.seed, 30)


def test_a_real_run_has_the_same_figures(tmp_path: Path) -> None:
    quick = BASE.model_copy(update={"workers": 2, "steps": 5, "delay": config.parse({}).delay})
    case = Case("dgd", _with_scheme(quick, "dgd"), "local", Goal())
    (row,) = rows([case], tmp_path)
    (directory,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert row.steps == 5 and json.loads((directory / "result.json").read_text())["steps"] == 5
    assert row.spent.samples == row.spent.computation * 2 == 5 * 2 * 10


def test_what_is_finished_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = grid()
    going = study.run(cases, part=tmp_path / "part", root=tmp_path)
    first = {case.key: row for case, row in (next(going) for _ in range(3))}
    going.close()  # as Ctrl+C would
    with (tmp_path / "part").open("a") as file:
        file.write('{"key": "half-writ')
    asked: list[Case] = []

    def some(function: object, wanted: list[Case], *, task: str) -> object:
        asked.extend(wanted)
        return each(study.simulated, wanted, task=task)

    monkeypatch.setattr(study, "each", some)
    found = {case.key: row for case, row in study.run(cases, part=tmp_path / "part", root=tmp_path)}
    assert len(found) == len(cases) and len(asked) == len(cases) - 3
    assert all(found[key] == row for key, row in first.items())
    assert not {case.key for case in asked} & set(first)


def test_another_studys_runs_are_not_taken_over(tmp_path: Path) -> None:
    rows(grid()[:2], tmp_path)
    with pytest.raises(ConfigError, match="finished runs of another study"):
        rows(grid()[2:4], tmp_path)
    for text in ("anything\n", "[1]\n", "{}\n"):
        (tmp_path / "part").write_text(text)
        with pytest.raises(ConfigError, match="does not hold finished runs"):
            rows(grid()[:2], tmp_path)


def test_every_setting_counts_for_what_a_run_is() -> None:
    case = grid()[0]
    others = [
        replace(case, label="another"),
        replace(case, engine="sim"),
        replace(case, goal=Goal(0.4)),
        replace(case, config=case.config.model_copy(update={"steps": 31})),
    ]
    assert len({one.key for one in [case, *others]}) == 5


def test_a_trace_with_other_contents_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "a-load100.csv"
    traced = BASE.model_copy(update={"delay": config.parse({"delay": {"model": "trace", "file": str(file)}}).delay})
    keys = set()
    for seconds in ("1.0", "2.0"):
        file.write_text(f"round,w0\n0,{seconds}\n")
        keys.add(Case("", traced, "timing", Goal()).key)
    assert len(keys) == 2


def _double(number: int) -> int:
    if number == 3:
        raise ConfigError("three is too many")
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_side_by_side_gives_results_errors_and_deaths() -> None:
    assert sorted(each(_double, [0, 1, 2])) == [(0, 0), (1, 2), (2, 4)]
    with pytest.raises(ConfigError, match="three is too many"):
        list(each(_double, [3]))
    with pytest.raises(PgcError, match="was killed"):
        list(each(_double, [4]))


def test_a_grid_has_dgd_once_and_says_what_cannot_be() -> None:
    made = compare.grid(BASE, ["dgd", "gc-fr", "pgc-cr"], [1, 3], seeds=2, engine="timing", goal=Goal())
    labels = [case.label for case in made.cases]
    assert labels == ["dgd"] * 2 + ["gc-fr s=1"] * 2 + ["pgc-cr s=1"] * 2 + ["pgc-cr s=3"] * 2
    assert [case.config.seed for case in made.cases[:2]] == [1, 2]
    ((label, reason),) = made.left_out
    assert label == "gc-fr s=3" and "Nearest valid worker counts" in reason


def test_a_grid_takes_over_what_all_schemes_share_and_nothing_else() -> None:
    base = config.parse({"workers": 6, "scheme": {"name": "gc-fr", "k": 4, "load": 3, "on_new_step": "abandon"}})
    made = compare.grid(base, ["pgc-cr"], [1], seeds=1, engine="timing", goal=Goal())
    scheme = made.cases[0].config.scheme
    assert (scheme.name, scheme.k, scheme.load, scheme.on_new_step) == ("pgc-cr", None, None, "abandon")
    assert set(made.ignored) == {"scheme.k", "scheme.load"} and made.base.scheme.load is None


def test_what_is_named_twice_runs_once() -> None:
    made = compare.grid(BASE, ["dgd", "pgc-cr", "dgd"], [1, 1], seeds=1, engine="timing", goal=Goal())
    assert [case.label for case in made.cases] == ["dgd", "pgc-cr s=1"]


@pytest.mark.parametrize(("names", "text"), [(["dgdd"], "there is no scheme dgdd"), (["gc-fr"], "none of these runs")])
def test_a_grid_of_nothing_is_an_error(names: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        compare.grid(BASE, names, [3], seeds=1, engine="timing", goal=Goal())


def test_summaries_are_medians_and_dgd_is_the_reference(tmp_path: Path) -> None:
    made = summary.summaries(_rows({"dgd": [4.0, 2.0, 3.0], "is-sgd s=1": [1.0, 2.0, 6.0]}))
    assert [one.label for one in made] == ["dgd", "is-sgd s=1"]
    assert made[1].figures["seconds_per_step"] == Spread(2.0, 1.0, 6.0, 3)
    assert made[0].relative == Spread(1.0, 1.0, 1.0, 3)  # seed by seed
    assert made[1].relative == Spread(1.0, 0.25, 2.0, 3)
    assert "target_step" not in made[1].figures


def test_without_dgd_nothing_is_relative() -> None:
    assert summary.summaries(_rows({"is-sgd s=1": [1.0]}))[0].relative is None


def _rows(seconds: dict[str, list[float]]) -> list[Row]:
    tally = Tally(BASE, Goal())
    row = tally.row("", diverged=False)
    return [
        replace(row, label=label, seed=seed, seconds_per_step=value)
        for label, values in seconds.items()
        for seed, value in enumerate(values)
    ]


def _with_scheme(base: RunConfig, name: str) -> RunConfig:
    return config.parse(base.model_dump(exclude_unset=True) | {"scheme": {"name": name}})
