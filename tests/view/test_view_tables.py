import io
import math

from made_up_run import result
from rich.console import Console, RenderableType

from pgczmq.view import explain_view
from pgczmq.view.tables import comparison, result_table, seconds_per_step


def text(renderable: RenderableType, width: int = 100) -> list[list[str]]:
    """The cells of every line of a table, borders taken off."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(renderable)
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.strip("│┃").split("┃" if "┃" in line else "│")] for line in lines]


def test_a_comparison() -> None:
    wild = result(scheme="pgc-cr-naive", diverged=True, loss=math.nan, accuracy=None, steps=0, seconds=1.5)
    rows = text(comparison([result(), wild]))
    assert rows[1] == ["scheme", "s", "steps", "seconds", "s/step", "loss", "accuracy", "late", "diverged"]
    assert rows[3] == ["pgc-cr", "1", "100", "26.00", "0.26", "0.125", "97.2 %", "3.1 %", "no"]
    assert rows[4] == ["pgc-cr-naive", "1", "0", "1.50", "-", "nan", "-", "3.1 %", "yes"]
    assert all(len("│".join(row)) <= 80 for row in text(comparison([result()]), width=80))


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


def test_foreign_text_is_not_markup() -> None:
    rows = text(result_table(result(run="[/tag]", reason="[bold")))
    assert ["run", "[/tag]"] in rows
    assert ["ended", "[bold (exit code 0)"] in rows
    assert text(comparison([result(scheme="own:[/x]")]))[3][0] == "own:[/x]"


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
