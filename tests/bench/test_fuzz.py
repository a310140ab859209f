"""Twenty thousand hostile messages to a live master, and two thousand to a live worker, change nothing."""

import random
import re

import msgpack
import pytest

from pgczmq import config as configs
from pgczmq.bench.torture.fuzz import judge, run
from pgczmq.bench.torture.fuzz.false_master import deceive
from pgczmq.bench.torture.fuzz.hostile import Hostile
from pgczmq.bench.torture.fuzz.packing import packed
from pgczmq.bench.torture.fuzz.zmtp import GREETING, Parser, framed, ready
from pgczmq.net import wire

THEIRS = {"run": "r", "master": "m", "worker": 0, "incarnation": "abc"}
REAL = [
    [wire.pack(wire.Hello(worker=0, incarnation="abc", package="1", host="h", pid=1))],
    [wire.pack(wire.Heartbeat(state="idle", step=3, **THEIRS)), b"payload" * 100],
]
SEED = 1


@pytest.mark.timeout(180)
def test_twenty_thousand_hostile_messages_change_nothing_at_a_live_master():
    outcome = run.fuzz(20_000, SEED)
    assert not outcome.wrong
    assert outcome.messages >= 20_000
    assert outcome.steps > 0
    assert 0 < outcome.named < outcome.refused
    assert len(outcome.sent) == 16, "of every kind there were some"
    assert len(outcome.lies) == 10


@pytest.mark.timeout(120)
def test_two_thousand_hostile_messages_change_nothing_at_a_live_worker():
    outcome = deceive(2000, SEED)
    assert not outcome.wrong
    assert outcome.answered > 0
    assert len(outcome.sent) >= 12


# ---------------------------------------------------------------- what it is made of


def hostile(seed=SEED):
    return Hostile(seed, control=REAL, gradients=REAL, workers=3)


def test_the_same_seed_says_the_same():
    one, other = hostile(), hostile()
    assert [one.identity() for _ in range(20)] == [other.identity() for _ in range(20)]
    assert [one.message("control") for _ in range(500)] == [other.message("control") for _ in range(500)]
    assert [hostile(2).message("control") for _ in range(20)] != [hostile(3).message("control") for _ in range(20)]


def test_no_connection_calls_itself_as_another_does():
    source = hostile()
    names = [source.identity() for _ in range(5000)]
    assert len(set(names)) == len(names)
    assert all(1 <= len(name) <= 255 for name in names)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63 - 1,
        -(2**63),
        2**64 - 1,
        1.5,
        "",
        "ü" * 300,
        b"x" * 70,
        [1, [2, "a"]],
        {"a": {"b": None}},
    ],
)
def test_packing_is_messagepack(value):
    assert msgpack.unpackb(packed(value)) == value


def test_frames_come_apart_as_they_were_put_together_however_they_arrive():
    draw = random.Random(4)
    messages = [
        [draw.randbytes(draw.choice((0, 3, 255, 256, 70_000))) for _ in range(draw.randint(1, 3))] for _ in range(50)
    ]
    data = GREETING + ready("DEALER", b"me") + b"".join(map(framed, messages))
    parser, found = Parser(), []
    while data:
        size = draw.choice((1, 7, 5000, 200_000))
        found += parser.take(data[:size])
        data = data[size:]
    assert found == messages
    assert parser.commands == 1


# ---------------------------------------------------------------- the judge


def test_the_judge_knows_the_weights_of_an_undisturbed_run():
    config = configs.loads(run.CONFIG)
    ends = {judge.undisturbed(config, steps, honest=honest) for steps in (3, 4) for honest in (3, 4)}
    assert len(ends) == 4


def test_the_judge_sees_peers_named_twice_and_control_characters(tmp_path):
    log = tmp_path / "master.log"
    line = "refused a message of peer {!r}: why; more of its kind are only counted\n"
    log.write_text("".join(map(line.format, (b"a'b", b'c"d', b"e"))))
    assert judge.named(log) == [repr(b"a'b"), repr(b'c"d'), repr(b"e")]
    assert judge._of_log(log) == []
    log.write_text(line.format(b"e") * 2 + "\x1b[2J")
    wrong = judge._of_log(log)
    assert re.match(r"1 peers are named more than once in the log, such as b'e'", wrong[0])
    assert wrong[1] == "the log has '\\x1b'"


@pytest.mark.parametrize(
    ("memory", "descriptors", "count"), [((10, 20_000_010), (5, 13), 0), ((10, 20_000_011), (5, 14), 2)]
)
def test_the_judge_allows_so_much_growth(memory, descriptors, count):
    assert len(judge.grown(memory, descriptors)) == count
