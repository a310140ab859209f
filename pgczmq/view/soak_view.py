"""What ``pgc soak`` shows: a table and a verdict from plain values."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from pgczmq.view import words

DEEDS = {
    "kill": "workers killed",
    "terminate": "workers terminated",
    "stop": "workers stopped",
    "kill master": "masters killed",
}


def soak_table(soaked: Mapping[str, Any]) -> Table:
    """Everything that was counted and measured.

    Args:
        soaked: what ``bench.torture.soak.measure.soak`` returns.
    """
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts(soaked):
        table.add_row(name, Text(words.clean(text)))
    return table


def facts(soaked: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, what was found), a line each."""
    deeds = ", ".join(f"{soaked['deeds'].get(deed, 0)} {name}" for deed, name in DEEDS.items())
    told = [
        ("scheme", f"{soaked['scheme']}, {words.count(soaked['plan']['workers'], 'worker')}"),
        ("disturbed for", words.duration(soaked["seconds"])),
        ("deeds", deeds),
        ("processes", f"{soaked['worker_processes']} of workers, {soaked['masters']} of the master"),
        ("steps", _steps(soaked)),
        ("start to ready", _spread(soaked["start_to_ready"])),
        ("fault to ready", _spread(soaked["fault_to_ready"])),
        ("master to next step", _spread(soaked["master_to_next_step"])),
    ]
    if soaked["answers"]:
        told.append(("answers", ", ".join(f"{count:,} {fate}" for fate, count in soaked["answers"].items())))
    told += [(f"a {kind} held", _held(held)) for kind, held in soaked["held"].items()]
    if soaked["losses"]:
        calm = ", ".join(words.number(loss) for loss in soaked["losses"]["undisturbed"])
        told.append(("loss", f"{words.number(soaked['losses']['disturbed'])}; of undisturbed runs {calm}"))
    return told


def verdict(soaked: Mapping[str, Any]) -> str:
    """One line."""
    found = soaked["findings"]
    return f"AUDIT: {words.count(len(found), 'finding')}" if found else "audit: clean"


def _steps(soaked: Mapping[str, Any]) -> str:
    again = soaked["updates"] - soaked["steps"]
    return f"{soaked['steps']:,}" + (f", {again:,} of them twice, since a master was killed" if again > 0 else "")


def _spread(spread: Mapping[str, float]) -> str:
    if not spread["count"]:
        return words.NOTHING
    median, worst = words.duration(spread["median"]), words.duration(spread["worst"])
    return f"median {median}, worst {worst} ({spread['count']} times)"


def _held(held: Mapping[str, float]) -> str:
    """Of a soak that was interrupted, the end is not known."""
    return "; ".join(
        f"{name} {words.number(held.get(f'{key}_start'))} at the start, {words.number(held.get(f'{key}_end'))} at the "
        f"end, {words.number(held.get(f'{key}_most'))} at most"
        for key, name in (("memory", "MB"), ("files", "open files"))
    )
