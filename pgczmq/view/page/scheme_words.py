"""What a scheme does, in words: for people who see its name for the first time."""

from collections.abc import Mapping
from typing import Any

from pgczmq.view import words

ESTIMATES: Mapping[str, str] = {
    "dgd": "The estimate is exact; nobody may be missing.",
    "is-sgd": "The estimate is the mean of what came; the rest is ignored, whatever it would have said.",
    "fastest-k": "The estimate is the mean of what came; the rest is ignored, whatever it would have said.",
    "gc-fr": "Workers of a group hold the same partitions, and one of each group is enough: the estimate is exact, "
    "for as many times the computation as a worker holds partitions.",
    "gc-cr": "Any so many messages are combined to the exact estimate, with weights that undo the code, for as many "
    "times the computation as a worker holds partitions.",
    "is-gc-fr": "The estimate is the mean over as many partitions as can be recovered from those who came.",
    "is-gc-cr": "The estimate is the mean over as many partitions as can be recovered from those who came.",
    "is-gc-hr": "The estimate is the mean over as many partitions as can be recovered from those who came.",
    "pgc-fr": "A worker sends what it retained of all its partitions, so that one of each group stands for all of it; "
    "every partition is in the estimate, some of them a few steps old.",
    "pgc-cr": "A worker sends what it retained of all its partitions, and every arrival counts the same: every "
    "partition is in the estimate, some of them a few steps old, with shares that vary around 1.",
    "pgc-fr-staggered": "A worker sends what it retained of all its partitions; the workers of a group evaluate "
    "different ones, so that each partition is evaluated in every step and has share 1.",
    "pgc-cr-naive": "Stale gradients are combined with the weights of an exact code, which are huge: this scheme is "
    "kept to show how that fails.",
    "async": "There are no steps in common: each gradient is applied when it comes, to parameters that have moved on.",
}
"""What an update is made of, by scheme."""


def sentences(scheme: str, explanation: Mapping[str, Any] | None) -> list[str]:
    """What workers do, what a step waits for, and what comes of it.

    Args:
        scheme: its name.
        explanation: what ``pgczmq.app.explain.explain`` returns, with the workers' evaluations at some step; None where
            the scheme could not be built here.
    """
    estimate = [ESTIMATES[scheme]] if scheme in ESTIMATES else []
    if explanation is None:
        return estimate or ["A scheme of somebody's own, which is not explained here: its code would have to be run."]
    return [_workers(explanation), _closing(explanation), *estimate]


def _workers(explanation: Mapping[str, Any]) -> str:
    held, evaluated = explanation["load"], max(map(len, explanation["evaluates"]), default=0)
    which = "it" if held == 1 else "all of them" if evaluated == held else f"{evaluated} of them"
    return (
        f"The data has {words.count(explanation['workers'], 'partition')}, as many as there are workers. "
        f"Each worker holds {words.count(held, 'partition')} and evaluates {which} a step."
    )


def _closing(explanation: Mapping[str, Any]) -> str:
    of = f"{explanation['k']} of {words.count(explanation['workers'], 'worker')}"
    if explanation["policy"] != "fixed":
        return f"A step closes when {of} have answered at first; later the policy {explanation['policy']} decides."
    if explanation["wait"] == "usable":
        return f"A step closes as soon as what came is enough, at the latest when {of} have answered."
    return f"A step closes when {of} have answered."
