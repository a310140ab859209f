"""What tells runs apart: labels from what differs between their configurations, and the looks of their lines."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pgczmq.rundirs import RunDirectory
from pgczmq.view.pictures.looks import COLOURS, Look, looks, scheme_and_rest

UNTOLD = ("name", "steps", "device", "threads", "ui", "net", "checkpoint", "eval")
"""Settings, or sections of them, that need no words in a picture."""
FIRST = ("scheme", "policy", "optimizer", "task", "delay")
"""Sections whose settings are named before others."""
ALWAYS = ("scheme.stragglers", "policy.name")
"""Told where they differ; the others only where runs could not be told apart without."""
TOLERATE_NOBODY = {"dgd", "async"}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every setting by its dotted key."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def differing(runs: Sequence[RunDirectory]) -> list[str]:
    """Dotted keys whose values are not the same in all runs, in the order of the configurations."""
    tables = [flat(run.settings) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]


def labels(runs: Sequence[RunDirectory]) -> list[str]:
    """A short one for each run, no two the same: its scheme, then what tells it apart, its name where that must be.

    A single run is called by its scheme alone.
    """
    keys = [key for key in differing(runs) if key.partition(".")[0] not in UNTOLD and key != "scheme.name"]
    mixed = len({run.simulated for run in runs}) > 1
    chosen = [key for key in ALWAYS if key in keys]
    found = [_label(run, chosen, mixed=mixed) for run in runs]
    for key in sorted(set(keys) - set(chosen), key=lambda key: (_rank(key), keys.index(key))):
        with_key = [_label(run, [*chosen, key], mixed=mixed) for run in runs]
        if len(set(with_key)) > len(set(found)):
            chosen, found = [*chosen, key], with_key
    found = _told_apart(found, [run.name for run in runs])
    return _told_apart(found, [str(run.path) for run in runs])


def looks_of(names: Sequence[str]) -> list[Look]:
    """As in every picture the scheme says the colour; runs of one scheme have colours of their own."""
    if len({scheme_and_rest(name)[0] for name in names}) > 1 or len(names) > len(COLOURS):
        return looks(names)
    first = looks(names[:1])[0][0]
    others = [colour for colour in COLOURS.values() if colour != first]
    return [(colour, "-") for colour in [first, *others][: len(names)]]


def _label(run: RunDirectory, keys: Sequence[str], *, mixed: bool) -> str:
    scheme = run.setting("scheme", "name") or (run.result.scheme if run.result else "run")
    table = flat(run.settings)
    told = [key for key in keys if scheme not in TOLERATE_NOBODY or not key.startswith("scheme.")]
    kind = ["simulated" if run.simulated else "real"] if mixed else []
    return " ".join([str(scheme), *(part for key in told if (part := _part(key, table.get(key)))), *kind])


def _rank(key: str) -> int:
    section = key.partition(".")[0]
    return FIRST.index(section) if section in FIRST else len(FIRST)


def _part(key: str, value: Any) -> str:
    """``s=1``; of lists only that there are any, and nothing of what is fixed."""
    if isinstance(value, list):
        return _short(key) if value else ""
    return "" if value in (None, "fixed") else f"{_short(key)}={value}"


def _short(key: str) -> str:
    """``scheme.stragglers`` as s, ``optimizer.lr`` as lr, ``policy.name`` as policy."""
    *sections, last = key.split(".")
    if last in {"name", "model"} and sections:
        return sections[-1]
    return "s" if key == "scheme.stragglers" else last


def _told_apart(found: Sequence[str], names: Sequence[str]) -> list[str]:
    counts = Counter(found)
    return [label if counts[label] == 1 else f"{label} {name}" for label, name in zip(found, names, strict=True)]
