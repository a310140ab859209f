"""``[[faults]]``: read, checked, taken to the workers, and refused where nobody can make them."""

import tomllib

import pytest

from pgczmq import config
from pgczmq.app import master, simulate
from pgczmq.app.explain import explain
from pgczmq.app.faults import faults_of
from pgczmq.core.faults import FaultPlan, FaultRule
from pgczmq.errors import ConfigError

TABLES = """
workers = 5
seed = 9
[[faults]]
kind = "kill"
workers = [3]
steps = [100, 200]
seconds = 5
[[faults]]
kind = "drop"
first = 10
last = 20
probability = 0.01
"""


def run_of(*settings):
    return config.load(None, settings, {})


def test_tables_become_a_plan_and_reach_the_workers_as_they_are():
    run = config.loads(TABLES)
    plan = faults_of(run)
    kill = FaultRule("kill", frozenset({3}), frozenset({100, 200}), seconds=5.0)
    assert plan == FaultPlan(9, (kill, FaultRule("drop", first=10, last=20, probability=0.01)))
    assert faults_of(config.loads(run.to_toml())) == plan
    assert len(tomllib.loads(run.to_toml())["faults"]) == 2
    assert explain(run)["faults"] == [str(rule) for rule in plan.rules]


def test_they_can_be_set_and_left_out_on_the_command_line():
    (rule,) = faults_of(run_of('faults=[{kind="slow", seconds=1}]')).rules
    assert rule == FaultRule("slow", seconds=1.0)
    assert faults_of(run_of("faults=[]")) == FaultPlan(1)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ('{kind="explode"}', "faults.kind should be 'drop', 'delay', .*: got 'explode'"),
        ("{workers=[1]}", "faults.kind"),
        ('{kind="drop", probability=1.5}', "faults.probability should be less than or equal to 1: got 1.5"),
        ('{kind="drop", steps=[-1]}', "faults.steps should be greater than or equal to 0: got -1"),
        ('{kind="stop", seconds=0}', "faults.seconds should be greater than 0: got 0"),
        ('{kind="drop", worker=1}', "there is no setting faults.worker. The nearest is faults.workers."),
        ('{kind="drop", workers=[7, -1]}', "faults.workers names workers of this run, 0 to 3: got 7, -1."),
        ('{kind="stop"}', "lasts for some time"),
    ],
)
def test_what_cannot_be_is_refused_in_words(fault, sentence):
    with pytest.raises(ConfigError, match=sentence):
        master.check(run_of("workers=4", f"faults=[{fault}]"))


def test_a_deterministic_run_takes_those_faults_that_lose_no_answer():
    settings = "workers=4", "deterministic=true"
    lasting = "{{kind='{}', seconds=1}}"
    for kind in ("drop", "duplicate", "reorder"):
        master.check(run_of(*settings, f"faults=[{{kind='{kind}'}}]"))
    for kind in ("delay", "slow"):
        master.check(run_of(*settings, f"faults=[{lasting.format(kind)}]"))
    harmful = "{kind='corrupt'}, {kind='kill', seconds=1}, {kind='stop', seconds=1}, {kind='partition', seconds=1}"
    with pytest.raises(ConfigError, match=r"faults of kind corrupt, kill, partition, stop. Leave them out; those that"):
        master.check(run_of(*settings, f"faults=[{harmful}]"))


def test_each_driver_says_what_the_other_does():
    with pytest.raises(ConfigError, match=r"a simulation has no processes .* pgc local and pgc-worker make faults"):
        simulate.check(run_of('faults=[{kind="drop"}]'))
    with pytest.raises(ConfigError, match=r'write \[\[faults\]\] with kind = "kill", or simulate them: pgc sim'):
        master.check(run_of("delay.failures=[{worker=1, down_at=3}]"))
