"""``pgc torture`` and ``pgc soak``: break runs on purpose, and show that they come through."""

from typing import Annotated

import typer

from pgczmq.cli.common import JsonOption, SetOption, guarded

torture = typer.Typer(help="Break runs on purpose, and show what comes of it.", no_args_is_help=True)


@torture.command("matrix")
def torture_matrix(
    states: Annotated[str, typer.Option(metavar="A,B,C", help="Only these.", show_default="all")] = "",
    faults: Annotated[str, typer.Option(metavar="A,B,C", help="Only these.", show_default="all")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
    away: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a process is stopped, or cut off.")
    ] = 1.5,
    patience: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="After so long without what must come, a run hangs.")
    ] = 60.0,
    json: JsonOption = None,
) -> None:
    """Kill, stop, interrupt, cut off and confuse workers and masters in each of their states; minutes.

    Every run must come to its end when whatever has ended is started again, and nobody may end but as documented.
    """

    def command() -> int:
        from pgczmq.bench.torture.matrix.cells import Times
        from pgczmq.cli.matrix import show

        return show(states, faults, jobs=jobs, times=Times(away, patience), json_file=json)

    guarded(command)


@torture.command("networks")
def torture_networks(
    only: Annotated[str, typer.Option(metavar="A,B,C", help="Only these.", show_default="all")] = "",
    json: JsonOption = None,
) -> None:
    """Cut links, slow them down and take addresses away under runs between hosts, all on this machine; minutes.

    Hosts are network namespaces: that needs Linux and root, and says so where it cannot be.
    """

    def command() -> int:
        from pgczmq.cli.networks import show

        return show(only, json)

    guarded(command)


@torture.command("fuzz")
def torture_fuzz(
    messages: Annotated[int, typer.Option(min=1, help="Hostile messages to the master.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 1,
    json: JsonOption = None,
) -> None:
    """Send a live master, and a tenth as many to a live worker, whatever strangers may send; minutes.

    The run must go on as if nothing had come: the same weights, no more memory, and each stranger named once.
    """

    def command() -> int:
        from pgczmq.cli.fuzz import show

        return show(messages, seed, json)

    guarded(command)


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
