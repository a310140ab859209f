"""Papers' claims as files: those there are, their form, and RESULTS.md, which is made of saved results alone."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pgczmq import config
from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import figures, papers, reproduce, theory_study
from pgczmq.bench.papers import Paper
from pgczmq.bench.study import Spread
from pgczmq.bench.tally import Goal, Row, Spent, Tally
from pgczmq.errors import ConfigError

HOME = Path(__file__).resolve().parents[2] / "configs" / "papers"
NAMES = reproduce.names(HOME)
CLAIMS = {  # the rows of the table in schemes.md section 6
    "time-per-step-nodelay",
    "time-per-step-delay",
    "convergence",
    "cloud",
    "naive-cr",
    "adaptive-k",
    "adaptive-theory",
    "adaptive-k-batch",
}
TIMES = ComputeTimes(evaluation=0.5, low=0.4, high=0.6, addition=0.01)
PAPER = Paper.model_validate(
    {
        "name": "a-claim",
        "title": "a title",
        "source": "somewhere",
        "claim": "It is so.",
        "scale": "Small.",
        "seeds": 2,
        "engine": "timing",
        "run": {"workers": 6, "steps": 5},
        "cases": [
            {"set": {"scheme.name": "dgd"}},
            {"set": {"scheme.name": ["gc-fr", "pgc-cr"], "scheme.stragglers": [1, 2]}},
            {"set": {"scheme.name": "dgd", "optimizer.lr": [0.1]}, "label": "dgd again", "seeds": 1},
        ],
        "figures": [
            {
                "says": "{name}, s={s}",
                "paper": "above 1",
                "case": "{name} s={s}",
                "over": "dgd",
                "measure": "seconds_per_step",
                "holds": "> 1",
                "each": {"name": ["gc-fr", "pgc-cr"], "s": [1, 2]},
            }
        ],
    }
)


def row(label: str, seed: int, seconds: float | None) -> Row:
    made = Tally(config.parse({"workers": 4}), Goal()).row(label, diverged=False)
    return replace(made, seed=seed, seconds_per_step=seconds)


# ---------------------------------------------------------------- the claims there are


def test_every_claim_is_there() -> None:
    assert set(NAMES) == CLAIMS


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_can_be_run_and_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME.parents[1])
    paper = papers.read(HOME / f"{name}.toml")
    if paper.engine == "theory":
        assert papers.theory_figures(paper)
        return
    for scaled in (paper, papers.at_full_scale(paper)):
        made = papers.cases(scaled, TIMES if paper.measure else None)
        papers.check(scaled, made)
        assert made


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_into_the_figures_holds_no_figures_itself(name: str) -> None:
    """Measured numbers stand in the table alone, where they come from the saved results."""
    reading = papers.read(HOME / f"{name}.toml").reading
    without_names = re.sub(r"ResNet-18|k0|float32|float64|\bn/c\b", "", reading)
    assert not re.search(r"\d", without_names), without_names


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_own_scale_says_what_it_lacks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = papers.read(HOME / f"{name}.toml").full
    if not full.needs:
        return  # nothing is needed: it runs
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(full.needs)) as said:
        reproduce.check_needs(full)
    assert full.get and full.get in str(said.value)
    (tmp_path / full.needs).mkdir(parents=True)
    reproduce.check_needs(full)


def test_the_page_is_made_of_the_saved_results_and_nothing_else() -> None:
    """A figure that is not in them, or was changed by hand, makes the page another one."""
    claims = [papers.read(HOME / f"{name}.toml") for name in NAMES]
    saved = {name: json.loads((HOME / "results" / f"{name}.json").read_text()) for name in NAMES}
    assert (HOME / reproduce.RESULTS).read_text() == reproduce.results_page(claims, saved)


@pytest.mark.parametrize("name", NAMES)
def test_saved_figures_follow_from_the_saved_runs_of_this_version_of_the_claim(name: str) -> None:
    paper = papers.read(HOME / f"{name}.toml")
    whole = json.loads((HOME / "results" / f"{name}.json").read_text())
    assert whole["claim"] == papers.key(paper)
    assert json.loads(json.dumps(reproduce.refreshed(paper, whole))) == whole


# ---------------------------------------------------------------- the form


def test_cases_are_all_combinations_of_all_seeds() -> None:
    made = papers.cases(PAPER)
    assert [(case.label, case.config.seed) for case in made] == [
        ("dgd", 1),
        ("dgd", 2),
        ("gc-fr s=1", 1),
        ("gc-fr s=1", 2),
        ("gc-fr s=2", 1),
        ("gc-fr s=2", 2),
        ("pgc-cr s=1", 1),
        ("pgc-cr s=1", 2),
        ("pgc-cr s=2", 1),
        ("pgc-cr s=2", 2),
        ("dgd again", 1),
    ]
    assert made[-1].config.optimizer.lr == 0.1 and made[0].config.workers == 6


def test_measured_times_are_simulated() -> None:
    found = {case.label: case.config.sim for case in papers.cases(PAPER, TIMES)}
    assert {sim.evaluation for sim in found.values()} == {0.5}
    # Encoding adds the partitions held, combining one message of each of three groups, or of all but two workers.
    assert found["gc-fr s=1"].communication == pytest.approx((2 + 3) * 0.01)
    assert found["pgc-cr s=2"].communication == pytest.approx((3 + 4) * 0.01)
    assert found["dgd"].communication == pytest.approx((1 + 6) * 0.01)


def test_ratios_are_taken_seed_by_seed() -> None:
    rows = {"dgd": [row("dgd", 1, 2.0), row("dgd", 2, 4.0)]}
    rows |= {f"{name} s={s}": [row("", 1, 3.0), row("", 2, 3.0)] for name in ("gc-fr", "pgc-cr") for s in (1, 2)}
    first = papers.figures(PAPER, rows)[0]
    assert first.says == "gc-fr, s=1"
    assert first.measured == Spread(1.125, 0.75, 1.5, 2) and first.verdict == "1 of 2"


@pytest.mark.parametrize(
    ("mine", "others", "below", "known"),
    [(1.0, 2.0, 1, 1), (3.0, 2.0, 0, 1), (None, 2.0, 0, 0), (3.0, None, 1, 0), (None, None, 0, 0)],
)
def test_a_run_that_never_got_there_counts_as_infinitely_slow(
    mine: float | None, others: float | None, below: int, known: int
) -> None:
    found = figures.values("seconds_per_step", Goal(), [row("", 1, mine)], [row("", 1, others)])
    made = figures.figure("", "", "< 1", found)
    assert made.verdict == f"{below} of 1"
    assert (made.measured.count if made.measured else 0) == known
    assert figures.figure("", "", "> 1", found).verdict == f"{int(not below and mine != others)} of 1"


@pytest.mark.parametrize(
    ("holds", "values", "verdict"),
    [
        ("", [1.0], ""),
        ("< 1", [0.5, 0.9], "2 of 2"),
        ("< 1", [1.5, 1.0], "0 of 2"),
        ("> 1", [1.5, 0.9], "1 of 2"),
        ("1 +- 0.1", [1.05, 0.91], "2 of 2"),
        ("< 1", [0.5, None], "1 of 2"),
        ("< 1", [None], "0 of 1"),
    ],
)
def test_a_verdict_counts_the_seeds(holds: str, values: list[float | None], verdict: str) -> None:
    assert figures.figure("", "", holds, values).verdict == verdict


def test_levels_on_the_way_and_horizons_are_measures() -> None:
    goal = Goal(also=(0.3,), horizons=(5.0,))
    one = replace(row("", 1, 1.0), also=(Spent(3, 4.0, 5, 6.0, 7),), at=(0.25,))
    for measure, value in (("seconds to 0.3", 4.0), ("computation to 0.3", 6.0), ("communication to 0.3", 7.0)):
        assert figures.values(measure, goal, [one], None) == [value]
    assert figures.values("metric at 5", goal, [one], None) == [0.25]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"case": "gc-fr s=7"}, "no runs are called 'gc-fr s=7'"),
        ({"measure": "speed"}, "there is no figure 'speed'"),
        ({"measure": "seconds to 0.3"}, "goal.also lacks 0.3"),
        ({"measure": "metric at 5"}, "goal.horizons lacks 5"),
        ({"holds": "about 1"}, 'holds is written "< 1"'),
    ],
)
def test_a_figure_that_cannot_be_is_said_before_anything_runs(change: dict[str, str], text: str) -> None:
    figure = PAPER.figures[0].model_copy(update=change)
    paper = PAPER.model_copy(update={"figures": (figure,)})
    with pytest.raises(ConfigError, match=re.escape(text)):
        papers.check(paper, papers.cases(paper))


def test_runs_that_cannot_be_are_said_before_anything_runs() -> None:
    impossible = PAPER.model_copy(update={"run": {"workers": 10, "steps": 5}})
    with pytest.raises(ConfigError, match="fractional repetition needs"):
        papers.check(impossible, papers.cases(impossible))
    twice = PAPER.model_copy(update={"cases": (*PAPER.cases, PAPER.cases[0])})
    with pytest.raises(ConfigError, match="2 runs are called 'dgd' with seed 1"):
        papers.check(twice, papers.cases(twice))


def test_files_that_are_no_claims(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("title = 1\n")
    with pytest.raises(ConfigError, match="is not a paper's claim"):
        papers.read(tmp_path / "odd.toml")
    with pytest.raises(ConfigError, match="cannot read"):
        papers.read(tmp_path / "nothing.toml")
    with pytest.raises(ConfigError, match=r"nothing called 'cloudy' to reproduce\. There are: odd"):
        reproduce.find(tmp_path, "cloudy")


def test_the_papers_own_scale_changes_what_it_says() -> None:
    full = {"seeds": 9, "run": {"steps": 700}, "goal": {"level": 0.1}}
    paper = papers.at_full_scale(PAPER.model_copy(update={"full": papers.FullTable.model_validate(full)}))
    assert (paper.seeds, paper.goal.level, paper.run) == (9, 0.1, {"workers": 6, "steps": 700})
    assert len(papers.cases(paper)) == 9 * 6  # also of the case that has one seed at the small scale


# ---------------------------------------------------------------- what is saved


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    rows = [row("dgd", 1, 2.0), row("dgd", 2, None)]
    made = [figures.figure("a", "1", "< 2", [1.0, None])]
    about = {"command": "pgc reproduce a-claim", "date": "2026-01-01", "machine": "this one", "scale": "Small."}
    whole = reproduce.result(PAPER, made, rows, times=TIMES, about=about)
    reproduce.save(tmp_path / "a.json", whole)
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(json.dumps(whole))
    page = reproduce.results_page([PAPER], {"a-claim": whole})
    assert (
        "| a | 1 | 1 (1 of 2) | 1 of 2 |" in page and "0.5 s [0.4, 0.6]" in page and "| dgd | 2 | 2 (1 of 2) |" in page
    )
    assert "Not reproduced yet" in reproduce.results_page([PAPER], {})


def test_results_of_another_version_of_a_claim_are_left_as_they_are_and_said_to_be() -> None:
    about = {"command": "", "date": "", "machine": "", "scale": ""}
    whole = reproduce.result(PAPER, [], [row("dgd", 1, 2.0)], times=None, about=about)
    changed = PAPER.model_copy(update={"run": {"workers": 6, "steps": 6}})
    assert reproduce.refreshed(changed, whole) == whole
    assert "earlier version of this claim" in reproduce.results_page([changed], {"a-claim": whole})
    assert "earlier version of this claim" not in reproduce.results_page([PAPER], {"a-claim": whole})


def test_saved_runs_give_the_figures_that_are_asked_for_now() -> None:
    about = {"command": "", "date": "", "machine": "", "scale": ""}
    cases = {case.label for case in papers.cases(PAPER)}
    whole = reproduce.result(PAPER, [], [row(label, 1, 2.0) for label in sorted(cases)], times=None, about=about)
    assert [figure["says"] for figure in reproduce.refreshed(PAPER, whole)["figures"]][:2] == [
        "gc-fr, s=1",
        "gc-fr, s=2",
    ]


def test_ratios_of_a_grid_may_be_of_its_ends_alone() -> None:
    cells = [theory_study.Cell(rate, time, rate, 2.0, 3.0) for rate in (1.0, 2.0) for time in (1.0, 2.0)]
    assert papers.ratios(cells, "seconds") == [1.0, 1.0, 2.0, 2.0]
    assert papers.ratios(cells, "seconds where communication is cheapest") == [1.0]
    assert papers.ratios(cells, "computation where communication is dearest") == [2.0]
    with pytest.raises(ConfigError, match="a ratio is of seconds"):
        papers.ratios(cells, "cost")
