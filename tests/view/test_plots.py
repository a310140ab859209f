import math
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pgczmq.errors import ConfigError
from pgczmq.view.pictures.curves import POINTS, loss_range, spread, time_unit
from pgczmq.view.pictures.looks import COLOURS, looks
from pgczmq.view.pictures.plots import Curve, Group, check_picture, comparison, comparison_figure

SCHEMES = ("dgd", "is-sgd", "gc-fr", "gc-cr", "is-gc-fr", "pgc-fr", "pgc-cr", "pgc-fr-staggered")


def curve(*losses: float, pace: float = 1.0) -> Curve:
    """Losses after steps 0, 10, 20, ...; ``pace`` seconds a step."""
    steps = [10 * place for place in range(len(losses))]
    return Curve(steps, [pace * step for step in steps], losses)


def group(label: str, *curves: Curve, times: tuple[float, ...] = (0.5,)) -> Group:
    return Group(label, curves, times)


def axes_of(figure: Figure, title: str) -> Axes:
    [found] = [axes for axes in figure.axes if axes.get_title(loc="left") == title]
    return found


def line(figure: Figure, title: str, label: str) -> Line2D:
    [found] = [one for one in axes_of(figure, title).lines if one.get_label() == label]
    return found


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend_of(figure: Figure) -> list[str]:
    [legend] = figure.subfigs[0].legends
    return [text.get_text() for text in legend.get_texts()]


# ---------------------------------------------------------------- spread


def test_a_spread_is_median_least_and_largest() -> None:
    one = spread([([0, 10], [4.0, 1.0]), ([0, 10], [2.0, 3.0]), ([0, 10], [9.0, 2.0])])
    assert one.x.tolist() == [0, 10]
    assert one.median.tolist() == [4, 2]
    assert one.low.tolist() == [2, 1]
    assert one.high.tolist() == [9, 3]
    assert not one.diverged


def test_places_between_are_on_straight_lines() -> None:
    one = spread([([0, 10], [4.0, 2.0]), ([0, 5, 10], [4.0, 4.0, 4.0])])
    assert one.x.tolist() == [0, 5, 10]
    assert one.low.tolist() == [4, 3, 2]
    assert one.median.tolist() == [4, 3.5, 3]


def test_a_spread_lasts_while_half_of_the_runs_do_and_those_that_ended_keep_their_last_loss() -> None:
    one = spread([([0, 10], [5.0, 1.0]), ([1, 20], [5.0, 3.0]), ([2, 30], [5.0, 4.0]), ([3, 40], [5.0, 5.0])])
    assert one.x[0] == 1, "the second of four begins"
    assert one.x[-1] == 30, "the third of four ends"
    assert one.low[-1] == 1
    assert one.median[-1] == pytest.approx(3.5)


def test_a_diverged_run_counts_as_infinite_not_as_gone() -> None:
    """Three runs, one lost after 0: the median of the rest would be 1.5, and they are not what is to be expected."""
    one = spread([([0, 10], [3.0, math.nan]), ([0, 10], [3.0, 1.0]), ([0, 10], [3.0, 2.0])])
    assert one.median.tolist() == [3, 2]
    assert one.high.tolist() == [3, 2], "the band stays finite"
    assert not one.diverged


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_spread_ends_where_half_of_the_runs_have_diverged(lost: float) -> None:
    one = spread([([0, 10, 20], [3.0, 4.0, lost]), ([0, 10, 20], [3.0, 2.0, 1.0])])
    assert one.x.tolist() == [0, 10]
    assert one.median.tolist() == [3, 3]
    assert one.diverged


def test_what_comes_after_a_loss_that_is_not_finite_does_not_count() -> None:
    one = spread([([0, 10, 20], [3.0, math.nan, 1.0])])
    assert one.x.tolist() == [0]


def test_nothing_is_left_of_runs_without_a_finite_loss_or_without_any() -> None:
    lost, empty = spread([([0, 10], [math.nan, math.nan])]), spread([([], [])])
    assert lost.x.size == lost.low.size == empty.x.size == empty.high.size == 0
    assert lost.diverged
    assert not empty.diverged


