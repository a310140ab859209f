"""``pgc bench``: its commands, each imported when it is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli.common import JsonOption, guarded

bench = typer.Typer(help="Measure what this program costs on this machine.", no_args_is_help=True)


@bench.command("sim")
def bench_sim(json: JsonOption = None) -> None:
    """Measure the simulator: steps a second of each scheme without gradients, and what it adds to gradients."""

    def command() -> int:
        from pgczmq.cli.races import simulator

        simulator(json)
        return 0

    guarded(command)


@bench.command("transport")
def bench_transport(
    workers: Annotated[int, typer.Option(min=2, max=128, help="Worker processes.")] = 12,
    params: Annotated[int, typer.Option(min=1, help="Parameters, each a float32.")] = 11_700_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each contender that count, at least.")] = 30,
    against: Annotated[
        str, typer.Option(metavar="A,B,C", help="Of ray, gloo, pyzmq and memory.")
    ] = "ray,gloo,pyzmq,memory",
    json: JsonOption = None,
) -> None:
    """Measure steps without a model, over shared memory, ipc and TCP, against what else there is; minutes.

    Everybody makes new gradients and updates the parameters with their mean, in processes of this machine, in turns.
    """

    def command() -> int:
        from pgczmq.bench.transport.work import Work
        from pgczmq.cli.races import transport

        rivals = [name.strip() for name in against.split(",") if name.strip()]
        transport(Work(workers, params), steps=steps, against=rivals, json_file=json)
        return 0

    guarded(command)


@bench.command("hosts")
def bench_hosts(
    workers: Annotated[int, typer.Option(min=1, max=128, help="Hosts beside the master's.")] = 12,
    mbits: Annotated[
        str, typer.Option(metavar="A,B", help="Limits of every link, Mbit/s, one after the other.")
    ] = "1000,200",
    params: Annotated[
        int, typer.Option(min=1, help="Parameters at 1000 Mbit/s; in proportion at others, so that steps take as long.")
    ] = 11_700_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each row that count.")] = 3,
    json: JsonOption = None,
) -> None:
    """Measure steps without a model between hosts with links of limited rate, all on this machine; minutes.

    Hosts are network namespaces: that needs Linux and root, and says so where it cannot be.
    """

    def command() -> int:
        from pgczmq.cli.hosts import show

        show(mbits, workers=workers, params=params, steps=steps, json_file=json)
        return 0

    guarded(command)


@bench.command("step")
def bench_step(
    task: Annotated[str, typer.Option(help="What is trained; images of the ResNets are generated.")] = "resnet18-cifar",
    workers: Annotated[int, typer.Option(min=2, max=128, help="Worker processes.")] = 12,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each scheme that count.")] = 8,
    schemes: Annotated[str, typer.Option(metavar="A,B,C", help="One run of each.")] = "dgd,gc-cr,pgc-cr",
    json: JsonOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write all steps there, for ui.perfetto.dev.")
    ] = None,
) -> None:
    """Measure where the time of real steps goes, and what they take over their gradients alone; minutes.

    They are steps of runs on this machine, one after the other, between measurements of their gradients alone.
    """

    def command() -> int:
        from pgczmq.bench.step.measure import run_config
        from pgczmq.cli.compare import names
        from pgczmq.cli.step import show

        runs = [run_config(task, scheme, workers=workers, steps=steps) for scheme in dict.fromkeys(names(schemes))]
        show(runs, json_file=json, trace_file=trace)
        return 0

    guarded(command)


@bench.command("views")
def bench_views(
    task: Annotated[
        str, typer.Option(help="What is trained; soak takes no time of its own, and 20 ms are added to each answer.")
    ] = "soak",
    workers: Annotated[int, typer.Option(min=2, max=128, help="Worker processes.")] = 8,
    steps: Annotated[int, typer.Option(min=20, help="Steps of each turn that count.")] = 200,
    rounds: Annotated[int, typer.Option(min=2, help="Turns of each: nobody looks, a dashboard, three viewers.")] = 10,
    json: JsonOption = None,
) -> None:
    """Measure what a dashboard, and three viewers with pgc top, take from the steps of a run; minutes.

    Real runs on this machine, in turns with runs that nobody looks at.
    """

    def command() -> int:
        from pgczmq.bench.views.measure import Work
        from pgczmq.cli.views import show

        show(Work(task, workers, steps), rounds=rounds, json_file=json)
        return 0

    guarded(command)
