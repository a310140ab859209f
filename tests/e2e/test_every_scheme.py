"""Every scheme through real processes: a few steps, and what the records say of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgczmq.core.schemes import SCHEMES

STEPS = 60
"""Who answers first is chance, and with it how far the first steps get: after 30, fastest-k was at .49 once."""


def trained(pgc_local: Callable[..., dict[str, Any]], scheme: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Result and step records of a short run, of which what must hold for every scheme is checked."""
    result = pgc_local(f"scheme.name={scheme}", f"steps={STEPS}", "eval.every=0", "optimizer.lr=0.1")
    assert (result["exit"], result["scheme"]) == (0, scheme)
    steps = [json.loads(line) for line in (Path(result["run"]) / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(result["steps"]))
    for step in steps:
        assert set(step["used"]) <= set(step["arrived"])
        assert sorted(step["arrived"] + step["missing"]) == list(range(8))
        assert len(step["weights"]) == len(step["ages"]) == len(step["used"])
    return result, steps


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "pgc-cr-naive"])
def test_every_scheme_trains_the_digits(scheme: str, pgc_local: Callable[..., dict[str, Any]]) -> None:
    result, steps = trained(pgc_local, scheme)
    assert result["steps"] == STEPS
    first, last = (sum(step["loss"] for step in part) for part in (steps[:5], steps[-5:]))
    assert last < 0.8 * first
    assert result["accuracy"] > 0.5


def test_the_naive_scheme_trains_or_is_said_to_diverge(pgc_local: Callable[..., dict[str, Any]]) -> None:
    result, _ = trained(pgc_local, "pgc-cr-naive")
    assert result["diverged"] == result["reason"].startswith("diverged at step")
    assert result["diverged"] or result["steps"] == STEPS
