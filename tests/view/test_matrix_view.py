"""The matrix of states and faults as a table."""

from typing import Any

from rich.console import Console

from pgczmq.view.matrix_view import matrix_table


def outcome(state: str, fault: str, **changes: Any) -> dict[str, Any]:
    told = {"state": state, "fault": fault, "end": "worker", "codes": [0], "gone": None, "progress": 0.25, "wrong": ""}
    return told | changes


def shown(*outcomes: dict[str, Any]) -> list[list[str]]:
    console = Console(width=120, record=True)
    console.print(matrix_table(outcomes))
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]


def test_a_line_a_state_and_a_column_a_fault() -> None:
    rows = shown(
        outcome("idle", "SIGTERM", codes=[143, 0], gone=0.04, progress=1.26),
        outcome("idle", "cut"),
        outcome("open", "cut", end="master", wrong="HANG: nothing came"),
        outcome("open", "SIGTERM", end="master", wrong="master ended with code 1, not 75"),
        outcome("below", "cut", end="master"),
    )
    assert rows == [
        ["worker", "idle", "143: 0.0 + 1.3", "0.2"],
        ["master", "open", "wrong", "HANG"],
        ["master", "below", "-", "0.2"],
    ]
