"""``pgc``, ``pgc-master`` and ``pgc-worker``. Imports of the program itself are late, so that help is quick."""

import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli.bench import bench
from pgczmq.cli.common import (
    RUNS,
    ConfigOption,
    JsonOption,
    ResumeOption,
    SetOption,
    guarded,
    load_config,
    log_to,
    watch,
)
from pgczmq.cli.torture import torture

pgc = typer.Typer(
    help="Train PyTorch models on workers that are late or vanish.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
pgc.add_typer(bench, name="bench")
pgc.add_typer(torture, name="torture")


def main() -> None:
    """Entry point of ``pgc``."""
    pgc()


def master_main() -> None:
    """Entry point of ``pgc-master``."""
    _single(master, "pgc-master")


def worker_main() -> None:
    """Entry point of ``pgc-worker``."""
    _single(worker, "pgc-worker")


def _single(command: object, name: str) -> None:
    app = typer.Typer(pretty_exceptions_show_locals=False, add_completion=False)
    app.command()(command)  # type: ignore[type-var]
    app(prog_name=name)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pgczmq {version('pgczmq')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version, show_default=False)
]


@pgc.callback()
def _root(version: VersionOption = False) -> None:
    """Train PyTorch models on workers that are late or vanish."""


@pgc.command()
def local(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
) -> None:
    """Run a master and all its workers on this machine."""

    def command() -> int:
        from pgczmq.app import master

        run_config = load_config(config, settings)
        master.check(run_config)
        from pgczmq.app import local as app

        return watch(run_config.ui.mode, lambda sink: app.run(run_config, sink=sink, root=RUNS, resume=resume), json)

    guarded(command)


@pgc.command()
def sim(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
    timing_only: Annotated[
        bool, typer.Option("--timing-only", help="Leave the gradients out; only who answers when is simulated.")
    ] = False,
) -> None:
    """Run what pgc local runs in virtual time, in one process: two runs give the same bytes."""

    def command() -> int:
        from pgczmq.app import simulate

        run_config = load_config(config, settings)
        simulate.check(run_config)
        model = None if timing_only else simulate.model_of(run_config)
        run = partial(simulate.run, run_config, model=model, root=RUNS, resume=resume)
        return watch(run_config.ui.mode, lambda sink: run(sink=sink), json)

    guarded(command)


@pgc.command("reproduce")
def reproduce_claim(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which claim.", show_default="a list of all")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="At the paper's own scale; the figures go to NAME-full.json here.")
    ] = False,
) -> None:
    """Run what tests a paper's claim, and show the paper's figures beside those measured here."""

    def command() -> int:
        from pgczmq.cli import reproduce

        if name is None:
            return reproduce.show_list()
        return reproduce.show_full(name) if full else reproduce.show(name)

    guarded(command)


class StudyEngine(StrEnum):
    """What runs a study."""

    SIM = "sim"
    LOCAL = "local"


@pgc.command("compare")
def compare_schemes(
    config: ConfigOption = None,
    settings: SetOption = None,
    schemes: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Which; the file's scheme.wait, shortfall, deadline, max_age and on_new_step hold for all.",
        ),
    ] = "dgd,is-sgd,gc-fr,gc-cr,is-gc-cr,pgc-fr,pgc-cr,pgc-fr-staggered",
    stragglers: Annotated[str, typer.Option(metavar="1,2,3", help="Each scheme with each of these.")] = "1,2,3",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, from seeds that count up.")] = 5,
    engine: Annotated[
        StudyEngine, typer.Option(help="Virtual time, as pgc sim, or real processes, as pgc local.")
    ] = StudyEngine.SIM,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Simulate without gradients.")] = False,
    target: Annotated[float, typer.Option(help="Loss whose steps and seconds are counted.")] = 0.5,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all figures there; interrupted, it goes on from FILE.part."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw losses and step times: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Compare schemes over several seeds: time per step, steps and time to a loss, what it costs."""

    def command() -> int:
        from pgczmq.cli import compare
        from pgczmq.errors import ConfigError

        if timing_only and engine is StudyEngine.LOCAL:
            raise ConfigError(
                "only a simulation can leave the gradients out: got --timing-only with --engine local. Leave one out."
            )
        return compare.show(
            load_config(config, settings),
            schemes=compare.names(schemes),
            stragglers=compare.numbers(stragglers),
            seeds=seeds,
            engine="timing" if timing_only else engine.value,
            target=target,
            json_file=json,
            plot=plot,
        )

    guarded(command)


def master(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on a network without encryption or authentication.")
    ] = False,
    version: VersionOption = False,
) -> None:
    """Run a master and wait for its workers: pgc-worker --id N --master tcp://THIS-HOST:PORT."""

    def command() -> int:
        from pgczmq.app import master as app
        from pgczmq.app.keys import access_of

        run_config = load_config(config, settings, ["net.security=insecure"] if insecure else None)
        app.check(run_config)
        access_of(run_config)
        return watch(run_config.ui.mode, lambda sink: app.run(run_config, sink=sink, root=RUNS, resume=resume), json)

    guarded(command)