def test_a_long_run_is_thinned_and_keeps_its_ends() -> None:
    steps = list(range(10_007))
    one = spread([(steps, [float(step) for step in steps]), (steps[:5003], [float(step) for step in steps[:5003]])])
    assert one.x.size <= POINTS + 2
    assert one.x[0] == 0
    assert one.x[-1] == 10_006
    assert 5002 in one.x


def test_a_curve_is_as_long_in_all_three() -> None:
    with pytest.raises(ValueError, match="2 losses, 1 steps, 1 seconds"):
        Curve([0], [0.0], [1.0, 2.0])


# ---------------------------------------------------------------- scales


def test_losses_on_the_way_to_infinity_are_left_out_of_the_scale() -> None:
    calm, wild = spread([([0, 10], [2.0, 0.1])]), spread([([0, 10, 20], [2.0, 1e30, math.nan])])
    assert loss_range([calm], None) == (0.1, 2.0)
    assert loss_range([calm, wild], None) == (0.1, 10.0)
    assert loss_range([calm], 0.01) == (0.01, 2.0)
    assert loss_range([calm], 50.0) == (0.1, 50.0)
    assert loss_range([], None) == (0.0, 1.0)
    assert loss_range([spread([([0, 10], [0.0, 3.0])])], None) == (0.0, 3.0), "five times nothing is no bound"


@pytest.mark.parametrize(
    ("losses", "scale"), [((2.0, 0.1), "log"), ((2.0, 0.3), "linear"), ((2.0, 0.0), "linear"), ((2.0, -9.0), "linear")]
)
def test_the_scale_is_logarithmic_over_more_than_a_decade_of_positive_losses(
    losses: tuple[float, ...], scale: str
) -> None:
    figure = comparison_figure([group("dgd", curve(*losses))])
    for title in ("loss over steps", "loss over time"):
        axes = axes_of(figure, title)
        assert axes.get_yscale() == scale
        low, high = axes.get_ylim()
        assert low < min(losses) < max(losses) < high


