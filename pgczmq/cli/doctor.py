"""``pgc doctor``: one line a check, as they come."""

from rich.console import Console
from rich.text import Text

from pgczmq.app.doctor import examine
from pgczmq.config import RunConfig

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def show(config: RunConfig, master: str | None) -> int:
    """Print all checks; 1 if one found a problem."""
    console = Console()
    worst = 0
    for check in examine(config, master):
        console.print(Text.assemble((f"{check.verdict:8}", _STYLES[check.verdict]), f" {check.name:14} {check.text}"))
        worst |= check.verdict == "problem"
    return int(worst)
