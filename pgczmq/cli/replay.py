"""``pgc replay``: what came out on the terminal, the same as JSON in a file."""

import json
from pathlib import Path

from rich.console import Console

from pgczmq.app.replay import replay
from pgczmq.view.replay_view import others, sentences


def show(run: Path, json_file: Path | None) -> int:
    """Replay a run; 1 when the engine, told of the recorded arrivals, did not decide as it did."""
    replayed = replay(run)
    console = Console()
    for sentence in sentences(replayed):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for table in others(replayed):
        console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(replayed, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 1 if replayed["arrivals"]["others"] else 0
