"""``pgc bench hosts``: this program between hosts with links of limited rate, as a table and as JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from statistics import median

import typer

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.hosts.link import CEILING, DONE
from pgczmq.bench.hosts.measure import FULL_RATE, PERCENT_AT_LEAST, Row, measure
from pgczmq.bench.transport.work import Work
from pgczmq.cli.common import check_writable
from pgczmq.errors import ConfigError

DTYPES = ("float32", "bfloat16")
COLUMNS = (
    f"{'Mbit/s':>10}  {'wire_dtype':10} {'MB a way':>10} {'seconds a step':>25} {'times full link':>17} "
    f"{'link %':>7} {'out %':>7} {'in %':>7} {'idle s':>7} {'again MB':>9}"
)
"""A step over what it would take if the link were full all the time, then goodput in percent of the limit."""


def show(mbits: str, *, workers: int, params: int, steps: int, json_file: Path | None) -> None:
    """Print each row as it is measured; where there can be no hosts, why."""
    wanted = rates(mbits)
    if json_file is not None:
        check_writable(json_file)
    reason = Lab.why_not()
    if reason:
        typer.echo(f"skipped: {reason}")
        return
    typer.echo(
        f"a full link carries {100 * CEILING:.1f} % of its limit, headers take the rest; medians of {steps} steps"
    )
    typer.echo(COLUMNS)
    rows = []
    for rate in wanted:
        work = Work(workers, max(1, round(params * rate / FULL_RATE)))
        for wire_dtype in DTYPES:
            rows.append(measure(work, rate=rate, wire_dtype=wire_dtype, steps=steps))
            typer.echo(line(rows[-1]))
    for row in rows:
        if row.rate == FULL_RATE:
            typer.echo(verdict(row))
    if json_file is not None:
        table = {"ceiling_percent": 100 * CEILING, "rows": [asdict(row) | {"percent": row.percent} for row in rows]}
        json_file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def rates(mbits: str) -> list[float]:
    """The rates, bits a second, of a list such as 1000,200.

    Raises:
        ConfigError: it is none.
    """
    try:
        found = [float(word) * 1e6 for word in mbits.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1e6:
        raise ConfigError(f"--mbits takes rates of at least 1 Mbit/s, for example 1000,200: got {mbits}.")
    return found


def line(row: Row) -> str:
    """Medians, with the least and largest step."""
    seconds = f"{median(row.seconds):.3f} [{min(row.seconds):.3f}, {max(row.seconds):.3f}]"
    ratio = median(row.seconds) / (2 * 8 * row.nbytes / row.rate / CEILING)
    idle = median(step.idle_seconds for step in row.link)
    what = f"{row.rate / 1e6:10.0f}  {row.wire_dtype:10} {row.nbytes / 1e6:10.1f} {seconds:>25} {ratio:17.3f}"
    percents = f"{row.percent:7.1f} {row.out_percent:7.1f} {row.back_percent:7.1f}"
    return f"{what} {percents} {idle:7.3f} {row.again_bytes / 1e6:9.1f}"


def verdict(row: Row) -> str:
    """Whether the master's link carries what is asked for while a step's payloads are on their way."""
    missed = "" if row.percent >= PERCENT_AT_LEAST else ": too little"
    return (
        f"{row.wire_dtype}: from the first byte of a step's transfers until {100 * DONE:g} % of the last ones, goodput "
        f"of the master's link, in the direction that is fuller at the moment, is {row.percent:.1f} % of its limit (at "
        f"least {PERCENT_AT_LEAST:g} % asked for){missed}; parameters by themselves have {row.out_percent:.1f} %, "
        f"gradients, which begin before all parameters are out, {row.back_percent:.1f} %"
    )
