"""What ``pgc explain`` shows: tables from the plain values of an explanation."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from pgczmq.view import words

ENCODE_AT_MOST = 24
"""Above this many workers the encoding matrix does not fit a terminal and is left to ``--json``."""


def tables(explanation: Mapping[str, Any]) -> list[Table]:
    """The scheme, its workers, the partitions when arrivals were given, and its encoding matrix unless it is huge.

    Args:
        explanation: what ``pgczmq.app.explain.explain`` returns.
    """
    made = [_summary(explanation), _workers(explanation)]
    if explanation.get("usable"):
        made.append(_partitions(explanation))
    if explanation["workers"] <= ENCODE_AT_MOST:
        made.append(_encode(explanation["encode"]))
    return made


def _summary(explanation: Mapping[str, Any]) -> Table:
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(explanation):
        table.add_row(name, Text(words.clean(text)))
    return table


def _facts(explanation: Mapping[str, Any]) -> list[tuple[str, str]]:
    alpha = explanation["max_alpha_code"]
    facts = [
        ("scheme", f"{explanation['scheme']}, {words.count(explanation['workers'], 'worker')}"),
        ("stragglers", str(explanation["stragglers"])),
        ("load", f"{words.count(explanation['load'], 'partition')} a worker"),
        ("a step closes", _closing(explanation)),
        ("code", explanation["code"] + ("" if alpha is None else f", largest |alpha| {words.number(alpha)}")),
        ("ignored", ", ".join(explanation["ignored"]) or "nothing"),
        *[("fault", text) for text in explanation["faults"]],
    ]
    return facts + (_arrival_facts(explanation) if "usable" in explanation else [])


def _closing(explanation: Mapping[str, Any]) -> str:
    arrivals = words.count(explanation["k"], "arrival")
    if explanation["policy"] != "fixed":
        return f"at {arrivals} at first; then {explanation['policy']} decides"
    return f"when usable, at the latest at {arrivals}" if explanation["wait"] == "usable" else f"at {arrivals}"


def _arrival_facts(explanation: Mapping[str, Any]) -> list[tuple[str, str]]:
    arrived: Sequence[int] = explanation["arrived"]
    facts = [("arrived", ", ".join(map(str, arrived)) or "nobody")]
    if not explanation["usable"]:
        return [*facts, ("usable", "no: the step stays open")]
    closes = explanation["closes_after"]
    usable = "yes" if closes == len(arrived) else f"yes; it would have closed after the first {closes}"
    share: Sequence[float] = explanation["share"]
    return [
        *facts,
        ("usable", usable),
        ("recovered", f"{words.percent(explanation['recovered'])} of the partitions"),
        ("shares", f"{words.number(min(share))} to {words.number(max(share))}; 1 is exact"),
        ("largest |alpha|", words.number(explanation["max_alpha"])),
    ]


def _workers(explanation: Mapping[str, Any]) -> Table:
    """One line per worker; only the columns that were asked for."""
    columns: dict[str, list[str]] = {"holds": _lists(explanation["placement"])}
    if explanation["evaluates"] is not None:
        columns[f"evaluates at step {explanation['step']}"] = _lists(explanation["evaluates"])
        columns["ages"] = _lists(explanation["ages"])
    if "usable" in explanation:
        columns["weight"] = [words.number(weight) if weight else words.NOTHING for weight in explanation["weights"]]
    table = Table()
    table.add_column("worker", justify="right")
    for name in columns:
        table.add_column(name, justify="right")
    for worker, cells in enumerate(zip(*columns.values(), strict=True)):
        table.add_row(str(worker), *map(Text, cells))
    return table


def _partitions(explanation: Mapping[str, Any]) -> Table:
    """What the estimate makes of each partition, and through whom."""
    table = Table()
    for name in ("partition", "share", "through workers"):
        table.add_column(name, justify="right")
    encode, weights = explanation["encode"], explanation["weights"]
    for partition, share in enumerate(explanation["share"]):
        through = [worker for worker, weight in enumerate(weights) if weight and encode[worker][partition]]
        table.add_row(str(partition), words.number(share), " ".join(map(str, through)) or words.NOTHING)
    return table


def _encode(encode: Sequence[Sequence[float]]) -> Table:
    """Rows are workers, columns partitions; a dot where a worker does not hold the partition."""
    table = Table(padding=(0, 0, 0, 1))
    table.add_column("encode", justify="right", style="bold")
    for partition in range(len(encode)):
        table.add_column(str(partition), justify="right", no_wrap=True)
    for worker, row in enumerate(encode):
        table.add_row(str(worker), *(Text(words.number(value, 3) if value else ".") for value in row))
    return table


def _lists(rows: Sequence[Sequence[int]]) -> list[str]:
    return [" ".join(map(str, row)) for row in rows]
