"""Numbers and incarnations: who is admitted, who is probed, who is turned away."""

import pytest

from pgczmq.core.engine import Engine, Rules
from pgczmq.core.events import Admit, Command, Heard, Joined, Left, Note, Probe, Ready, Reject, Tick
from pgczmq.core.members import Members
from pgczmq.core.schemes import Settings, build

ALIVE = "worker 1 is already in this run and alive; choose another --id, or stop that one first"

TAKEN = "all 3 worker numbers are taken; raise workers in the configuration to add more"


def started(workers: int = 3) -> Engine:
    """All numbers taken by incarnation ``a``, ready at 0."""
    scheme = build(Settings(name="is-sgd", workers=workers, k=1))
    engine = Engine(scheme, Rules(steps=10, heartbeat=2.0), lambda *_: 0.0, started_at=0.0)
    for worker in range(workers):
        engine.handle(Joined(worker, f"a{worker}", 0.0))
        engine.handle(Ready(worker, f"a{worker}", 0.0))
    return engine


def hear_all_but(engine: Engine, silent: int, at: float) -> None:
    for worker in range(3):
        if worker != silent:
            engine.handle(Heard(worker, f"a{worker}", at))


def kinds(commands: list[Command]) -> list[type]:
    return [type(command) for command in commands]


def test_numbers_are_given_out_lowest_first_and_taken_back_from_the_gone() -> None:
    scheme = build(Settings(name="dgd", workers=3))
    engine = Engine(scheme, Rules(steps=1), lambda *_: 0.0, started_at=0.0)
    assert engine.handle(Joined(1, "x", 0.0)) == [Admit(1, "x")]
    assert engine.handle(Joined(None, "y", 0.0)) == [Admit(0, "y")]
    assert engine.handle(Joined(None, "z", 0.0)) == [Admit(2, "z")]
    engine.handle(Left(0, "y", "left", 1.0))
    assert engine.handle(Joined(None, "w", 1.0)) == [Admit(0, "w")]


def test_whoever_finds_all_numbers_taken_is_told_once_all_holders_have_been_heard_of_since() -> None:
    engine = started()
    assert engine.handle(Joined(None, "b", 1.0)) == []
    hear_all_but(engine, 2, 1.5)
    assert engine.handle(Joined(None, "b", 2.0)) == []  # is worker 2 dead?
    engine.handle(Heard(2, "a2", 2.5))
    assert engine.handle(Joined(None, "b", 3.0)) == [Reject(None, "b", TAKEN)]
    assert engine.handle(Joined(None, "c", 3.0)) == []  # somebody else, who asks for the first time


def test_a_worker_without_a_number_that_is_killed_and_started_again_gets_its_number_back() -> None:
    engine = started()
    engine.handle(Joined(None, "b", 1.0))  # worker 2 was killed, nobody knows it yet
    for second in range(2, 7):
        hear_all_but(engine, 2, second - 0.5)
        engine.handle(Tick(float(second)))
        assert engine.handle(Joined(None, "b", float(second))) == []
    engine.handle(Tick(6.5))
    assert engine.handle(Joined(None, "b", 6.6)) == [Admit(2, "b")]


def test_a_master_that_was_stopped_does_not_take_holders_for_heard_of() -> None:
    engine = started()
    engine.handle(Joined(None, "b", 1.0))
    engine.handle(Tick(101.0, deaf=100.0))
    assert engine.handle(Joined(None, "b", 101.5)) == []


def test_of_strangers_that_ask_for_any_number_only_so_many_are_remembered() -> None:
    engine = started()
    for place in range(3):
        assert engine.handle(Joined(None, f"b{place}", 1.0)) == []
    assert engine.handle(Joined(None, "b3", 1.0)) == [Reject(None, "b3", TAKEN)]
    hear_all_but(engine, 3, 7.0)
    engine.handle(Tick(7.5))  # those before have given up
    assert engine.handle(Joined(None, "b3", 8.0)) == []


def test_one_worker_that_asks_twice_for_any_number_gets_the_same_one() -> None:
    scheme = build(Settings(name="dgd", workers=3))
    engine = Engine(scheme, Rules(steps=1), lambda *_: 0.0, started_at=0.0)
    assert engine.handle(Joined(None, "x", 0.0)) == [Admit(0, "x")]
    assert engine.handle(Joined(None, "x", 1.0)) == [Admit(0, "x")]
    assert engine.handle(Joined(None, "y", 1.0)) == [Admit(1, "y")]


def test_numbers_out_of_range_are_rejected_with_the_range() -> None:
    engine = started()
    for worker in (-1, 3):
        text = f"worker numbers run from 0 to 2 in this run: got {worker}"
        assert engine.handle(Joined(worker, "x", 0.0)) == [Reject(None, "x", text)]  # nobody of this run


def test_a_rival_for_a_live_number_is_rejected_once_the_holder_is_heard() -> None:
    engine = started()
    assert engine.handle(Joined(1, "b", 1.0)) == [Probe(1, "a1")]
    assert engine.handle(Heard(1, "a1", 1.0)) == []
    assert engine.handle(Heard(1, "a1", 1.1)) == [Reject(1, "b", ALIVE)]
    assert engine.handle(Heard(1, "a1", 1.2)) == []
    assert engine.handle(Heard(1, "b", 1.3)) == []


