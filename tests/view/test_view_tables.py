import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

from made_up_run import result
from rich.console import Console, RenderableType

from pgczmq.rundirs import RunDirectory, State
from pgczmq.runlog import Result
from pgczmq.view import explain_view
from pgczmq.view.tables import go_on, go_on_with, listing, result_table, seconds_per_step


def text(renderable: RenderableType, width: int = 100) -> list[list[str]]:
    """The cells of every line of a table, borders taken off."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(renderable)
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.strip("│┃").split("┃" if "┃" in line else "│")] for line in lines]


def listed(name: str = "try", state: State = "done", end: Result | None = None, **other: object) -> RunDirectory:
    settings = {"steps": 200, "task": {"name": "digits-cnn"}, "scheme": {"name": "pgc-cr", "stragglers": 1}}
    fields = {"steps": 100, "loss": 0.125, "resumable": False} | other
    return RunDirectory(Path("runs") / name, name, state, settings=settings, result=end, **fields)  # type: ignore[arg-type]


def lines(runs: Sequence[RunDirectory], width: int = 200) -> list[list[str]]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(listing(runs, width))
    return [re.split(r"  +", line.strip()) for line in console.export_text().splitlines()]


def test_a_listing() -> None:
    runs = [
        listed(end=result()),
        listed("sim", end=result(virtual_seconds=26.0, late_fraction=0.5)),
        listed("now", "running", loss=None),
        listed("wild", "diverged", end=result(diverged=True), loss=math.nan, steps=3),
    ]
    heading, _, *rows = lines(runs)
    assert heading == ["name", "state", "task", "scheme", "s", "steps", "seconds", "s/step", "loss", "accuracy", "late"]
    assert rows[0] == ["try", "done", "digits-cnn", "pgc-cr", "1", "100", "26.00", "0.26", "0.125", "97.2 %", "3.1 %"]
    assert rows[1][6] == "26.00 virtual"
    assert rows[2] == ["now", "running", "digits-cnn", "pgc-cr", "1", "100/200", "-", "-", "-", "-", "-"]
    assert (rows[3][1], rows[3][5], rows[3][8]) == ("diverged", "3", "nan")


def test_metrics_that_are_not_the_same_are_named() -> None:
    runs = [listed(end=result()), listed(end=result(metric="mae", accuracy=0.25)), listed(end=result(accuracy=None))]
    heading, _, *rows = lines(runs)
    assert heading[-2] == "metric"
    assert [row[-2] for row in rows] == ["accuracy 97.2 %", "mae 0.25", "-"]


def test_a_narrow_listing_leaves_out_what_matters_least() -> None:
    heading, _, row = lines([listed(end=result())], width=80)
    assert heading == ["name", "state", "scheme", "s", "steps", "seconds", "loss", "accuracy"]
    assert row[-1] == "97.2 %"


def test_what_can_be_gone_on_with_is_said() -> None:
    assert go_on([listed()]) == ""
    runs = [listed("a", "died", resumable=True), listed("b"), listed("c", "interrupted", resumable=True)]
    assert go_on(runs) == "With a checkpoint, to go on from with --resume PATH: runs/a, runs/c"


def test_a_run_that_has_just_ended_says_how_it_goes_on() -> None:
    assert go_on_with(listed()) == ""
    assert go_on_with(listed("a b", resumable=True)) == "To go on: the same command with --resume 'runs/a b'"


def test_a_name_is_whole_where_other_columns_can_go() -> None:
    name = "digits-cnn-pgc-cr-20261130-101502-again"
    heading, _, *rows = lines([listed(name, end=result())], width=80)
    assert rows[0][0] == name
    assert heading == ["name", "state", "scheme", "steps", "seconds", "loss"]


def test_one_result() -> None:
    rows = {row[0]: row[1] for row in text(result_table(result())) if len(row) == 2}
    assert rows["scheme"] == "pgc-cr, 4 workers, stragglers=1"
    assert rows["steps"] == "100 in 26.00 s, 260 ms a step"
    assert rows["loss"] == "0.125"
    assert rows["accuracy"] == "97.2 %"
    assert rows["late"] == "3.1 % of the messages"
    assert rows["ended"] == "done (exit code 0)"
    assert rows["weights"] == "sha256 " + "ab" * 32
    assert seconds_per_step(result(steps=0)) is None


def test_one_simulated_result_with_another_metric() -> None:
    simulated = result(virtual_seconds=26.0, metric="mae", accuracy=0.25)
    rows = {row[0]: row[1] for row in text(result_table(simulated)) if len(row) == 2}
    assert rows["steps"] == "100 in 26.00 virtual s, 260 ms a step"
    assert rows["mae"] == "0.25"


def test_foreign_text_is_not_markup() -> None:
    rows = text(result_table(result(run="[/tag]", reason="[bold")))
    assert ["run", "[/tag]"] in rows
    assert ["ended", "[bold (exit code 0)"] in rows
    assert ["[/m]", "0.5"] in text(result_table(result(metric="[/m]", accuracy=0.5)))
    assert lines([listed("[/x]")])[2][0] == "[/x]"
    heading, _, row = lines([listed(end=result(metric="m\x1b[31m" + "long" * 50))], width=80)
    assert heading[-1] == "m [31mlonglon…"
    assert row[0] == "try"


EXPLANATION = {
    "scheme": "pgc-cr",
    "workers": 2,
    "stragglers": 1,
    "load": 2,
    "k": 1,
    "policy": "fixed",
    "wait": "k",
    "placement": [[0, 1], [1, 0]],
    "encode": [[1.0, 1.0], [1.0, 0.0]],
    "code": "ones",
    "max_alpha_code": None,
    "ignored": ["scheme.wait"],
    "faults": ["kill: worker 3 at step 10, 5 s"],
    "step": 5,
    "evaluates": [[0], [1]],
    "ages": [[0, 1], [0, 1]],
}
ARRIVALS = {
    "arrived": [1],
    "usable": True,
    "closes_after": 1,
    "weights": [0.0, 0.5],
    "share": [0.5, 0.0],
    "recovered": 0.5,
    "max_alpha": 1.0,
}


def test_an_explanation_without_arrivals() -> None:
    summary, workers, encode = map(text, explain_view.tables(EXPLANATION))
    assert ["a step closes", "at 1 arrival"] in summary
    assert ["ignored", "scheme.wait"] in summary
    assert ["fault", "kill: worker 3 at step 10, 5 s"] in summary
    assert workers[1] == ["worker", "holds", "evaluates at step 5", "ages"]
    assert workers[3:5] == [["0", "0 1", "0", "0 1"], ["1", "1 0", "1", "0 1"]]
    assert ["0", "1", "1"] in encode
    assert ["1", "1", "."] in encode


def test_an_explanation_with_arrivals() -> None:
    summary, workers, partitions, _ = map(text, explain_view.tables(EXPLANATION | ARRIVALS))
    assert ["usable", "yes"] in summary
    assert ["recovered", "50 % of the partitions"] in summary
    assert [row[-1] for row in workers[3:5]] == ["-", "0.5"]
    assert partitions[3:5] == [["0", "0.5", "1"], ["1", "0", "-"]]


def test_arrivals_that_are_too_few_or_more_than_it_takes() -> None:
    few = ARRIVALS | {"usable": False, "closes_after": None, "weights": [0.0, 0.0]}
    summary, *rest = explain_view.tables(EXPLANATION | few)
    assert ["usable", "no: the step stays open"] in text(summary)
    assert len(rest) == 2
    many = ARRIVALS | {"arrived": [1, 0]}
    summary, *_ = explain_view.tables(EXPLANATION | many)
    assert ["usable", "yes; it would have closed after the first 1"] in text(summary)


def test_a_step_that_closes_as_soon_as_it_can() -> None:
    summary, *_ = explain_view.tables(EXPLANATION | {"wait": "usable"})
    assert ["a step closes", "when usable, at the latest at 1 arrival"] in text(summary)


def test_a_step_that_was_not_asked_for_and_a_matrix_that_is_too_large() -> None:
    plain = EXPLANATION | {"workers": 30, "step": None, "evaluates": None, "ages": None}
    _, workers = map(text, explain_view.tables(plain))
    assert workers[1] == ["worker", "holds"]


def test_a_policy_that_decides_is_named() -> None:
    summary, *_ = explain_view.tables(EXPLANATION | {"policy": "adaptive-k"})
    assert ["a step closes", "at 1 arrival at first; then adaptive-k decides"] in text(summary)
