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
    """One case: how many runs, figures over them, and seconds a step over the median of the case called dgd."""

    label: str
    runs: int
    figures: Mapping[str, Spread]
    relative: Spread | None


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One for each label, in the order of the rows."""
    groups = by_label(rows)
    seconds = {label: spread(row.seconds_per_step for row in group) for label, group in groups.items()}
    reference = seconds.get("dgd")
    found = []
    for label, group in groups.items():
        made = {name: spread(map(figure, group)) for name, figure in FIGURES.items()}
        there = {name: value for name, value in made.items() if value is not None}
        found.append(Summary(label, len(group), there, _over(seconds[label], reference)))
    return found


def _over(one: Spread | None, other: Spread | None) -> Spread | None:
    if one is None or other is None or not other.median:
        return None
    return Spread(one.median / other.median, one.low / other.median, one.high / other.median, one.count)
