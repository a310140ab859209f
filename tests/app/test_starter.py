"""What ``pgc init`` writes: a configuration that parses and runs, and a task to change."""

import subprocess
import sys
from pathlib import Path

import pytest

from pgczmq.app import master, simulate
from pgczmq.app.starter import FIRST_CHANGED, begin
from pgczmq.config import keys, load
from pgczmq.errors import ConfigError
from pgczmq.train import plain
from pgczmq.train.task import TASKS

NEED_FILES = {"resnet18", "resnet18-cifar"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("of_mine", None)


@pytest.mark.parametrize("task", [*TASKS, plain.NAME])
def test_a_built_in_task_has_a_configuration_that_runs(task, tmp_path):
    begun = begin(task, None)
    assert begun.config == Path(f"{task}.toml") and begun.module is None
    config = load(begun.config, ["steps=2", "eval.every=0"], environment={})
    assert config.task.name == task
    master.check(config)
    if task not in NEED_FILES and task != plain.NAME:
        model = simulate.model_of(config)
        assert simulate.run(config, model=model, sink=lambda record: None, root=tmp_path / "runs").steps == 2


def test_it_shows_what_people_change_first_with_its_meaning_and_values():
    text = begin("digits-cnn", Path("run.toml")).config.read_text()
    assert set(FIRST_CHANGED) <= set(keys())
    assert '# the rule, as torch.optim has it: "sgd", "adam" or "adamw"\nname = "sgd"\n' in text
    assert "one of dgd, is-sgd" in text and "pgc local --config run.toml" in text
    assert "args = { channels = 16, dropout = 0.0, batchnorm = false, augment = false }" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_task_that_is_not_there_yet_is_begun_and_runs(tmp_path):
    begun = begin("of_mine:circle", None)
    assert (begun.config, begun.module) == (Path("of_mine.toml"), Path("of_mine.py"))
    assert "pgc task check of_mine:circle --config of_mine.toml" in begun.next
    config = load(begun.config, ["checkpoint.every=0"], environment={})
    result = simulate.run(config, model=simulate.model_of(config), sink=lambda record: None, root=tmp_path / "runs")
    assert result.accuracy is not None and result.accuracy > 0.9


def test_a_task_that_is_there_gets_its_own_arguments():
    Path("of_mine.py").write_text("def task(root, layers=3, rate=1e-05, name='a\"b', extra=None, *, seed): ...\n")
    begun = begin("of_mine:task", None)
    assert begun.module is None
    text = begun.config.read_text()
    assert "# it also needs root\n" in text
    assert load(begun.config, environment={}).task.args == {"layers": 3, "rate": 1e-05, "name": 'a"b'}


@pytest.mark.parametrize("there", ["of_mine.toml", "run.toml"])
def test_nothing_is_written_over(there):
    Path(there).write_text("mine")
    with pytest.raises(ConfigError, match=f"writes over nothing: {there}"):
        begin("of_mine:task", None if there == "of_mine.toml" else Path(there))
    assert Path(there).read_text() == "mine" and not Path("of_mine.py").exists()


@pytest.mark.parametrize(
    ("task", "out", "sentence"),
    [
        ("digits-ccn", None, "The nearest is digits-cnn"),
        ("json:nothing", None, "no function nothing"),
        ("nowhere.of_mine:task", None, "cannot import nowhere"),
        ("digits-cnn", Path("nowhere/run.toml"), "cannot write nowhere/run.toml .* --out"),
        ("a-task:f", None, "a_task:f, perhaps"),
    ],
)
def test_what_cannot_be_begun_is_said(task, out, sentence):
    with pytest.raises(ConfigError, match=sentence):
        begin(task, out)
    assert list(Path().iterdir()) == []


def test_the_command_says_what_comes_next():
    words = [str(Path(sys.executable).with_name("pgc")), "init", "of_mine:task"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        "wrote of_mine.py\nwrote of_mine.toml\n" in done.stdout and "  pgc local --config of_mine.toml " in done.stdout
    )
    assert subprocess.run(words, capture_output=True).returncode == 2
