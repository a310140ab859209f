"""Adaptive policies in real runs: k changes, and the records alone give the same k at every step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgczmq import config
from pgczmq.app.build import scheme_of
from pgczmq.core.policies import Finished, Plan, Statistics, states
from pgczmq.runlog import StepRecord, read

LINEAR = Path(__file__).resolve().parents[2] / "configs" / "linear.toml"
COMMON = (
    "workers=5",
    "steps=250",
    "net.port=0",
    "ui.mode=none",
    "eval.every=0",
    "optimizer.lr=0.05",
    "delay.model=none",
)


@pytest.mark.parametrize("name", ["is-sgd", "pgc-cr"])
@pytest.mark.parametrize("test", ["pflug", "distance"])
def test_k_changes_and_a_replay_of_the_records_agrees(
    name: str, test: str, pgc_local: Callable[..., dict[str, Any]]
) -> None:
    policy = ("policy.name=adaptive-k", f"policy.test={test}", "policy.burn_in=10", "policy.increment=2")
    # Right after the burn-in, whatever the signs: who answers first is chance, and with it how long there is progress.
    slack = ("policy.threshold=-12",) if test == "pflug" else ()
    result = pgc_local(*COMMON, f"scheme.name={name}", *policy, *slack, config=LINEAR)
    assert result["exit"] == 0, result["stderr"]
    directory = Path(result["run"])
    records = list(read(directory, StepRecord))
    used = [Plan(record.k, record.batch_fraction) for record in records]
    assert len(records) == 250 and len(set(used)) > 1
    finished = [
        Finished(
            record.step,
            len(record.arrived),
            record.closed_at - records[0].published_at,
            Statistics(record.norm, record.inner, record.distance),
        )
        for record in records
    ]
    scheme = scheme_of(config.load(directory / "config.toml", (), {}))
    assert [state.plan for state in states(scheme.policy, finished)][:-1] == used
    assert all(len(record.arrived) >= record.k for record in records)
