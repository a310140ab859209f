"""Records as arrays, and long lines made short."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from left_runs import left_run, spoil
from made_up_run import late, step_record

from pgczmq.errors import ConfigError
from pgczmq.view.pictures.past import LATE, MISSING, SPARE, USED, read_past
from pgczmq.view.pictures.smooth import binned, envelope, latest_mean, stretches


def test_a_run_is_who_answered_when(tmp_path: Path) -> None:
    past = read_past(left_run(tmp_path / "try"))
    assert past.latency_SN.shape == past.fate_SN.shape == (40, 4)
    assert past.fate_SN[:4].tolist() == [[USED] * 4, [*[USED] * 3, MISSING], [USED] * 4, [*[USED] * 3, LATE]]
    assert past.latency_SN[0].tolist() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert past.latency_SN[3, 3] == pytest.approx(0.25)
    assert math.isnan(past.latency_SN[1, 3])
    assert past.published_S[:2].tolist() == pytest.approx([0.0, 0.25])
    assert past.period_S[:2].tolist() == pytest.approx([0.24, 0.25])
    assert (past.mean_age_S[0], past.max_age_S[0]) == (0.5, 1)
    assert past.eval_steps_E.tolist() == [20, 40]
    assert past.eval_at_E[1] == past.applied_S[39]
    assert [event.kind for event in past.events] == ["left"]


def test_spare_answers_are_neither_used_nor_late(tmp_path: Path) -> None:
    step = replace(step_record(0, 3), used=(0, 1), spare=(2,), ages=((0,), (0,)))
    assert read_past(left_run(tmp_path / "try", [step])).fate_SN.tolist() == [[USED, USED, SPARE]]


def test_who_was_late_at_a_step_that_was_done_again_is_not_late_at_it(tmp_path: Path) -> None:
    """The answer came before the step was published for the second time; and who came the second time came."""
    steps = [step_record(0), replace(step_record(1, missing=[3]), published_at=5.0)]
    past = read_past(left_run(tmp_path / "try", [*steps, late(3, 1), late(2, 0)]))
    assert past.fate_SN.tolist() == [[USED] * 4, [USED, USED, USED, MISSING]]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("steps.jsonl", {"arrived": [70_000]}),
        ("steps.jsonl", {"arrived": [-1]}),
        ("steps.jsonl", {"used": ["<script>"]}),
        ("steps.jsonl", {"loss": "much"}),
        ("steps.jsonl", {"step": 7}),
        ("steps.jsonl", {"arrived_at": [1.0]}),
        ("steps.jsonl", {"ages": 3}),
        ("evals.jsonl", {"metric": "much"}),
        ("events.jsonl", {"at": "noon"}),
    ],
)
def test_records_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path, name: str, fields: dict[str, object]) -> None:
    directory = left_run(tmp_path / "try")
    spoil(directory, name, **fields)
    with pytest.raises(ConfigError, match="cannot be those of a run"):
        read_past(directory)


def test_a_run_without_a_step_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no step: its run has not closed one"):
        read_past(left_run(tmp_path / "try", []))


def test_the_mean_of_the_latest() -> None:
    smooth, window = latest_mean(np.arange(80.0))
    assert window == 2
    assert smooth[:3].tolist() == [0.0, 0.5, 1.5]
    assert latest_mean(np.array([1e20, *[1.0] * 79]))[0].tolist() == [1e20, 0.5e20, *[1.0] * 78]
    assert latest_mean(np.arange(5.0))[1] == 1
    assert latest_mean(np.empty(0))[0].size == 0
    assert latest_mean(np.arange(1e5))[1] == 100


def test_stretches_cover_everything_and_are_not_too_many() -> None:
    assert stretches(7, 3) == [0, 3, 6, 7]
    assert stretches(3, 10) == [0, 1, 2, 3]
    x, low = binned(np.arange(7.0), np.array([3.0, 1, 2, 5, math.nan, 4, math.nan]), 3, np.nanmin)
    assert x.tolist() == [1.0, 4.0, 6.0]
    assert low.tolist()[:2] == [1.0, 4.0]
    assert math.isnan(low[2])


def test_an_envelope_keeps_what_sticks_out() -> None:
    values = np.zeros(1000)
    values[501], values[502] = 9.0, -9.0
    x, y = envelope(np.arange(1000.0), values, 10)
    assert x.size == 20
    assert (y.min(), y.max()) == (-9.0, 9.0)
    assert envelope(np.arange(5.0), values[:5], 10)[1].size == 5
