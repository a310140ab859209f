"""Runs whose networks fail: two short ones for real, and how the figures of all are read from what was seen."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.torture.networks.measure import back, first_after, longest_pause, measure
from pgczmq.bench.torture.networks.scenarios import SCENARIOS, TOO_MANY, Scenario, cutting
from pgczmq.bench.torture.networks.site import Answer, Seen, Tail
from pgczmq.cli import networks
from pgczmq.errors import ConfigError

needs_hosts = pytest.mark.skipif(bool(Lab.why_not()), reason=Lab.why_not() or "not skipped")
BACK = ("back_median", "back_worst")
BEAT = {"net.heartbeat": 0.5}


@needs_hosts
@pytest.mark.timeout(120)
def test_a_run_waits_for_more_than_s_workers_that_are_cut_off_and_has_them_back() -> None:
    scenario = Scenario("more", "", TOO_MANY, cutting(TOO_MANY, 4.0), waits=True, settings=BEAT)
    outcome = measure(scenario)
    assert not outcome.wrong
    assert set(outcome.back) == set(TOO_MANY)


@needs_hosts
@pytest.mark.timeout(120)
def test_on_a_slow_link_nothing_is_sent_twice() -> None:
    """The answers of a step are on their way for three seconds, and what is lost is asked for after one."""
    slow = next(scenario for scenario in SCENARIOS if scenario.name == "slow")
    scenario = replace(slow, size=150_000, steps=2, settings={**slow.settings, **BEAT})
    outcome = measure(scenario)
    assert not outcome.wrong
    assert outcome.steps == 2
    assert outcome.sent < 1.3, "with all that is not listed after two beats sent again it was 1.7"


SEEN = Seen(
    steps=[(0.0, 0), (1.0, 1), (2.0, 2), (7.0, 3), (8.0, 4), (9.0, 5)],
    answers=[Answer(6.5, 0, 3), Answer(7.5, 0, 4), Answer(7.75, 1, 4), Answer(8.5, 0, 5)],
)


def test_the_first_step_after_a_moment_was_published_after_it() -> None:
    assert first_after(SEEN, 2.5) == 8.0 - 2.5
    assert first_after(SEEN, 7.0) == 9.0 - 7.0
    assert math.isnan(first_after(SEEN, 8.5))


def test_the_longest_pause_may_begin_before_the_moment() -> None:
    assert longest_pause(SEEN, 3.0) == 5.0
    assert longest_pause(SEEN, 7.5) == 1.0
    assert math.isnan(longest_pause(SEEN, 9.0))


def test_a_worker_is_back_with_an_answer_to_a_step_published_since() -> None:
    assert back(SEEN, (0, 1), 6.0) == {0: 1.5, 1: 1.75}
    assert back(SEEN, (1, 2), 6.0) == {1: 1.75}


def test_lines_are_read_once_when_they_are_whole_and_all_of_a_file_that_takes_the_place(tmp_path: Path) -> None:
    file, other = tmp_path / "steps.jsonl", tmp_path / "other"
    tail = Tail(file)
    assert list(tail.records()) == []
    file.write_text('{"step": 0}\n{"step"')
    assert list(tail.records()) == [{"step": 0}]
    with file.open("a") as appended:
        appended.write(": 1}\n")
    assert list(tail.records()) == [{"step": 1}]
    assert list(tail.records()) == []
    other.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n')
    other.replace(file)
    assert [record["step"] for record in tail.records()] == [0, 1, 2]


def test_scenarios_have_names_of_their_own_and_can_be_chosen() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert list(networks.chosen("")) == list(SCENARIOS)
    assert [scenario.name for scenario in networks.chosen("slow, one")] == ["slow", "one"]
    with pytest.raises(ConfigError, match=r"--only takes names of one, s, .*: got two"):
        networks.chosen("one,two")


def test_the_command_says_what_was_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    outcome = networks.Outcome("one", "cut off", 20.0, 0.1, 0.2, 0.3, {0: 2.0, 1: 4.0}, 100, 1.25, ("steps are lost",))
    monkeypatch.setattr(networks, "measure", lambda scenario: outcome)
    monkeypatch.setattr(Lab, "why_not", staticmethod(lambda: ""))
    file = tmp_path / "networks.json"
    assert networks.show("one", file) == 1
    last = " ".join(capsys.readouterr().out.splitlines()[-1].split())
    assert last == "one 20.0 0.10 0.30 0.20 3.00 4.00 100 1.25 NO: steps are lost (cut off)"
    row = json.loads(file.read_text())[0]
    assert (row["wrong"], row["back"], row["back_worst"]) == (["steps are lost"], {"0": 2.0, "1": 4.0}, 4.0)


def test_figures_that_there_are_not_are_null() -> None:
    nan = math.nan
    row = networks.row(networks.Outcome("slow", "", 0.0, nan, nan, 1.0, {}, 0, nan, ()))
    assert [name for name, value in row.items() if value is None] == ["first", "after", "sent", *BACK]


def test_where_there_can_be_no_hosts_it_says_why(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(Lab, "why_not", staticmethod(lambda: "No."))
    assert networks.show("", None) == 0
    assert capsys.readouterr().out == "skipped: No.\n"
