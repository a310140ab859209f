"""What a worker builds for a master: only code that its own user allows, and only once for the same run."""

import itertools
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from pgczmq import config
from pgczmq.app import local
from pgczmq.app.allowed import allowed_names, asked_for, check_allowed
from pgczmq.app.model import begin_life
from pgczmq.app.worker import Preparation
from pgczmq.errors import JoinRefused
from pgczmq.net import wire

SOAK = ("task.name=soak", "scheme.name=pgc-cr", "workers=4", "scheme.load=2")
counts = itertools.count()


def welcome(*given: str, **changes: object) -> wire.Welcome:
    run = config.load(None, (*SOAK, *given), {})
    told = {"run": "run-1", "master": "master-1", "worker": 1, "incarnation": "life-1", "config": run.to_toml()}
    ports = {"gradients_port": 1, "params_port": 2, "metrics_port": 3, "heartbeat": 2.0}
    ways = {"payload": "tcp", "wire_dtype": "float32"}
    holds = {"held": [1, 2], "coefficients": [1.0, 1.0]}
    return wire.Welcome(**{**told, **ports, **ways, **holds, **changes})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory that leaves a file when it is imported."""
    name = f"somebody_elses_{next(counts)}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\nfrom pgczmq.core.schemes import build\nfrom dataclasses import replace\n"
        "Path('imported').touch()\ndef scheme(settings):\n    return build(replace(settings, name='pgc-cr'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return name


# ---------------------------------------------------------------- what may be run


@pytest.mark.parametrize("setting", ["scheme.name", "task.name"])
def test_code_that_a_master_names_is_not_even_imported_unless_allowed(setting: str, module: str) -> None:
    with pytest.raises(JoinRefused) as caught:
        Preparation(1, {"another:function"})(welcome(f"{setting}={module}:scheme"))
    assert str(caught.value) == (
        "a worker runs code, and writes in directories, that a master names only if its own user allows it: this run "
        f"has {setting} = '{module}:scheme'. If you trust it, add --allow {module}:scheme, or set PGC_ALLOW."
    )
    assert caught.value.exit_code == 71
    assert not Path("imported").exists()


def test_code_that_is_allowed_is_run(module: str) -> None:
    prepared = Preparation(1, {f"{module}:scheme"})(welcome(f"scheme.name={module}:scheme"))
    assert prepared.compute.parameter_count
    assert Path("imported").exists()


@pytest.mark.parametrize("gadget", ["os:system", "pgczmq.train.tasks:digits_cnn", "my_model:spirals2", "my_model:"])
def test_only_the_very_name_is_allowed(gadget: str) -> None:
    run = config.load(None, [f"task.name={gadget}"], {})
    with pytest.raises(JoinRefused, match=f"task.name = '{gadget}'"):
        check_allowed(run, {"my_model:spirals"})


@pytest.mark.parametrize("key", ["log", "gates"])
def test_nothing_is_written_where_a_master_says_unless_allowed(key: str, tmp_path: Path) -> None:
    told = welcome(f"task.args.{key}={tmp_path / 'there'}")
    with pytest.raises(JoinRefused, match=rf"task\.args\.{key} = "):
        Preparation(1, {"another:function"})(told)
    assert not list(tmp_path.iterdir())
    (tmp_path / "there").mkdir()
    assert Preparation(1, {str(tmp_path / "there")})(told).compute.parameter_count


def test_built_in_code_needs_no_leave() -> None:
    check_allowed(config.RunConfig(), ())
    assert asked_for(config.RunConfig()) == {}


def test_names_come_from_options_and_from_the_environment() -> None:
    assert allowed_names((), {}) == frozenset()
    assert allowed_names(["a:b"], {"PGC_ALLOW": " c:d,e:f ,"}) == {"a:b", "c:d", "e:f"}


def test_workers_of_a_local_run_may_run_what_its_user_named() -> None:
    run = config.load(None, ["task.name=my_model:spirals", "scheme.name=my_scheme:mine"], {})
    assert local.LocalWorkers(run)._allowed == ("my_model:spirals", "my_scheme:mine")


# ---------------------------------------------------------------- what is built again


def test_a_master_that_is_back_costs_no_second_model_and_finds_nothing_retained() -> None:
    preparation = Preparation(1, ())
    first = preparation(welcome())
    compute = first.compute
    compute._retained[0] = compute._retained[1] = (5, None)  # type: ignore[attr-defined]
    second = preparation(welcome(master="master-2", incarnation="life-2"))
    assert second.compute is compute
    assert second.conditions is first.conditions, "a fault strikes once in a process"
    assert second.pipeline is not first.pipeline and second.pipeline.step == -1
    assert not compute._retained  # type: ignore[attr-defined]
    assert (compute._master, compute._incarnation) == ("master-2", "life-2")  # type: ignore[attr-defined]


def test_every_gradient_of_a_former_life_is_forgotten() -> None:
    class Compute:
        forgotten: ClassVar[list[int]] = []

        def forget(self, place: int) -> None:
            self.forgotten.append(place)

    begin_life(Compute(), welcome())  # type: ignore[arg-type]
    assert Compute.forgotten == [0, 1]


@pytest.mark.parametrize(
    "changes", [{"run": "run-2"}, {"worker": 2}, {"held": [2, 3]}, {"coefficients": [1.0, 2.0]}, {"config": None}]
)
def test_another_run_or_assignment_is_built_anew(changes: dict[str, object]) -> None:
    preparation = Preparation(1, ())
    first = preparation(welcome())
    other = welcome("seed=5") if "config" in changes else welcome(**changes)
    assert preparation(other).compute is not first.compute
