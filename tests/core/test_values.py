"""``value``: what a frozen dataclass is, but for the guard at run time."""

from dataclasses import replace

from pgczmq.core.pipeline import Answer, Delay, DelayOver, Report


def test_values_are_equal_when_class_and_content_are() -> None:
    assert Delay(3, 0.5) == Delay(3, 0.5) != Delay(4, 0.5)
    assert Answer(3, (0,), ()) != Report(3, (0,), ())
    assert DelayOver(3) != 3


def test_values_can_be_keys_and_templates() -> None:
    assert {Delay(3, 0.5): "a"}[Delay(3, 0.5)] == "a"
    assert replace(Delay(3, 0.5), seconds=1.0) == Delay(3, 1.0)
    assert repr(Delay(3, 0.5)) == "Delay(step=3, seconds=0.5)"
