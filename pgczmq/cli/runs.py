"""The commands that run something: all at once, in virtual time, or a master and each worker by itself."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli.common import (
    RUNS,
    ConfigOption,
    JsonOption,
    ResumeOption,
    SetOption,
    UiOption,
    VersionOption,
    guarded,
    load_config,
    log_to,
    nothing_to_put_in_order,
    watch,
)


def local(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
    ui: UiOption = None,
) -> None:
    """Run a master and all its workers on this machine."""

    def command() -> int:
        nothing_to_put_in_order()
        from pgczmq.app import master

        run_config = load_config(config, settings, ui=ui)
        master.check(run_config)
        from pgczmq.app import local as app

        return watch(run_config.ui.mode, lambda sink: app.run(run_config, sink=sink, root=RUNS, resume=resume), json)

    guarded(command)


def sim(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
    ui: UiOption = None,
    timing_only: Annotated[
        bool, typer.Option("--timing-only", help="Leave the gradients out; only who answers when is simulated.")
    ] = False,
) -> None:
    """Run what pgc local runs in virtual time, in one process: two runs give the same bytes."""

    def command() -> int:
        nothing_to_put_in_order()
        from pgczmq.app import simulate

        run_config = load_config(config, settings, ui=ui)
        simulate.check(run_config)
        model = None if timing_only else simulate.model_of(run_config)
        run = partial(simulate.run, run_config, model=model, root=RUNS, resume=resume)
        return watch(run_config.ui.mode, lambda sink: run(sink=sink), json)

    guarded(command)


def master(
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = None,
    resume: ResumeOption = "never",
    ui: UiOption = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on a network without encryption or authentication.")
    ] = False,
    version: VersionOption = False,
) -> None:
    """Run a master and wait for its workers: pgc-worker --id N --master tcp://THIS-HOST:PORT."""

    def command() -> int:
        nothing_to_put_in_order()
        from pgczmq.app import master as app
        from pgczmq.app.keys import access_of

        run_config = load_config(config, settings, ["net.security=insecure"] if insecure else None, ui)
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
            help="Code that the master may name as task.name, scheme.name or delay.model; may be repeated.",
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
        nothing_to_put_in_order()
        from rich.console import Console

        from pgczmq.app import worker as app
        from pgczmq.app.allowed import allowed_names
        from pgczmq.app.identity import identity

        log_to(Console(stderr=True))
        way = app.way_to_master(master, os.environ, Path.cwd())
        host, port = app.parse_address(way.master)
        who = identity(number, os.environ)
        app.log.info("worker number %s, from %s", "any" if who.number is None else who.number, who.source)
        allowed = allowed_names(allow or (), os.environ)
        return app.exit_code_of(
            app.serve(host, port, who.number, security=way.security, allowed=allowed, master_timeout=master_timeout)
        )

    guarded(command)