@pytest.mark.parametrize(
    ("seconds", "unit"), [(4e-5, "us"), (0.25, "ms"), (1.0, "s"), (599.0, "s"), (600.0, "min"), (10_800.0, "h")]
)
def test_times_have_a_unit_that_suits_them(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[0] == unit


# ---------------------------------------------------------------- lines


def test_the_lines_are_medians_over_steps_and_over_time_in_the_unit_of_the_axis() -> None:
    slow = group("dgd", curve(2.0, 1.0, 0.4, pace=60), curve(4.0, 3.0, 0.2, pace=60), curve(3.0, 2.0, 0.3, pace=60))
    figure = comparison_figure([slow, group("pgc-cr s=2", curve(2.0, 1.5, 0.5, pace=30))], target=0.4)
    over_steps = line(figure, "loss over steps", "dgd")
    assert over_steps.get_xdata().tolist() == [0, 10, 20]
    assert over_steps.get_ydata().tolist() == [3, 2, 0.3]
    assert line(figure, "loss over time", "dgd").get_xdata().tolist() == [0, 10, 20]
    assert line(figure, "loss over time", "pgc-cr s=2").get_xdata().tolist() == [0, 5, 10]
    by_time = axes_of(figure, "loss over time")
    assert by_time.get_xlabel() == "time, min"
    assert len(by_time.lines) == 3
    assert line(figure, "loss over time", "target").get_ydata() == [0.4, 0.4]
    assert "target 0.4" in texts(by_time)
    assert legend_of(figure) == ["dgd", "pgc-cr s=2"]


def test_the_band_goes_from_the_least_to_the_largest_and_one_seed_has_none() -> None:
    many = group("dgd", curve(2.0, 1.0), curve(4.0, 0.5), curve(3.0, 0.7))
    figure = comparison_figure([many, group("pgc-cr s=1", curve(2.0, 1.0))])
    [band] = axes_of(figure, "loss over steps").collections
    corners = band.get_paths()[0].vertices
    assert {tuple(corner) for corner in np.asarray(corners).tolist()} == {(0, 2), (0, 4), (10, 0.5), (10, 1)}


def test_a_diverged_line_ends_with_a_cross_within_the_axes_and_the_legend_says_so() -> None:
    wild = group("pgc-cr-naive s=1", curve(2.0, 1e30, math.nan))
    partly = group("gc-cr s=1", curve(2.0, 1.0, math.inf), curve(2.0, 1.0, 0.5), curve(2.0, 1.0, 0.5))
    figure = comparison_figure([group("dgd", curve(2.0, 1.0, 0.1)), wild, partly])
    by_step = axes_of(figure, "loss over steps")
    [cross] = [found for found in by_step.collections if len(found.get_offsets()) == 1 and found.get_sizes().size]
    [[x, y]] = np.asarray(cross.get_offsets()).tolist()
    assert x == 10
    assert y == by_step.get_ylim()[1]
    assert y < 20
    assert legend_of(figure) == ["dgd", "gc-cr s=1 (1 of 3 diverged)", "pgc-cr-naive s=1 (diverged)"]


def test_a_case_without_curves_among_others_is_a_bar_only() -> None:
    figure = comparison_figure([group("dgd", curve(2.0, 1.0)), group("gc-fr s=1", times=(0.2,))])
    assert legend_of(figure) == ["dgd"]
    assert len(axes_of(figure, "time per step").patches) == 2


def test_many_lines_differ_by_colour_or_dashes_and_their_legend_is_sorted_by_scheme() -> None:
    labels = [f"{scheme} s={count}" for scheme in SCHEMES for count in (1, 2, 10)]
    figure = comparison_figure([group(label, curve(2.0, 1.0)) for label in labels])
    named = [text for text in legend_of(figure) if text.strip()]
    assert sorted(named) == sorted(labels)
    assert named[:3] == ["dgd s=1", "dgd s=2", "dgd s=10"]
    lines = axes_of(figure, "loss over steps").lines
    assert len({(one.get_color(), str(one._dash_pattern)) for one in lines}) == len(labels) == 24


# ---------------------------------------------------------------- colours and dashes


def test_the_scheme_says_the_colour_and_the_rest_the_dashes() -> None:
    first, second, other = looks(["pgc-cr s=1", "pgc-cr s=2", "gc-cr s=2"])
    assert first[0] == second[0] == COLOURS["pgc-cr"]
    assert first[1] == "-"
    assert second[1] == other[1] != "-"
    assert looks(["dgd", "pgc-cr s=2"])[1][1] == "-"
    assert looks(["pgc-cr", "pgc-cr s=2"])[1][1] != "-", "two of one scheme differ"


def test_schemes_of_somebodys_own_get_colours_that_are_left_over() -> None:
    colours = [colour for colour, _ in looks(["my:median s=1", "dgd", "my:trimmed s=1", "pgc-cr s=1"])]
    assert len(set(colours)) == 4
    assert len(looks([f"my:scheme{place}" for place in range(30)])) == 30


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_stay_apart_for_the_colour_blind(sight: str) -> None:
    seen = {name: oklab(SIGHT[sight] @ linear(to_rgb(colour))) for name, colour in COLOURS.items()}
    least = min(float(np.linalg.norm(seen[one] - seen[other])) for one, other in combinations(seen, 2))
    assert least > 0.09


def linear(rgb: tuple[float, float, float]) -> np.ndarray:
    values = np.array(rgb)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Björn Ottosson's, where distances are about as large as they look."""
    to_cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    to_lab = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ np.clip(rgb, 0, 1))


# ---------------------------------------------------------------- bars


def test_bars_are_medians_with_whiskers_figures_and_shares_of_dgd() -> None:
    groups = [
        group("is-sgd s=1", times=(0.030, 0.020, 0.022)),
        group("dgd s=0", times=(0.080,)),
        group("dgd", times=(0.040,)),
        group("gc-cr s=1"),
        group("pgc-cr s=1", times=(math.nan,)),
    ]
    figure = comparison_figure([*groups[:3], Group("gc-cr s=1", [], []), groups[4]])
    [axes] = figure.axes
    assert axes.get_xlabel() == "time per step, ms"
    assert [bar.get_width() for bar in axes.patches[:3]] == pytest.approx([22, 80, 40])
    whiskers = [path.vertices.tolist() for found in axes.collections for path in found.get_paths()]
    assert whiskers[0] == whiskers[1] == [pytest.approx([20, 0]), pytest.approx([30, 0])]
    assert len(whiskers) == 2, "one for the three seeds, and its outline"
    assert [label.get_text() for label in axes.get_yticklabels()] == [group.label for group in groups]
    assert axes.get_ylim() == (4.5, -0.5), "the first on top"
    assert texts(axes) == [
        "100 % = dgd", "22.0 ms", "55 %", "80.0 ms", "200 %", "40.0 ms", "100 %", "-", "-", "-", "-"
    ]  # fmt: skip


