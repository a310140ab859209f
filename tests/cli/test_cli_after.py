"""What is done with runs that have been, as a person types it."""

import json
import subprocess
from pathlib import Path

import pytest
from test_cli import pgc

from pgczmq.cli import page
from pgczmq.errors import ConfigError

SIMULATED = [
    *("sim", "--set", "steps=12", "--set", "workers=4", "--set", "ui.mode=none", "--set", "eval.every=6"),
    *("--set", "task.name=logistic-regression", "--set", "delay.model=exponential"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one simulated run in ``runs``, called first."""
    home = tmp_path_factory.mktemp("after")
    assert said(home, *SIMULATED, "--set", "name=first") == ""
    return home


def said(home: Path, *arguments: str) -> str:
    done: subprocess.CompletedProcess[str] = pgc(*arguments, cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refused(home: Path, *arguments: str) -> str:
    done = pgc(*arguments, cwd=home)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    return done.stderr


def test_runs(home: Path, tmp_path: Path) -> None:
    assert "There are no runs in runs/ here. pgc local begins one" in said(tmp_path, "runs")
    everything = said(home, "runs")
    assert everything.splitlines()[2].split()[:4] == ["first", "done", "logistic-regression", "pgc-cr"]
    assert "virtual" in everything
    assert said(home, "runs", "runs/first") == everything
    assert "result.json" in said(home, "runs", "runs/first/result.json")
    assert "which is not there" in refused(home, "runs", "runs/second")


def test_a_result_knows_the_name_of_its_metric(home: Path) -> None:
    result = json.loads((home / "runs" / "first" / "result.json").read_text())
    assert (result["metric"], result["accuracy"] is None) == ("accuracy", False)


def test_plot(home: Path) -> None:
    assert said(home, "plot", "runs/first") == "runs/first/plot.png is written\n"
    assert (home / "runs" / "first" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "which is a file" in refused(home, "plot", "runs/first/result.json")
    assert "one of .png, .svg, .pdf: got plot.jpg" in refused(home, "plot", "runs/first", "--out", "plot.jpg")


def test_report_explains_the_scheme(home: Path) -> None:
    assert said(home, "report", "runs/first") == "runs/first/report.html is written\n"
    written = (home / "runs" / "first" / "report.html").read_text()
    assert "Each worker holds 2 partitions and evaluates 1 of them a step." in written
    assert "A step closes when 3 of 4 workers have answered." in written
    assert "ends in .html: got page.pdf" in refused(home, "report", "runs/first", "--out", "page.pdf")


def test_a_report_for_which_there_is_no_room_leaves_the_one_before(home: Path, tmp_path: Path, full_disk: None) -> None:
    before = tmp_path / "report.html"
    before.write_bytes(b"the one before")
    for file in (before, tmp_path / "new.html"):
        with pytest.raises(ConfigError, match=rf"cannot write {file}: No space left on device\. .*--out"):
            page.write([home / "runs" / "first"], file)
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(before, b"the one before")]


def test_a_report_that_cannot_be_made_leaves_no_file(tmp_path: Path) -> None:
    for name in ("config.toml", "steps.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="holds no step"):
        page.write([tmp_path], None)
    assert not (tmp_path / "report.html").exists()


def test_looking_at_a_run_runs_none_of_its_code(home: Path, tmp_path: Path) -> None:
    """Whoever made the directory chose the names in it; a module of such a name may lie in the current folder."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    for file in (home / "runs" / "first").glob("*.*"):
        (directory / file.name).write_bytes(file.read_bytes())
    config = (directory / "config.toml").read_text()
    names = {'name = "pgc-cr"': 'name = "evil:it"', 'model = "exponential"': 'model = "evil:it"'}
    for before, after in names.items():
        assert before in config
        config = config.replace(before, after)
    (directory / "config.toml").write_text(config)
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    said(tmp_path, "report", "foreign")
    assert not (tmp_path / "ran").exists()


def test_export(home: Path) -> None:
    assert "runs/first/csv/steps.csv, " in said(home, "export", "runs/first", "--to", "csv")
    assert "open it at ui.perfetto.dev" in said(home, "export", "runs/first", "--to", "trace", "--out", "t.json")
    assert json.loads((home / "t.json").read_text())["traceEvents"]
    assert "cannot write" in refused(home, "export", "runs/first", "--to", "csv", "--out", "t.json")
