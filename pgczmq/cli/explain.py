"""``pgc explain``: tables on the terminal, the same as JSON in a file."""

import json
from pathlib import Path

from rich.console import Console

from pgczmq.app.explain import explain
from pgczmq.config import RunConfig
from pgczmq.errors import ConfigError
from pgczmq.view.explain_view import tables


def show(config: RunConfig, *, step: int | None, arrived: str | None, json_file: Path | None) -> None:
    """Print what the scheme of a run does."""
    explanation = explain(config, step=step, arrived=None if arrived is None else _numbers(arrived))
    console = Console()
    for table in tables(explanation):
        console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(explanation, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(
            f"--arrived takes worker numbers in order of arrival, for example 0,1,3: got {text!r}."
        ) from None