@pytest.mark.parametrize(("labels", "reference"), [(("gc-cr", "dgd s=0"), "dgd s=0"), (("gc-cr", "is-sgd"), "gc-cr")])
def test_shares_are_of_the_first_like_dgd_else_of_the_first(labels: tuple[str, ...], reference: str) -> None:
    [axes] = comparison_figure([group(label) for label in labels]).axes
    assert texts(axes)[0] == f"100 % = {reference}"


def test_the_figure_grows_with_the_bars() -> None:
    heights = [comparison_figure([group(f"gc-cr s={place}") for place in range(n)]).get_figheight() for n in (2, 24)]
    assert heights[0] < 3 < 7 < heights[1]


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(("suffix", "signature"), [(".png", b"\x89PNG\r\n"), (".SVG", b"<?xml"), (".pdf", b"%PDF")])
def test_the_same_numbers_give_the_same_bytes(tmp_path: Path, suffix: str, signature: bytes) -> None:
    groups = [group("dgd", curve(2.0, 0.1), curve(2.0, 0.2), times=(1.0, 1.1)), group("pgc-cr s=1", curve(2.0, 0.1))]
    files = [tmp_path / f"{name}{suffix}" for name in ("one", "two")]
    for file in files:
        comparison(groups, file, target=0.5, title="digits")
    one, two = (file.read_bytes() for file in files)
    assert one.startswith(signature)
    assert one == two


def test_it_draws_what_there_is_however_odd(tmp_path: Path) -> None:
    """Labels are foreign text, never formulas; nothing of this may warn."""
    groups = [
        group("$x_1$ s=1 " + "long " * 40, curve(2.0, 0.1)),
        group("lost s=1", curve(math.nan, math.nan), times=()),
        group("none s=1", curve()),
        group("short s=1", curve(1.0), times=(0.0,)),
    ]
    comparison(groups, tmp_path / "odd.svg", title="a $title$\n" * 30)
    assert "<!-- short s=1 -->" in (tmp_path / "odd.svg").read_text()
    comparison(groups[1:3], tmp_path / "nothing.png", target=1.0)
    comparison([group("dgd", times=(0.0,))], tmp_path / "zero.png")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("plot.jpg", "one of .png, .svg, .pdf: got {file}. {file}.png would work"),
        ("plot", "one of .png, .svg, .pdf"),
        ("nowhere/plot.png", "Make the folder .*nowhere first"),
        ("folder.png", "which is a folder. .*folder.png/compare.png would work"),
    ],
)
def test_a_picture_that_cannot_be_written_is_known_before(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "folder.png").mkdir()
    file = tmp_path / name
    for ask in (check_picture, lambda file: comparison([group("dgd")], file)):
        with pytest.raises(ConfigError, match=sentence.format(file=file)):
            ask(file)


def test_no_permission_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    (tmp_path / "old.png").touch()
    for name in ("old.png", "new.png"):
        with pytest.raises(ConfigError, match="no permission to write"):
            check_picture(tmp_path / name)
    assert asked == [tmp_path / "old.png", tmp_path]


def test_a_disk_that_fills_up_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match=r"cannot write the picture .*: No space left on device"):
        comparison([group("dgd")], tmp_path / "plot.png")


def test_neither_pyplot_nor_settings_are_touched(tmp_path: Path) -> None:
    script = f"""
import sys, matplotlib
from pathlib import Path
matplotlib.rcParams["text.usetex"] = True  # somebody's own settings would spoil the picture
settings = lambda: [(key, matplotlib.rcParams[key]) for key in matplotlib.rcParams if key != "backend"]
before = settings()
from pgczmq.view.pictures.plots import Curve, Group, comparison
comparison([Group("dgd", [Curve([0, 1], [0.0, 1.0], [2.0, 1.0])], [1.0])], Path({str(tmp_path / "plot.png")!r}))
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)


def test_nobody_imports_matplotlib_at_start_up() -> None:
    script = "import sys, pgczmq.cli.main; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n"
