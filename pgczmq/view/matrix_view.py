"""What became of processes to which something happened, state by state and fault by fault, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from pgczmq.view import words

LEGEND = "Exit code: seconds until the process was gone + seconds from when the fault was over until the run went on."


def matrix_table(outcomes: Sequence[Mapping[str, Any]]) -> Table:
    """One line a state, one column a fault; what is missing has not been tried.

    Args:
        outcomes: ``state``, ``end``, ``fault``, ``codes``, ``gone``, ``progress`` and ``wrong`` of each.
    """
    faults = list(dict.fromkeys(outcome["fault"] for outcome in outcomes))
    cells = {(outcome["end"], outcome["state"], outcome["fault"]): outcome for outcome in outcomes}
    table = Table(caption=LEGEND)
    for name in ("whose", "state"):
        table.add_column(name, no_wrap=True)
    for fault in faults:
        table.add_column(fault, justify="right", no_wrap=True)
    for end, state in dict.fromkeys((outcome["end"], outcome["state"]) for outcome in outcomes):
        row = [_cell(cells.get((end, state, fault))) for fault in faults]
        table.add_row(end, state, *row)
    return table


def _cell(outcome: Mapping[str, Any] | None) -> Text:
    if outcome is None:
        return Text(words.NOTHING)
    if outcome["wrong"]:
        return Text("HANG" if outcome["wrong"].startswith("HANG") else "wrong", style="bold red")
    ended = f"{outcome['codes'][0]}: {outcome['gone']:.1f} + " if outcome["gone"] is not None else ""
    return Text(f"{ended}{outcome['progress']:.1f}")