def worker(
    number: Annotated[
        int | None, typer.Option("--id", min=0, help="This worker's number.", show_default="what the launcher set")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Where the master is.", show_default="PGC_MASTER or this host"),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Code that the master may name as task.name or scheme.name; may be repeated.",
            show_default="PGC_ALLOW, else built-in code alone",
        ),
    ] = None,
    master_timeout: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", envvar="PGC_MASTER_TIMEOUT", help="How long to look for a master that is away."
        ),
    ] = 600.0,
    version: VersionOption = False,
) -> None:
    """Run one worker until the master says that the run is over."""

    def command() -> int:
        from rich.console import Console

        from pgczmq.app import worker as app
        from pgczmq.app.allowed import allowed_names

        log_to(Console(stderr=True))
        way = app.way_to_master(master, os.environ, Path.cwd())
        host, port = app.parse_address(way.master)
        who = app.identity(number, os.environ)
        app.log.info("worker number %s, from %s", "any" if who.number is None else who.number, who.source)
        return app.run_to_exit_code(
            host,
            port,
            who.number,
            security=way.security,
            allowed=allowed_names(allow or (), os.environ),
            master_timeout=master_timeout,
        )

    guarded(command)


@pgc.command()
def explain(
    config: ConfigOption = None,
    settings: SetOption = None,
    step: Annotated[int | None, typer.Option(metavar="T", help="Show what everybody evaluates at this step.")] = None,
    arrived: Annotated[
        str | None, typer.Option(metavar="0,1,3", help="Show how these workers' messages would be combined.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Show what a scheme does: who holds what, who evaluates what, how arrivals are combined."""

    def command() -> int:
        from pgczmq.cli.explain import show

        show(load_config(config, settings), step=step, arrived=arrived, json_file=json)
        return 0

    guarded(command)


@pgc.command()
def theory(
    config: ConfigOption = None,
    settings: SetOption = None,
    error: Annotated[
        float | None, typer.Option(metavar="E", help="Also: what it costs until the bound on the error is E.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Print order statistics, error bounds and switching times, and check the formulas.

    Parameters are the run's own: workers, optimizer.lr, task.batch_size, policy.response and policy.bound.
    """

    def command() -> int:
        from pgczmq.cli.theory import show

        return show(load_config(config, settings), error=error, json_file=json)

    guarded(command)


@pgc.command("keygen")
def make_keys(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the key files are; net.keys of a run.")
    ] = Path("pgc-keys"),
    master: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Make a master's keys; this is where its workers reach it."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Make a key for one worker alone, to be shut out alone; may be repeated."),
    ] = None,
) -> None:
    """Make the keys of a master and its workers, and the list of who may join (SECURITY.md)."""

    def command() -> int:
        from pgczmq.cli import keygen

        keygen.make(directory, master, worker or [])
        return 0

    guarded(command)


@pgc.command()
def doctor(
    config: ConfigOption = None,
    settings: SetOption = None,
    master: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Also check the way to this master.")
    ] = None,
) -> None:
    """Check the installation, this machine, and the way to a master."""

    def command() -> int:
        from pgczmq.cli.doctor import show

        return show(load_config(config, settings), master)

    guarded(command)


@pgc.command()
def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run.")], json: JsonOption = None
) -> None:
    """Simulate a run from its records: does the simulator decide as the run did?

    Once with the recorded arrivals, which must come out exactly, and once with the recorded durations alone.
    """

    def command() -> int:
        from pgczmq.cli.common import check_writable
        from pgczmq.cli.replay import show

        if json is not None:
            check_writable(json)
        return show(run, json)

    guarded(command)


@pgc.command("soak")
def soak_run(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long workers and master are killed and stopped.")] = 5.0,
    workers: Annotated[int, typer.Option(min=2, max=128, help="Worker processes.")] = 12,
    kill_every: Annotated[float, typer.Option(min=0.1, help="Mean seconds between kills of workers.")] = 3.0,
    master_every: Annotated[float, typer.Option(min=1.0, help="Mean seconds between kills of the master.")] = 60.0,
    task: Annotated[str, typer.Option(help="soak, in NumPy, or a built-in one, whose loss is compared.")] = "soak",
    seed: Annotated[int, typer.Option(min=0, help="Of the run, and of what is done to it.")] = 1,
    settings: SetOption = None,
    json: JsonOption = None,
) -> None:
    """Kill, stop and restart the master and the workers of a run at random, then audit what they did.

    The audit computes every step again from what was written down. Exit code 1 when it finds anything.
    """

    def command() -> int:
        from pgczmq.bench.torture.soak.measure import Plan
        from pgczmq.cli.soak import show

        plan = Plan(60 * minutes, workers, kill_every, master_every, seed, task, settings or [])
        return show(plan, json)

    guarded(command)


@pgc.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, or files written by --json.")],
) -> None:
    """Compare finished runs in one table."""

    def command() -> int:
        from rich.console import Console

        from pgczmq.runlog import read_result
        from pgczmq.view.tables import comparison

        unfinished = [run for run in runs if run.is_dir() and not (run / "result.json").exists()]
        finished = [read_result(run) for run in runs if run not in unfinished]
        Console().print(comparison(finished))
        for run in unfinished:
            Console(stderr=True).print(f"{run} has no result: still running, or it failed", markup=False)
        return 0

    guarded(command)
