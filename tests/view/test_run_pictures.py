"""Pictures of runs that have been: what is in them, and that nothing odd makes them fail or warn."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from left_runs import done, left_run, made_up
from made_up_run import step_record
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from pgczmq import rundirs
from pgczmq.runlog import EventRecord, Record
from pgczmq.view.pictures.heat import COLOURS, shares
from pgczmq.view.pictures.labels import differing, labels, looks_of
from pgczmq.view.pictures.paper import content, style
from pgczmq.view.pictures.past import LATE, MISSING, USED
from pgczmq.view.pictures.run_panels import Shown, panels
from pgczmq.view.pictures.run_plots import figure_of, heat_figure, panel_figure, shown


def show(*directories: Path) -> list[Shown]:
    return shown([rundirs.look(directory) for directory in directories])


def titles(runs: list[Shown]) -> list[str]:
    return [panel.title for panel in panels(runs)]


def axes_of(figure: Figure, title: str) -> Axes:
    [found] = [axes for axes in figure.axes if axes.get_title(loc="left") == title]
    return found


def steps_only(**fields: Any) -> list[Record]:
    return [replace(step_record(step), **fields) for step in range(20)]


# ---------------------------------------------------------------- labels


def test_labels_tell_what_differs_and_no_more(tmp_path: Path) -> None:
    one = left_run(tmp_path / "one", [], more="[optimizer]\nlr = 0.1\n")
    two = left_run(tmp_path / "two", [], stragglers=2, more="[optimizer]\nlr = 0.2\n")
    three = left_run(tmp_path / "three", [], scheme="dgd", stragglers=0)
    runs = [rundirs.look(path) for path in (one, two, three)]
    assert labels(runs) == ["pgc-cr s=1", "pgc-cr s=2", "dgd"]
    assert labels(runs[:1]) == ["pgc-cr"]
    assert differing(runs[:2]) == ["name", "scheme.stragglers", "optimizer.lr"]


def test_labels_name_a_setting_where_runs_are_alike_else_and_the_directory_where_all_is_alike(tmp_path: Path) -> None:
    paths = [left_run(tmp_path / str(place), [], more=f"[optimizer]\nlr = 0.{place // 2}\n") for place in range(2, 5)]
    found = labels([rundirs.look(path) for path in paths])
    assert found == ["pgc-cr lr=0.1 2", "pgc-cr lr=0.1 3", "pgc-cr lr=0.2"]


def test_simulated_and_real_runs_are_told_apart(tmp_path: Path) -> None:
    real, simulated = left_run(tmp_path / "a", end=done()), left_run(tmp_path / "b", end=done(virtual_seconds=1.0))
    runs = show(real, simulated)
    assert [one.label for one in runs] == ["pgc-cr real", "pgc-cr simulated"]
    figure = figure_of(runs)
    assert axes_of(figure, "loss over time").get_xlabel() == "time (virtual if simulated), s"
    assert axes_of(figure_of(show(simulated)), "loss over time").get_xlabel() == "virtual time, s"


def test_runs_of_one_scheme_have_colours_of_their_own() -> None:
    names = [f"pgc-cr lr={number}" for number in range(5)]
    assert len({colour for colour, _ in looks_of(names)}) == 5
    assert {dashes for _, dashes in looks_of(names)} == {"-"}
    assert len(looks_of([f"pgc-cr seed={number}" for number in range(30)])) == 30


# ---------------------------------------------------------------- panels


def test_only_what_varies_has_a_panel(tmp_path: Path) -> None:
    always = ["loss over steps", "loss over time", "accuracy, held out", "time per step", "age of the gradients used"]
    assert titles(show(left_run(tmp_path / "all", end=done()))) == always
    fresh = steps_only(loss=math.nan, ages=((0,),) * 4, recovered=0.75)
    assert titles(show(left_run(tmp_path / "timing", fresh))) == ["time per step", "partitions recovered"]
    adaptive = [replace(step_record(step), k=1 + step // 10, batch_fraction=1 / (1 + step)) for step in range(20)]
    assert titles(show(left_run(tmp_path / "adaptive", adaptive)))[-2:] == [
        "arrivals that close a step: k",
        "part of a minibatch evaluated",
    ]


def test_losses_lie_where_they_were_measured(tmp_path: Path) -> None:
    axes = axes_of(figure_of(show(left_run(tmp_path / "try", end=done()))), "loss over steps")
    held_out = next(line for line in axes.lines if line.get_label() == "held out")
    assert np.asarray(held_out.get_xdata()).tolist() == [20, 40]
    assert np.asarray(held_out.get_ydata()).tolist() == pytest.approx([1 / 20, 1 / 40])
    training = next(line for line in axes.lines if str(line.get_label()).startswith("training"))
    assert np.asarray(training.get_xdata())[[0, -1]].tolist() == [1, 40]


def test_where_a_run_diverged_or_went_on_is_marked(tmp_path: Path) -> None:
    resumed = EventRecord(3.0, "resumed", "from step 20; 0 recorded steps are done again", step=20)
    directory = left_run(tmp_path / "try", [*made_up(), resumed], end=done(diverged=True))
    figure = figure_of(show(directory))
    [legend] = [axes_of(figure, "loss over steps").get_legend()]
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["training", "held out", "diverged", "resumed"]
    assert figure.get_suptitle() == "try: digits-cnn, pgc-cr, 4 workers, 40 steps, diverged"


# ---------------------------------------------------------------- who answered when


def test_the_map_tells_late_and_missing_from_answers(tmp_path: Path) -> None:
    [one] = show(left_run(tmp_path / "try"))
    map_axes = axes_of(heat_figure(one), "who answered when")
    [image] = map_axes.images
    cells = np.asarray(image.get_array())
    assert cells.shape[:2] == (4, 40)
    assert cells[3, 1].tolist() == pytest.approx(to_rgb(COLOURS[MISSING]))
    assert cells[3, 3].tolist() == pytest.approx(to_rgb(COLOURS[LATE]))
    assert cells[0, 0].tolist() != cells[3, 0].tolist(), "slow is another colour than fast"
    assert shares(one.past)[3].tolist() == [0.25, 0.25, 0, 0.5]
    assert shares(one.past)[0, USED] == 1


def test_long_runs_are_binned_to_the_median_or_to_what_most_steps_were(tmp_path: Path) -> None:
    records: list[Record] = [step_record(step, 2, missing=[1] if step % 3 else []) for step in range(1200)]
    [one] = show(left_run(tmp_path / "long", records))
    map_axes = axes_of(heat_figure(one), "who answered when")
    cells = np.asarray(map_axes.images[0].get_array())
    assert cells.shape[:2] == (2, 400)
    assert cells[1, 7].tolist() == pytest.approx(to_rgb(COLOURS[MISSING]))
    assert map_axes.get_title(loc="right") == "a cell is 3 steps: their median, or what most of them were"


# ---------------------------------------------------------------- files


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    directory = left_run(tmp_path / "try", end=done())
    one, two = (heat_figure(*show(directory)) for _ in range(2))
    assert content(one, ".svg") == content(two, ".svg")
    one, two = (panel_figure(panels(show(directory))[0], show(directory)) for _ in range(2))
    assert content(one, ".png") == content(two, ".png")


ODD: dict[str, list[Record]] = {
    "one step": [step_record(0)],
    "nobody": steps_only(arrived=(), arrived_at=(), used=(), ages=(), weights=(), missing=(0, 1, 2, 3)),
    "no time": steps_only(arrived_at=(0.0,) * 4, published_at=0.0, closed_at=0.0, applied_at=0.0),
    "infinite": steps_only(loss=math.inf),
    "exploding": [replace(step_record(step), loss=10.0**step) for step in range(40)],
    "zero $x_{1}$": steps_only(loss=0.0),
}


def test_odd_runs_can_be_drawn(tmp_path: Path) -> None:
    """One by one, and all in one picture; nothing of it warns."""
    directories = [left_run(tmp_path / name, records) for name, records in ODD.items()]
    for directory in directories:
        with style():
            figure_of(show(directory)).draw_without_rendering()
    assert content(figure_of(show(*directories)), ".svg").startswith(b"<?xml")


def test_updates_of_asynchronous_runs_have_no_map(tmp_path: Path) -> None:
    alone = {"arrived": (0,), "arrived_at": (2.0,), "used": (0,), "ages": ((0,),), "weights": (0.25,), "k": 1}
    figure = figure_of(show(left_run(tmp_path / "try", steps_only(**alone), scheme="async")))
    assert "who answered when" not in [axes.get_title(loc="left") for axes in figure.axes]
