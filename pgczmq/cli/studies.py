"""The commands that try schemes out: studies, claims of papers, explanations and formulas."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pgczmq.cli import completion
from pgczmq.cli.common import ConfigOption, JsonOption, SetOption, guarded, load_config


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


def compare_schemes(
    config: ConfigOption = None,
    settings: SetOption = None,
    schemes: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Which; the file's scheme.wait, shortfall, deadline, max_age and on_new_step hold for all.",
            autocompletion=completion.schemes,
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
