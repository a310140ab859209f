"""Papers' claims as files: those there are, their form, and RESULTS.md, which is made of saved results alone."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pgczmq import config
from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import papers, reproduce, study, theory_study
from pgczmq.bench.papers import FigureTable, Paper
from pgczmq.bench.study import Spread
from pgczmq.bench.tally import Goal, Row, Tally
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
def test_saved_figures_follow_from_the_saved_runs(name: str) -> None:
    paper = papers.read(HOME / f"{name}.toml")
    whole = json.loads((HOME / "results" / f"{name}.json").read_text())
    if paper.engine == "theory":
        found = papers.theory_figures(paper)
    else:
        found = papers.figures(paper, study.by_label(study.rows_from(whole["runs"])))
    assert [asdict(figure) for figure in found] == whole["figures"]


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
    ("holds", "values", "verdict"),
    [
        ("", [1.0], ""),
        ("< 1", [0.5, 0.9], "yes"),
        ("< 1", [1.5, 1.0], "no"),
        ("> 1", [1.5, 0.9], "1 of 2"),
        ("1 +- 0.1", [1.05, 0.91], "yes"),
        ("< 1", [0.5, None], "1 of 2"),
        ("< 1", [None], "no"),
        ("< 1", [], "no"),
    ],
)
def test_a_verdict_counts_the_seeds(holds: str, values: list[float | None], verdict: str) -> None:
    line = FigureTable(says="", paper="", case="", measure="loss", holds=holds)
    assert papers.figure(line, values).verdict == verdict


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"case": "gc-fr s=7"}, "no runs are called 'gc-fr s=7'"),
        ({"measure": "speed"}, "there is no figure 'speed'"),
        ({"measure": "metric at 5"}, "goal.horizons lacks 5"),
        ({"holds": "about 1"}, 'holds is written "< 1"'),
    ],
)
def test_a_figure_that_cannot_be_is_said_before_anything_runs(change: dict[str, str], text: str) -> None:
    figure = PAPER.figures[0].model_copy(update=change)
    paper = PAPER.model_copy(update={"figures": (figure,)})
    with pytest.raises(ConfigError, match=re.escape(text)):
        papers.check(paper, papers.cases(paper))


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


# ---------------------------------------------------------------- what is saved


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    rows = [row("dgd", 1, 2.0), row("dgd", 2, 4.0)]
    figures = [papers.figure(FigureTable(says="a", paper="1", case="", measure=""), [1.0])]
    about = {"command": "pgc reproduce a-claim", "date": "2026-01-01", "machine": "this one", "scale": "Small."}
    whole = reproduce.result(PAPER, figures, rows, times=TIMES, about=about)
    reproduce.save(tmp_path / "a.json", whole)
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(json.dumps(whole))
    page = reproduce.results_page([PAPER], {"a-claim": whole})
    assert "| a | 1 | 1 |  |" in page and "0.5 s [0.4, 0.6]" in page and "| dgd | 2 | 3 [2, 4] |" in page
    assert "Not reproduced yet" in reproduce.results_page([PAPER], {})


def test_ratios_of_a_grid_may_be_of_its_ends_alone() -> None:
    cells = [theory_study.Cell(rate, time, rate, 2.0, 3.0) for rate in (1.0, 2.0) for time in (1.0, 2.0)]
    assert papers.ratios(PAPER, cells, "seconds") == [1.0, 1.0, 2.0, 2.0]
    assert papers.ratios(PAPER, cells, "seconds where communication is cheapest") == [1.0]
    assert papers.ratios(PAPER, cells, "computation where communication is dearest") == [2.0]
    with pytest.raises(ConfigError, match="a ratio is of seconds"):
        papers.ratios(PAPER, cells, "cost")
