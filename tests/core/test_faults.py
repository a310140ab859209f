"""Faults as planned: the same for whoever asks, as often as said, and nothing that contradicts itself."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgczmq.core.faults import HARMLESS, LASTING, OF_MESSAGES, FaultPlan, FaultRule, Kind
from pgczmq.errors import ConfigError

KINDS = get_args(Kind)
NUMBERS = st.frozensets(st.integers(0, 20), min_size=1, max_size=5)


@st.composite
def rules(draw):
    kind = draw(st.sampled_from(KINDS))
    lasts = kind in LASTING or (kind == "kill" and draw(st.booleans()))
    listed = draw(st.booleans())
    first = 0 if listed else draw(st.integers(0, 20))
    return FaultRule(
        kind,
        workers=draw(st.none() | NUMBERS),
        steps=draw(NUMBERS) if listed else None,
        first=first,
        last=None if listed else draw(st.none() | st.integers(first, 30)),
        probability=draw(st.floats(0, 1)),
        seconds=draw(st.floats(0.01, 100)) if lasts else None,
    )


@settings(derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 2**63 - 1),
    made=st.lists(rules(), max_size=4),
    more=rules(),
    asked=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 200)), max_size=20),
)
def test_a_plan_is_a_function_of_seed_worker_and_step_alone(seed, made, more, asked):
    plan, again = FaultPlan(seed, tuple(made)), FaultPlan(seed, tuple(made))
    found = {pair: plan.of(*pair) for pair in asked}
    assert all(again.of(*pair) == found[pair] for pair in reversed(asked))
    longer = FaultPlan(seed, (*made, more))
    assert all(longer.of(*pair)[: len(found[pair])] == found[pair] for pair in asked)
    for (worker, step), faults in found.items():
        possible = [rule for rule in made if rule.covers(worker, step)]
        assert len(faults) <= len(possible)
        assert {fault.kind for fault in faults} <= plan.kinds(worker)
        assert all(0 <= fault.manner < 1 for fault in faults)
        certain = [(rule.kind, rule.seconds) for rule in possible if rule.probability == 1]
        assert not Counter(certain) - Counter((fault.kind, fault.seconds) for fault in faults)


def test_who_and_when():
    plan = FaultPlan(1, (FaultRule("drop", workers=frozenset({1, 3}), first=5, last=7),))
    struck = {(worker, step) for worker in range(5) for step in range(12) if plan.of(worker, step)}
    assert struck == {(worker, step) for worker in (1, 3) for step in (5, 6, 7)}
    listed = FaultPlan(1, (FaultRule("kill", steps=frozenset({0, 4})),))
    assert [step for step in range(9) if listed.of(8, step)] == [0, 4]
    open_ended = FaultPlan(1, (FaultRule("drop", first=3),))
    assert [bool(open_ended.of(0, step)) for step in (2, 3, 10**9)] == [False, True, True]


@pytest.mark.parametrize("probability", [0.0, 0.01, 0.25, 1.0])
def test_faults_are_as_frequent_as_said_and_those_of_two_rules_independent(probability):
    rule = FaultRule("drop", probability=probability)
    plan = FaultPlan(3, (rule, rule))
    pairs = [plan.of(worker, step) for worker in range(20) for step in range(1000)]
    share = sum(map(len, pairs)) / (2 * len(pairs))
    assert abs(share - probability) <= 4 * (probability * (1 - probability) / (2 * len(pairs))) ** 0.5
    both = sum(len(faults) == 2 for faults in pairs) / len(pairs)
    assert abs(both - probability**2) <= 4 * (probability**2 * (1 - probability**2) / len(pairs)) ** 0.5


def test_another_seed_is_another_plan_and_manners_are_spread():
    rule = FaultRule("corrupt", probability=0.5)
    one, other = ([FaultPlan(seed, (rule,)).of(0, step) for step in range(400)] for seed in (1, 2))
    assert one != other
    quarters = [int(4 * fault.manner) for faults in one for fault in faults]
    assert all(quarters.count(quarter) > 25 for quarter in range(4))


def test_every_kind_is_of_a_message_or_of_the_worker():
    assert set(KINDS) >= OF_MESSAGES | HARMLESS | LASTING
    assert set(KINDS) - OF_MESSAGES == {"kill", "stop", "partition", "slow"}
    assert FaultPlan(1).of(0, 0) == () and not FaultPlan(1).kinds(0)
    assert FaultPlan(1, (FaultRule("drop", workers=frozenset({2})),)).kinds(1) == frozenset()


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"kind": "stop"}, r'a fault of kind "stop" lasts for some time: got no seconds. Add seconds = 5.'),
        ({"kind": "drop", "seconds": 2.5}, 'takes no time of its own: got seconds=2.5. Leave it out, or use kind = "d'),
        ({"kind": "drop", "steps": frozenset({3, 1}), "last": 9}, r"got steps=\[1, 3\] and first=0, last=9. Leave one"),
        ({"kind": "drop", "steps": frozenset({3}), "first": 2}, r"got steps=\[3\] and first=2. Leave one"),
        (
            {"kind": "drop", "first": 5, "last": 4},
            "the first step of a fault comes before its last: got first=5, last=4",
        ),
        ({"kind": "drop", "workers": frozenset()}, "got an empty list. Leave it out for all."),
        ({"kind": "drop", "steps": frozenset()}, "got an empty list. Leave it out for all."),
    ],
)
def test_what_contradicts_itself_is_refused_in_words(made, sentence):
    with pytest.raises(ConfigError, match=sentence):
        FaultRule(**made)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (FaultRule("drop"), "drop: every worker at every step"),
        (
            FaultRule("drop", first=3, probability=0.01),
            "drop: every worker at every step from 3, with probability 0.01",
        ),
        (
            FaultRule("kill", frozenset({3}), frozenset({100, 200}), seconds=5),
            "kill: worker 3 at steps 100, 200, 5 s",
        ),
        (
            FaultRule("stop", frozenset({0, 1, 2, 4}), first=7, last=9, seconds=0.5),
            "stop: workers 0 to 2, 4 at steps 7 to 9, 0.5 s",
        ),
    ],
)
def test_in_words(rule, text):
    assert str(rule) == text
    assert str(FaultPlan(1, (rule, rule))) == f"{text}; {text}"
