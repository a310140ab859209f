"""What ``pgc soak`` shows, from plain values."""

import io
from typing import Any

from rich.console import Console

from pgczmq.view.soak_view import facts, soak_table, verdict

HELD = {"memory_start": 60.0, "memory_end": 61.0, "memory_most": 62.5, "files_start": 50, "files_most": 55}
SOAKED: dict[str, Any] = {
    "plan": {"workers": 12},
    "scheme": "pgc-cr",
    "seconds": 300.2,
    "steps": 2000,
    "updates": 2040,
    "masters": 6,
    "worker_processes": 120,
    "deeds": {"kill": 90, "terminate": 18, "kill master": 5},
    "start_to_ready": {"count": 120, "median": 1.5, "worst": 4.0},
    "fault_to_ready": {"count": 100, "median": 2.25, "worst": 9.0},
    "master_to_next_step": {"count": 0},
    "answers": {"late": 1234, "used": 18_000},
    "held": {"master": HELD},
    "losses": {},
    "findings": [],
}


def test_everything_that_was_counted_is_shown() -> None:
    told = dict(facts(SOAKED))
    assert told["deeds"] == "90 workers killed, 18 workers terminated, 0 workers stopped, 5 masters killed"
    assert told["steps"] == "2,000, 40 of them twice, since a master was killed"
    assert told["fault to ready"] == "median 2.25 s, worst 9.00 s (100 times)"
    assert told["master to next step"] == "-"
    assert told["answers"] == "1,234 late, 18,000 used"
    assert told["a master held"] == (
        "MB 60 at the start, 61 at the end, 62.5 at most; open files 50 at the start, - at the end, 55 at most"
    )
    assert "loss" not in told


def test_losses_are_shown_beside_each_other() -> None:
    told = dict(facts(SOAKED | {"losses": {"disturbed": 0.12346, "undisturbed": [0.1, 0.2]}, "answers": {}}))
    assert told["loss"] == "0.1235; of undisturbed runs 0.1, 0.2"
    assert "answers" not in told


def test_the_verdict_is_one_line() -> None:
    assert verdict(SOAKED) == "audit: clean"
    assert verdict(SOAKED | {"findings": ["a step is missing"]}) == "AUDIT: 1 finding"


def test_the_table_can_be_printed() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(soak_table(SOAKED | {"scheme": "[bold]x[/tag]"}))
    assert "[bold]x[/tag]" in console.export_text()
