"""What a study comes to: for each case the median and spread over its seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgczmq.bench.study import Spread, by_label, spread
from pgczmq.bench.tally import Row

FIGURES: Mapping[str, Callable[[Row], float | None]] = {
    "seconds_per_step": lambda row: row.seconds_per_step,
    "target_step": lambda row: row.reached.step if row.reached else None,
    "target_seconds": lambda row: row.reached.seconds if row.reached else None,
    "target_samples": lambda row: row.reached.samples if row.reached else None,
    "loss": lambda row: row.loss,
    "held_out": lambda row: row.held_out,
    "metric": lambda row: row.metric,
    "recovered": lambda row: row.recovered,
    "mean_age": lambda row: row.mean_age,
    "max_alpha": lambda row: row.max_alpha,
    "worst_loss": lambda row: row.worst_loss,
    "last_k": lambda row: row.last_k,
    "diverged": lambda row: float(row.diverged),
    "target_computation": lambda row: row.reached.computation if row.reached else None,
    "target_communication": lambda row: row.reached.communication if row.reached else None,
    "computation": lambda row: row.spent.computation,
    "communication": lambda row: row.spent.communication,
}
"""Name of a figure -> its value of one run; None where it did not reach the goal, or has none."""


@dataclass(frozen=True)
class Summary:
    """One case: how many runs, figures over them, and seconds a step over those of dgd, seed by seed."""

    label: str
    runs: int
    figures: Mapping[str, Spread]
    relative: Spread | None


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One for each label, in the order of the rows."""
    groups = by_label(rows)
    reference = {row.seed: row.seconds_per_step for row in groups.get("dgd", ())}
    found = []
    for label, group in groups.items():
        made = {name: spread(map(figure, group)) for name, figure in FIGURES.items()}
        there = {name: value for name, value in made.items() if value is not None}
        found.append(Summary(label, len(group), there, spread(_over(row, reference) for row in group)))
    return found


def _over(row: Row, reference: Mapping[int, float | None]) -> float | None:
    seconds, other = row.seconds_per_step, reference.get(row.seed)
    return seconds / other if seconds is not None and other else None
