"""Numbers and foreign text as people read them: short, with a unit, never markup."""

import math

NOTHING = "-"


def clean(text: str) -> str:
    """Foreign text on one line: whatever does not print (newlines, escape sequences) becomes a space."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits; ``-`` for none."""
    return NOTHING if value is None else f"{value:.{digits}g}"


def percent(fraction: float | None) -> str:
    """0.0312 as ``3.1 %``; whole numbers from 10 % on need no decimals."""
    if fraction is None or not math.isfinite(fraction):
        return NOTHING
    value = 100 * fraction
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def is_share(name: str) -> bool:
    """Whether a metric of this name is a part of one, to be shown in percent: accuracies are."""
    return name.lower().endswith("accuracy")


def metric(value: float | None, name: str) -> str:
    """A task's metric: an accuracy in percent, another one as the number it is."""
    return accuracy(value) if is_share(name) else number(value)


def accuracy(fraction: float | None) -> str:
    """0.97245 as ``97.2 %``."""
    return NOTHING if fraction is None else f"{100 * fraction:.1f} %"


def duration(seconds: float | None) -> str:
    """A short time, three digits and a unit: ``85 us``, ``12.3 ms``, ``1.25 s``; from two minutes on as a clock."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds >= 119.5:
        return clock(seconds)
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{seconds * 1e6:.0f} us"


def ago(seconds: float | None) -> str:
    """How long ago, in at most five characters: ``now``, ``12 s``, ``3 min``, ``2 h``."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 1:
        return "now"
    for unit, size in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 100 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def clock(seconds: float | None) -> str:
    """A long time as ``m:ss``, ``h:mm:ss`` or ``3 d 04:05``."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} d {hours % 24:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def count(number: int, noun: str) -> str:
    """``1 worker``, ``1,200 workers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _three(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"
