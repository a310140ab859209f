"""Every scheme through real processes: a few steps, and what the records say of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgczmq.core.schemes import SCHEMES

STEPS = 30


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_the_digits(scheme: str, pgc_local: Callable[..., dict[str, Any]]) -> None:
    result = pgc_local(f"scheme.name={scheme}", f"steps={STEPS}", "eval.every=0", "optimizer.lr=0.1")
    assert (result["exit"], result["steps"], result["scheme"]) == (0, STEPS, scheme)
    steps = [json.loads(line) for line in (Path(result["run"]) / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(STEPS))
    for step in steps:
        assert set(step["used"]) <= set(step["arrived"])
        assert sorted(step["arrived"] + step["missing"]) == list(range(8))
        assert len(step["weights"]) == len(step["ages"]) == len(step["used"])
    first, last = (sum(step["loss"] for step in part) for part in (steps[:5], steps[-5:]))
    assert last < 0.8 * first
    assert result["accuracy"] > 0.5
