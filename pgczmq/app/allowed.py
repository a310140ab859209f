"""Which code a worker runs because a master names it: what is built in, and what its own user has allowed."""

from collections.abc import Collection, Mapping

from pgczmq.config import RunConfig
from pgczmq.errors import JoinRefused

VARIABLE = "PGC_ALLOW"


def named_code(config: RunConfig) -> dict[str, str]:
    """The ``module:function`` names in a run's configuration, by their settings: importing them runs code."""
    named = {"task.name": config.task.name, "scheme.name": config.scheme.name}
    return {setting: name for setting, name in named.items() if ":" in name}


def allowed_names(given: Collection[str], environment: Mapping[str, str]) -> frozenset[str]:
    """What this worker's user allows: every ``--allow``, and PGC_ALLOW, a list with commas."""
    listed = environment.get(VARIABLE, "").split(",")
    return frozenset(name.strip() for name in (*given, *listed) if name.strip())


def check_allowed(config: RunConfig, allowed: Collection[str]) -> None:
    """Whether a run names code that this worker may run; before anything of it is imported.

    Raises:
        JoinRefused: it does not; says what would have been run.
    """
    for setting, name in named_code(config).items():
        if name not in allowed:
            raise JoinRefused(
                f"a worker runs the code that a master names only if its own user allows it: this run has "
                f"{setting} = {name!r}, which was not run. If you trust it, add --allow {name}, or set {VARIABLE}."
            )
