"""``pgczmq.simulate`` and ``pgczmq.compare``: what the commands do, in this process and beside it."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import pgczmq
import pgczmq.api  # Rich draws a random number when it is imported
from pgczmq.errors import ConfigError
from pgczmq.train.data import ArraySamples

SMALL: dict[str, Any] = {"workers": 4, "steps": 20, "delay": {"model": "exponential"}, "ui": {"mode": "none"}}


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def lines(*, seed: int) -> pgczmq.Task:
    """Of a test's module, which no other process could import."""
    x = torch.rand(200, 1, generator=torch.Generator().manual_seed(seed))
    data = ArraySamples(*TensorDataset(x, 2 * x).tensors)
    return pgczmq.Task(lambda: nn.Linear(1, 1), data, data, loss=squared, metric=None)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def streams() -> tuple[object, ...]:
    state = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), str(state), torch.get_num_threads(), sys.path[:]


def test_it_trains_and_leaves_torch_as_it_was() -> None:
    torch.set_num_threads(2)
    before = streams()
    run = pgczmq.simulate(**SMALL, task={"name": lines, "batch_size": 8}, optimizer={"lr": 0.1})
    assert streams() == before
    assert run.result.virtual_seconds and len(run.steps) == 20 and run.steps[-1].loss < run.steps[0].loss
    model = run.model()
    assert not model.training
    inputs, targets = lines(seed=1).train.batch(torch.arange(200))
    with torch.no_grad():
        assert float(squared(model(inputs), targets)) == pytest.approx(run.evals[-1].loss, rel=1e-5)


def test_it_leaves_the_bytes_that_the_command_leaves(tmp_path: Path) -> None:
    run = pgczmq.simulate(**SMALL, engine="timing", name="here")
    (tmp_path / "run.toml").write_text('workers = 4\nsteps = 20\ndelay = { model = "exponential" }\nui.mode = "none"\n')
    pgc = Path(sys.executable).parent / "pgc"
    words = ["sim", "--config", "run.toml", "--timing-only", "--set", "name=there"]
    subprocess.run([str(pgc), *words], check=True, capture_output=True, timeout=60)
    for file in ("steps.jsonl", "events.jsonl", "latencies.jsonl", "result.json"):
        assert (run.directory / file).read_bytes() == (tmp_path / "runs" / "there" / file).read_bytes(), file


def test_two_threads_take_turns() -> None:
    runs: list[pgczmq.Run] = []

    def one() -> None:
        runs.append(pgczmq.simulate(**SMALL, task={"name": lines, "batch_size": 8}))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs[0].result.weights_sha256 == runs[1].result.weights_sha256 and runs[0].directory != runs[1].directory


def test_an_interrupted_simulation_is_raised_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, calls = squared, itertools.count(1)

    def struck(output: Tensor, target: Tensor) -> Tensor:
        if next(calls) == 30:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(output, target)

    monkeypatch.setattr(sys.modules[__name__], "squared", struck)
    asked = {**SMALL, "task": {"name": lines, "batch_size": 8}}
    with pytest.raises(pgczmq.Interrupted, match="interrupted by SIGINT after") as stopped:
        pgczmq.simulate(**asked)
    monkeypatch.undo()
    run = stopped.value.run
    assert 0 < run.result.steps < 20
    assert pgczmq.simulate(**asked, resume=run.directory).result.steps == 20


def test_a_simulation_without_gradients_has_no_model() -> None:
    run = pgczmq.simulate(**SMALL, engine="timing")
    assert run.result.loss is None and len(run.latencies) > 60
    run.plot("run.png")
    assert Path("run.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="a trained model is read from a checkpoint"):
        run.model()


def test_a_comparison_is_a_table_a_picture_and_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = {**SMALL, "task": {"name": "soak"}, "workers": 6, "ui": {"mode": "auto"}}
    study = pgczmq.compare(
        **asked, schemes=["dgd", "gc-fr", "pgc-cr"], stragglers=[1, 3], seeds=2, engine="timing", json="all.json"
    )
    assert [one.label for one in study.summaries] == ["dgd", "gc-fr s=1", "pgc-cr s=1", "pgc-cr s=3"]
    assert len(study.rows) == 8 and study.left_out[0][0] == "gc-fr s=3"
    assert (
        "pgc-cr s=3" in str(study)
        and "left out: gc-fr s=3" in str(study)
        and "median and range of 2 seeds" in str(study)
    )
    said = capfd.readouterr()
    assert said.out == "" and "8 of 8 runs, done" in said.err and "left out: gc-fr s=3" in said.err
    study.plot("all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "all.json").read_text())["runs"]) == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "all.png"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"schemes": []}, "at least one scheme"),
        ({"schemes": ["dgd"], "seeds": 0}, "at least one scheme"),
        ({"schemes": ["dgd"], "target": float("nan")}, "target is a loss that can be reached"),
        ({"schemes": ["dgd", "nothing"]}, "there is no scheme"),
        ({"schemes": ["dgd"], "json": "."}, "a study is written to a file"),
        ({"schemes": ["dgd"], "task": {"name": "nowhere:task"}, "engine": "sim"}, "cannot import nowhere"),
    ],
)
def test_a_comparison_that_cannot_be_is_said(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        pgczmq.compare(**{**SMALL, "engine": "timing", "task": {"name": "soak"}, **given})
    assert sentence in str(raised.value)


def test_a_picture_of_another_kind_is_refused() -> None:
    study = pgczmq.compare(**SMALL, schemes=["dgd"], seeds=1, engine="timing", target=1)
    with pytest.raises(ConfigError, match=r"\.png"):
        study.plot("picture.gif")
