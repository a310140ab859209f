"""``pgc doctor``: one line a check, as they come."""

import time

from rich.console import Console

from pgczmq.app.doctor import examine
from pgczmq.config import RunConfig
from pgczmq.view.task_view import paragraph, summary


def show(config: RunConfig, master: str | None) -> int:
    """Print all checks; 1 if one found a problem."""
    console, begun = Console(), time.monotonic()
    verdicts = []
    for check in examine(config, master):
        console.print(paragraph(check.name, check.verdict, check.text))
        verdicts.append(check.verdict)
    console.print(summary(verdicts, seconds=time.monotonic() - begun))
    return int("problem" in verdicts)
