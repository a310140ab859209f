"""Tasks, schemes, delay models and policies that installed packages bring along."""

import sys
from pathlib import Path

import pytest

from pgczmq import config
from pgczmq.app.allowed import asked_for, check_allowed
from pgczmq.app.build import SCHEME, delay_of, scheme_of
from pgczmq.bench import compare
from pgczmq.bench.tally import Goal
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.extensions import installed
from pgczmq.train.task import load_task

CODE = """
from dataclasses import dataclass, replace
from pgczmq.core.delays import ConstantDelay
from pgczmq.core.policies import FixedPolicy, Plan
from pgczmq.core.schemes import build

def moons(samples: int = 40, *, seed: int):
    from pgczmq.train.tasks import logistic_regression
    return logistic_regression(samples=samples, seed=seed)

def patient(settings):
    return replace(build(replace(settings, name="is-sgd")), k=settings.workers)

def slow(seconds: float = 2.0):
    return ConstantDelay(seconds)

def two():
    return FixedPolicy(Plan(2))

number = 3
"""
OFFERED = """
[pgczmq.tasks]
moons = {package}:moons

[pgczmq.schemes]
patient = {package}:patient
pgc-cr = {package}:patient
broken = {package}.absent:patient
number = {package}:number

[pgczmq.delays]
slow = {package}:slow

[pgczmq.policies]
two = {package}:two
"""


def install(site: Path, package: str, offered: str = OFFERED) -> None:
    """What an installer leaves behind: the code, and beside it what the package says of itself."""
    (site / f"{package}.py").write_text(CODE)
    about = site / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(offered.format(package=package))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, "pgc_more")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pgc_more", raising=False)
    return tmp_path


def run_of(*given: str) -> RunConfig:
    return config.load(None, ["workers=4", *given], {})


@pytest.mark.usefixtures("site")
def test_what_a_package_offers_goes_by_its_name() -> None:
    assert len(load_task("moons", {"samples": 50}, 1).train) == 40
    run = run_of("scheme.name=patient", "policy.name=two", "delay.model=slow", "delay.args.seconds=3")
    scheme = scheme_of(run)
    assert (scheme.name, scheme.k, scheme.policy.first().plan.k) == ("patient", 4, 2)
    assert delay_of(run).seconds(0, 0, 1, 1.0) == 3.0


@pytest.mark.usefixtures("site")
def test_workers_run_it_without_being_told_since_their_owner_installed_it() -> None:
    run = run_of("task.name=moons", "scheme.name=patient", "delay.model=slow", "policy.name=two")
    assert asked_for(run) == {}
    check_allowed(run, ())


@pytest.mark.usefixtures("site")
def test_built_in_names_cannot_be_taken() -> None:
    assert scheme_of(run_of("scheme.name=pgc-cr")).k == 3
    assert "pgc-cr" not in installed(SCHEME)


@pytest.mark.usefixtures("site")
def test_a_comparison_takes_installed_schemes() -> None:
    made = compare.grid(run_of(), ["patient"], [1], seeds=1, engine="timing", goal=Goal())
    assert [case.label for case in made.cases] == ["patient s=1"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("patent", "there is no scheme patent. The nearest is patient. It is one of dgd, .*, patient, what a package"),
        ("broken", "cannot import pgc_more.absent:patient of package pgc_more: ModuleNotFoundError"),
        ("number", "pgc_more:number of package pgc_more is not a function"),
    ],
)
@pytest.mark.usefixtures("site")
def test_what_does_not_work_is_a_sentence(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scheme_of(run_of(f"scheme.name={name}"))


def test_two_packages_with_one_name_are_both_named(site: Path) -> None:
    install(site, "pgc_other")
    with pytest.raises(ConfigError) as caught:
        scheme_of(run_of("scheme.name=patient"))
    assert "has to be one scheme" in str(caught.value)
    assert "pgc_more:patient of package pgc_more" in str(caught.value)
    assert "pgc_other:patient of package pgc_other" in str(caught.value)
