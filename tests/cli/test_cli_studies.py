"""``pgc compare`` and ``pgc reproduce``, as a person types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
SMALL = ["--set", "workers=6", "--set", "delay.model=exponential", "--set", "eval.every=0"]
TIMING = ["compare", *SMALL, "--set", "steps=100", "--timing-only", "--schemes", "dgd,gc-fr,pgc-cr", "--seeds", "2"]
CLAIM = """
title = "stragglers cost time"
source = "here"
claim = "Ignoring one is faster."
scale = "Six workers."
seeds = 2
engine = "timing"

[run]
workers = 6
steps = 100
delay = { model = "exponential" }

[[cases]]
set = { "scheme.name" = "dgd" }

[[cases]]
set = { "scheme.name" = "is-sgd", "scheme.stragglers" = [1, 2] }

[[figures]]
says = "IS-SGD over DGD, s={s}"
paper = "below 1"
case = "is-sgd s={s}"
over = "dgd"
measure = "seconds_per_step"
holds = "< 1"
each = { s = [1, 2] }

[full]
needs = "data/everything"
get = "Nobody has it."
"""


def pgc(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGC_")}
    return subprocess.run([str(BIN / "pgc"), *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=240)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory that looks like a clone with one claim in it."""
    home = tmp_path / "configs" / "papers"
    home.mkdir(parents=True)
    (home / "lateness.toml").write_text(CLAIM)
    return tmp_path


def test_compare_prints_saves_and_draws(tmp_path: Path) -> None:
    done = pgc(*TIMING, "--stragglers", "1,3", "--json", "all.json", "--plot", "all.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole = json.loads((tmp_path / "all.json").read_text())
    labels = [one["label"] for one in whole["summary"]]
    assert labels == ["dgd", "gc-fr s=1", "pgc-cr s=1", "pgc-cr s=3"]
    assert all(label in done.stdout for label in labels)
    assert "gc-fr s=3" in whole["left_out"] and "left out: gc-fr s=3: fractional repetition needs" in done.stderr
    assert "8 of 8 runs" in done.stderr
    assert len(whole["runs"]) == 8 and all(run["steps"] == 100 for run in whole["runs"])
    dgd, *others = [one["figures"]["seconds_per_step"]["median"] for one in whole["summary"]]
    assert all(other < dgd for other in others)
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "all.json.part").exists()
    assert "leaked" not in done.stderr


def test_compare_with_gradients_counts_to_the_target(tmp_path: Path) -> None:
    asked = [
        "compare",
        *SMALL,
        "--set",
        "task.name=linear-regression",
        "--set",
        "steps=60",
        "--set",
        "optimizer.lr=0.1",
    ]
    done = pgc(*asked, "--schemes", "dgd,pgc-cr", "--stragglers", "1", "--seeds", "1", "--json", "a.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for run in json.loads((tmp_path / "a.json").read_text())["runs"]:
        assert (
            run["reached"]["step"] < 60
            and run["loss"] < 0.5
            and run["curve"]["loss"][-1] == pytest.approx(run["loss"], rel=1e-4)
        )


def test_compare_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    asked = ["compare", *SMALL, "--set", "steps=3000", "--timing-only", "--schemes", "dgd,is-sgd", "--json", "all.json"]
    part = tmp_path / "all.json.part"
    first = subprocess.Popen([str(BIN / "pgc"), *asked], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + 120
        while not (part.exists() and len(part.read_text().splitlines()) > 3):
            assert time.monotonic() < limit and first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGINT)
        said = first.communicate(timeout=30)[1]
    finally:
        first.kill()
        first.wait()
    assert first.returncode == 130 and "goes on from all.json.part" in said
    kept = [json.loads(line) for line in part.read_text().splitlines()[1:]]
    done = pgc(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "all.json").read_text())["runs"]
    assert len(runs) == 20 and len(kept) < 20
    assert all(entry["row"] in runs for entry in kept)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--schemes", "dgd,nothing"], "there is no scheme nothing"),
        (["--schemes", ","], "--schemes is a list"),
        (["--stragglers", "one"], "--stragglers is a list of whole numbers"),
        (["--timing-only", "--engine", "local"], "only a simulation can leave the gradients out"),
        (["--plot", "picture.gif"], ".png"),
        (["--json", "nowhere/all.json"], "nowhere"),
        (["--json", "."], "--json names a file: . is a directory"),
        (["--json", "a.png", "--plot", "a.png"], "--json and --plot name two files"),
        (["--target", "nan"], "--target is a loss that can be reached"),
    ],
)
def test_compare_refuses_in_a_sentence(arguments: list[str], text: str, tmp_path: Path) -> None:
    done = pgc("compare", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


def test_reproduce_saves_and_writes_the_page(clone: Path) -> None:
    done = pgc("reproduce", "lateness", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "IS-SGD over DGD, s=2" in done.stdout and "2 of 2" in done.stdout
    home = clone / "configs" / "papers"
    whole = json.loads((home / "results" / "lateness.json").read_text())
    assert [figure["verdict"] for figure in whole["figures"]] == ["2 of 2", "2 of 2"]
    assert whole["command"] == "pgc reproduce lateness"
    page = (home / "RESULTS.md").read_text()
    assert f"{whole['figures'][0]['measured']['median']:.4g}" in page
    assert sorted(path.name for path in (home / "results").iterdir()) == ["lateness.json"]
    done = pgc("reproduce", cwd=clone)
    assert done.stdout == "lateness: stragglers cost time\n"


def test_reproduce_refuses_in_a_sentence(clone: Path) -> None:
    done = pgc("reproduce", "earliness", cwd=clone)
    assert done.returncode == 2 and "There are: lateness" in done.stderr
    done = pgc("reproduce", "lateness", "--full", cwd=clone)
    assert done.returncode == 2 and "needs data/everything" in done.stderr and "Nobody has it." in done.stderr
    done = pgc("reproduce", cwd=clone / "configs")
    assert done.returncode == 2 and "in a clone of the project" in done.stderr


def test_reproduce_at_the_papers_own_scale_leaves_the_page_alone(clone: Path) -> None:
    (clone / "data" / "everything").mkdir(parents=True)
    done = pgc("reproduce", "lateness", "--full", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert json.loads((clone / "lateness-full.json").read_text())["scale"] == "At the scale of --full."
    assert not (clone / "configs" / "papers" / "RESULTS.md").exists()