def test_a_rival_is_admitted_when_the_holder_is_gone() -> None:
    engine = started()
    engine.handle(Joined(1, "b", 1.0))
    said = engine.handle(Left(1, "a1", "cannot be reached", 1.2))
    assert said == [Note("left", "worker 1 cannot be reached", worker=1), Admit(1, "b")]
    assert kinds(engine.handle(Ready(1, "b", 1.3)))[0] is Note


def test_a_rival_of_a_gone_worker_is_admitted_at_once() -> None:
    engine = started()
    engine.handle(Left(1, "a1", "said goodbye", 1.0))
    assert engine.handle(Joined(1, "b", 1.1)) == [Admit(1, "b")]


def test_a_rival_is_admitted_one_heartbeat_after_the_probe_when_the_holder_stays_silent() -> None:
    engine = started()
    engine.handle(Joined(1, "b", 1.0))
    hear_all_but(engine, 1, 2.9)
    assert engine.handle(Tick(2.9)) == []
    hear_all_but(engine, 1, 3.1)
    said = engine.handle(Tick(3.1))
    assert said == [Note("left", "worker 1 has been silent for 3.1 s", worker=1), Admit(1, "b")]


def test_the_holder_has_a_heartbeat_to_answer_the_probe_however_long_it_was_silent_before() -> None:
    engine = started()
    engine.handle(Tick(1.9))
    engine.handle(Joined(1, "b", 1.95))
    assert engine.handle(Tick(2.1)) == []
    assert engine.handle(Heard(1, "a1", 2.2)) == [Reject(1, "b", ALIVE)]


def test_a_rival_that_keeps_asking_does_not_put_off_its_own_admission() -> None:
    engine = started()
    for at in (1.0, 1.5, 2.0, 2.5):
        assert engine.handle(Joined(1, "b", at)) == [Probe(1, "a1")]
        hear_all_but(engine, 1, at)
        assert engine.handle(Tick(at)) == []
    hear_all_but(engine, 1, 3.2)
    assert Admit(1, "b") in engine.handle(Tick(3.2))


def test_of_two_rivals_none_is_left_without_an_answer() -> None:
    engine = started()
    engine.handle(Joined(1, "b", 1.0))
    said = engine.handle(Joined(1, "c", 1.1))
    assert kinds(said) == [Reject, Probe]
    assert said[0].incarnation == "b"  # type: ignore[union-attr]
    assert engine.handle(Left(1, "a1", "left", 1.2))[-1] == Admit(1, "c")


def test_the_holder_asking_again_turns_its_rival_away() -> None:
    engine = started()
    engine.handle(Joined(1, "b", 1.0))
    assert engine.handle(Joined(1, "a1", 1.5)) == [Reject(1, "b", ALIVE), Admit(1, "a1")]


def lives_of_one_process(number: int | None) -> Engine:
    """Worker 1 is in its first life, and the hello of its second one is read."""
    engine = started()
    engine.handle(Left(1, "a1", "stopped", 0.1))
    assert engine.handle(Joined(1, "p1", 0.2, "p")) == [Admit(1, "p1")]
    engine.handle(Ready(1, "p1", 0.3))
    assert engine.handle(Joined(number, "p2", 1.0, "p")) == [Probe(1, "p1")]
    return engine


@pytest.mark.parametrize("number", [1, None])
def test_what_a_worker_said_in_its_life_before_does_not_keep_the_next_one_out(number: int | None) -> None:
    """A master that was stopped reads both at once, in any order."""
    engine = lives_of_one_process(number)
    assert engine.handle(Heard(1, "p1", 1.1)) == []
    assert engine.handle(Joined(1, "p1", 1.1, "p")) == []
    hear_all_but(engine, 1, 1.2)
    assert engine.handle(Tick(1.2)) == [Note("left", "worker 1 begins again", worker=1), Admit(1, "p2")]
    assert kinds(engine.handle(Ready(1, "p2", 1.3)))[0] is Note


def test_the_life_of_another_process_must_find_nobody_alive() -> None:
    engine = lives_of_one_process(1)
    assert kinds(engine.handle(Joined(1, "q1", 1.1, "q"))) == [Reject, Probe]
    assert engine.handle(Heard(1, "p1", 1.2)) == [Reject(1, "q1", ALIVE)]
    assert engine.handle(Joined(1, "q2", 1.3, "q")) == [Probe(1, "p1")], "they are of one process, and have no number"


def test_a_worker_that_says_hello_again_must_get_ready_again_and_is_then_sent_the_open_step() -> None:
    engine = started()
    assert engine.handle(Joined(1, "a1", 1.0)) == [Admit(1, "a1")]
    said = engine.handle(Ready(1, "a1", 1.1))
    assert [getattr(command, "kind", type(command).__name__) for command in said] == ["ready", "Send"]


def test_getting_ready_twice_or_as_a_stranger_changes_nothing() -> None:
    engine = started()
    assert engine.handle(Ready(1, "a1", 1.0)) == []
    assert engine.handle(Ready(1, "b", 1.0)) == []
    assert engine.handle(Ready(7, "b", 1.0)) == []


def test_what_is_still_on_its_way_does_not_bring_back_a_worker_that_said_goodbye() -> None:
    members = Members(3, 1.0)
    members.join(Joined(1, "life", 0.0))
    members.make_ready(1, "life", 0.1)
    members.leave(1, "life", "left: SIGTERM", 0.4, state="left")
    assert members.hear(1, "life", 0.5) == (False, [])
    assert 1 not in members.ready
    assert members.join(Joined(1, "next", 1.0)) == [Admit(1, "next")]
