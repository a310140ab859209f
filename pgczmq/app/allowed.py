"""What a worker does because a master names it: what is built in, and what its own user has allowed."""

from collections.abc import Collection, Mapping

from pgczmq.config import RunConfig
from pgczmq.errors import JoinRefused
from pgczmq.train import plain

VARIABLE = "PGC_ALLOW"
_WRITTEN = ("log", "gates")


def asked_for(config: RunConfig) -> dict[str, str]:
    """What a run asks of its workers beside what is built in, by its settings.

    ``module:function`` names, since importing them runs code, and directories in which task "soak" writes. Not names
    of entry points: whoever installed such a package on this machine has offered its functions to runs. Not the policy:
    it decides on the master alone.
    """
    delay = config.delay
    parts = {"delay": delay, "delay.communication": delay.communication, "delay.computation": delay.computation}
    named = {"task.name": config.task.name, "scheme.name": config.scheme.name}
    named |= {f"{section}.model": part.model for section, part in parts.items() if part is not None}
    asked = {setting: name for setting, name in named.items() if ":" in name}
    if config.task.name == plain.NAME:
        asked |= {f"task.args.{key}": str(config.task.args[key]) for key in _WRITTEN if config.task.args.get(key)}
    return asked


def allowed_names(given: Collection[str], environment: Mapping[str, str]) -> frozenset[str]:
    """What this worker's user allows: every ``--allow``, and PGC_ALLOW, a list with commas."""
    listed = environment.get(VARIABLE, "").split(",")
    return frozenset(name.strip() for name in (*given, *listed) if name.strip())


def check_allowed(config: RunConfig, allowed: Collection[str]) -> None:
    """Whether this worker may do what a run asks for; before anything of it is imported or written.

    Raises:
        JoinRefused: it may not; says what it would have done.
    """
    for setting, name in asked_for(config).items():
        if name not in allowed:
            raise JoinRefused(
                "a worker runs code, and writes in directories, that a master names only if its own user allows it: "
                f"this run has {setting} = {name!r}. If you trust it, add --allow {name}, or set {VARIABLE}."
            )
