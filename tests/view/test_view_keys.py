"""What keys change, and how a terminal spells them."""

import pytest

from pgczmq.view.live.keys import Look, keys_in, pressed

ORDER = (4, 0, 2)  # the workers as they are shown


def after(keys: list[str], look: Look | None = None) -> Look:
    look = look or Look()
    for key in keys:
        look = pressed(look, key, ORDER)
    return look


def test_sorts_follow_each_other_in_a_circle() -> None:
    assert [after(["s"] * times).sort for times in range(5)] == ["worst", "number", "latency", "late", "worst"]


def test_a_worker_closely_and_the_next_in_the_order_on_the_screen() -> None:
    assert after(["w"]).chosen == 4
    assert after(["w", "j"]).chosen == 0
    assert after(["w", "down", "j", "j"]).chosen == 4
    assert after(["w", "k"]).chosen == after(["w", "up"]).chosen == 2
    assert after(["j"]).chosen == 4
    assert after(["w", "j", "w"]).chosen is None
    assert after(["w", "j", "w", "w"]).chosen == 0  # where one was before
    assert after(["w", "escape"]).chosen is None


def test_a_worker_that_is_not_there_any_more() -> None:
    assert pressed(Look(chosen=9, last=9), "j", ORDER).chosen == 4
    assert pressed(Look(), "w", ()).chosen is None
    assert pressed(Look(), "j", ()).chosen is None


def test_pause_and_help_go_on_and_off() -> None:
    assert after(["p"]).paused
    assert not after(["p", "p"]).paused
    assert after(["?"]).help
    assert not after(["?", "?"]).help
    assert not after(["?", "escape"]).help


def test_q_leaves_what_lies_on_top_first() -> None:
    assert after(["q"]).left
    assert after(["w", "q"]).left
    assert not after(["?", "q"]).left
    assert after(["?", "q", "q"]).left


def test_capitals_are_keys_too_and_others_mean_nothing() -> None:
    assert after(["Q"]).left
    for key in ("x", "1", "é", "redraw", "suspend"):
        assert after([key]) == Look()


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"qs?", ["q", "s", "?"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\x1b", ["escape"]),
        (b"\r", ["w"]),
        (b"\x1a\x0c", ["suspend", "redraw"]),
        (b"\x1b[15~q", ["q"]),  # F5 is none of these, and none of its letters is
        (b"\x1b[1;5Aq", ["q"]),
        (b"\x1b[", []),
        (b"\x00\x07\xff\xc3\xa9", []),
        (b"", []),
    ],
)
def test_what_a_terminal_sends(typed: bytes, keys: list[str]) -> None:
    assert keys_in(typed) == keys
