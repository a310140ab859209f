"""``pgc reproduce``: run what tests a paper's claim, print the comparison, save it, and write RESULTS.md."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from pgczmq.api.comparison import part_of
from pgczmq.app import compute_times
from pgczmq.app.compute_times import ComputeTimes
from pgczmq.bench import papers, reproduce, study
from pgczmq.bench.figures import Figure
from pgczmq.bench.papers import Paper
from pgczmq.cli.compare import run_all
from pgczmq.view import study as view


def show(name: str) -> int:
    """Reproduce one claim at the scale of two cores, save its figures and rewrite RESULTS.md."""
    home = reproduce.home()
    paper = papers.read(reproduce.find(home, name))
    file = home / "results" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    whole = _whole(paper, file, scale=paper.scale, command=f"pgc reproduce {name}")
    _save(file, whole)
    write_page(home)
    return 0


def show_full(name: str) -> int:
    """The same at the paper's own scale; the figures go into the current directory, RESULTS.md stays as it is."""
    paper = papers.read(reproduce.find(reproduce.home(), name))
    reproduce.check_needs(paper.full)
    file = Path(f"{name}-full.json")
    scale = "At the scale of --full."
    whole = _whole(papers.at_full_scale(paper), file, scale=scale, command=f"pgc reproduce {name} --full")
    _save(file, whole)
    Console(stderr=True).print(f"saved in {file}")
    return 0


def show_list() -> int:
    """What there is to reproduce."""
    home = reproduce.home()
    for name in reproduce.names(home):
        Console().print(f"[bold]{name}[/]: {papers.read(home / f'{name}.toml').title}", highlight=False)
    return 0


def write_page(home: Path) -> None:
    """RESULTS.md from all claims and what is saved of them, with the figures that they ask for now."""
    claims = {name: papers.read(home / f"{name}.toml") for name in reproduce.names(home)}
    files = {name: home / "results" / f"{name}.json" for name in claims}
    saved = {
        name: reproduce.refreshed(claims[name], json.loads(file.read_text(encoding="utf-8")))
        for name, file in files.items()
        if file.exists()
    }
    page = reproduce.results_page(list(claims.values()), saved)
    for name, whole in saved.items():
        reproduce.save(files[name], whole)
    study.write_whole(home / reproduce.RESULTS, page)


def _save(file: Path, whole: dict[str, Any]) -> None:
    reproduce.save(file, whole)
    for kept in (part_of(file), times_of(file)):
        kept.unlink(missing_ok=True)


def _whole(paper: Paper, file: Path, *, scale: str, command: str) -> dict[str, Any]:
    """Run it and print the comparison."""
    console = Console(stderr=True)
    times, rows = None, []
    if paper.engine == "theory":
        figures = papers.theory_figures(paper)
    else:
        times = _times(paper, file, console)
        made = papers.cases(paper, times)
        papers.check(paper, made)
        rows = run_all(made, file, console)
        figures = papers.figures(paper, study.by_label(rows))
    _print(paper, figures)
    about = {"command": command, "date": time.strftime("%Y-%m-%d"), "machine": reproduce.machine(), "scale": scale}
    return reproduce.result(paper, figures, rows, times=times, about=about)


def _times(paper: Paper, file: Path, console: Console) -> ComputeTimes | None:
    """Measured once: a study that goes on where it was interrupted goes on with the same times."""
    if paper.measure is None:
        return None
    kept, wanted = times_of(file), paper.measure.model_dump(mode="json")
    if kept.exists() and part_of(file).exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before["measure"] == wanted:
            return ComputeTimes(**before["times"])
    with console.status(f"measuring the gradients of {paper.measure.task}"):
        times = compute_times.measure(papers.measured_config(paper.measure), paper.measure.repeats)
    study.write_whole(kept, json.dumps({"measure": wanted, "times": asdict(times)}))
    return times


def times_of(file: Path) -> Path:
    """Where measured times are kept until the study is complete."""
    return file.with_name(file.name + ".times")


def _print(paper: Paper, figures: Sequence[Figure]) -> None:
    lines = [(one.says, one.paper, reproduce.measured(one), one.verdict) for one in figures]
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(view.beside(lines, title=f"{paper.title}\n{paper.claim} ({paper.source})"))
    for sentence in reproduce.set_up(paper):
        console.print(sentence, markup=False, highlight=False)
