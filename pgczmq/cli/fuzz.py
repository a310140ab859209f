"""``pgc torture fuzz``: run, print and save."""

import json
from collections import Counter
from pathlib import Path

import typer
from rich.console import Console

from pgczmq.bench.torture.fuzz.false_master import WorkerOutcome, deceive
from pgczmq.bench.torture.fuzz.judge import MEMORY_BYTES
from pgczmq.bench.torture.fuzz.run import Outcome, fuzz
from pgczmq.cli.common import check_writable
from pgczmq.view.progress import Steps

WORKERS_PART = 10
"""A worker is sent the so-manieth part of what the master is."""


def show(messages: int, seed: int, json_file: Path | None) -> int:
    """Returns 1 when anything has come of it."""
    if json_file is not None:
        check_writable(json_file)
    at_master = _fuzz(messages, seed)
    for line in master_lines(at_master):
        typer.echo(line)
    at_worker = deceive(max(1, messages // WORKERS_PART), seed)
    for line in worker_lines(at_worker):
        typer.echo(line)
    wrong = [*at_master.wrong, *at_worker.wrong]
    for sentence in wrong:
        typer.echo(f"wrong: {sentence}")
    if json_file is not None:
        table = {"seed": seed, "master": vars(at_master), "worker": vars(at_worker)}
        json_file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def _fuzz(messages: int, seed: int) -> Outcome:
    done = 0
    with Steps(Console(stderr=True), "hundredths", 100) as progress:

        def said(sent: int) -> None:
            nonlocal done
            while done < min(100, sent * 100 // messages):
                done += 1
                progress.advance(f"{sent:,} messages")

        return fuzz(messages, seed, said)


def master_lines(outcome: Outcome) -> list[str]:
    """What a master was sent, and what it did meanwhile."""
    seconds = max(outcome.seconds, 1e-9)
    return [
        f"a master was sent {outcome.messages:,} hostile messages in {outcome.seconds:.0f} s, "
        f"{outcome.messages / seconds:,.0f} a second",
        *_counted("from strangers", outcome.sent),
        *_counted("from a worker that lies", outcome.lies),
        f"refused {outcome.refused:,}; {outcome.named} peers named in the log",
        f"steps meanwhile {outcome.steps:,}, {outcome.steps / seconds:.1f} a second; "
        f"{outcome.steps_before:.1f} a second before",
        _held(outcome.memory, outcome.descriptors),
    ]


def worker_lines(outcome: WorkerOutcome) -> list[str]:
    """The same of a worker."""
    seconds = max(outcome.seconds, 1e-9)
    return [
        f"a worker was sent {outcome.sent.total():,} in {outcome.seconds:.0f} s, "
        f"{outcome.sent.total() / seconds:,.0f} a second, and answered {outcome.answered:,} steps meanwhile",
        *_counted("from a false master", outcome.sent),
        _held(outcome.memory, outcome.descriptors),
    ]


def _counted(who: str, counts: Counter[str]) -> list[str]:
    return [f"  {count:>9,}  {who}: {kind}" for kind, count in counts.most_common()]


def _held(memory: tuple[int, int], descriptors: tuple[int, int]) -> str:
    before, after = (nbytes / 1e6 for nbytes in memory)
    return (
        f"memory {before:.1f} MB before, {after:.1f} MB after ({after - before:+.1f}, at most "
        f"{MEMORY_BYTES / 1e6:.0f} more are allowed); open files {descriptors[0]} and {descriptors[1]}"
    )
