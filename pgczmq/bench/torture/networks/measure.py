"""One scenario from its beginning to its end: what was right, and how long it took."""

import math
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.hosts.link import HEADER_BYTES
from pgczmq.bench.torture.networks.scenarios import PACE_SECONDS, STRAGGLERS, WORKERS, Scenario, Spell
from pgczmq.bench.torture.networks.site import MASTER, Seen, Site, hosts
from pgczmq.config import RunConfig, load
from pgczmq.errors import ClusterError
from pgczmq.runlog import StepRecord, read
from pgczmq.train import plain

START_SECONDS = 120.0
BACK_SECONDS = 400.0
"""The longest that workers may take to be back."""
LEARNING_RATE = 2e-4
STEP_TOLERANCE = 0.25
"""Weights may be off by this part of what one step changes: rounding is far less, a lost or repeated step far more."""


@dataclass(frozen=True)
class Outcome:
    """What became of a scenario; durations in seconds.

    Args:
        broken: how long it lasted.
        first: from its beginning until a step that was published after it was applied.
        after: the same from its end.
        pause: the longest between two steps, from the beginning on.
        back: from the end until an answer to a step that was published after it was in, by worker.
        steps: applied in the whole run.
        sent: payload bytes through the master's link, over what its steps need.
        wrong: what was not as it must be, in sentences.
    """

    name: str
    what: str
    broken: float
    first: float
    after: float
    pause: float
    back: Mapping[int, float]
    steps: int
    sent: float
    wrong: tuple[str, ...]

    @property
    def back_median(self) -> float:
        """Of all workers that it hit; nan where it hit none."""
        return median(self.back.values()) if self.back else math.nan

    @property
    def back_worst(self) -> float:
        """As the median."""
        return max(self.back.values(), default=math.nan)


def config_of(scenario: Scenario) -> RunConfig:
    """The run that it happens to: an exact scheme, so that the weights tell whether each step was applied once."""
    settings = {
        "workers": WORKERS,
        "steps": scenario.steps or 10**6,
        "task.name": plain.NAME,
        "task.args": f"{{size = {scenario.size}}}",
        "scheme.name": "gc-fr",
        "scheme.stragglers": STRAGGLERS,
        "optimizer.lr": LEARNING_RATE,
        "eval.every": 0,
        "delay.model": "constant",
        "delay.mean": PACE_SECONDS,
        "ui.mode": "none",
        **scenario.settings,
    }
    return load(None, [f"{key}={value}" for key, value in settings.items()], {})


def measure(scenario: Scenario) -> Outcome:
    """Have it happen, in a lab of its own. What the programs wrote stays where it is if anything was wrong.

    Raises:
        ConfigError: there can be no lab here.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"pgczmq-{scenario.name}-"))
    keep = False
    try:
        with Lab(hosts(WORKERS), scenario.rate) as lab:
            site = Site(lab, directory, config_of(scenario))
            site.start()
            outcome = _played(site, scenario)
        keep = bool(outcome.wrong)
    finally:
        if not keep:
            shutil.rmtree(directory)
    return replace(outcome, wrong=(*outcome.wrong, f"what its programs wrote is in {directory}")) if keep else outcome


def _played(site: Site, scenario: Scenario) -> Outcome:
    wrong: list[str] = []
    now = time.monotonic()
    spell = Spell(now, now)
    try:
        site.until(lambda: site.seen.last >= scenario.settled, START_SECONDS, "a first few steps are made")
        spell = scenario.act(site)
        site.until(lambda: _is_over(site.seen, scenario, spell), BACK_SECONDS, "everybody is back")
        if scenario.steps is None:
            site.stop()
        wrong += site.end(75 if scenario.steps is None else 0)
        wrong += [*_wrong_steps(site), *_wrong_words(site.seen, scenario)]
    except ClusterError as error:
        wrong.append(str(error))
    return _outcome(site, scenario, spell, wrong)


def _is_over(seen: Seen, scenario: Scenario, spell: Spell) -> bool:
    """All that is waited for has been seen."""
    if scenario.steps is not None:
        return seen.last == scenario.steps - 1
    everybody = len(back(seen, scenario.hit, spell.over)) == len(scenario.hit)
    return everybody and not math.isnan(first_after(seen, spell.over))


def _outcome(site: Site, scenario: Scenario, spell: Spell, wrong: Sequence[str]) -> Outcome:
    seen, config = site.seen, site.config
    counters = site.lab.counters(MASTER)
    packets = counters.sent_packets + counters.received_packets
    moved = counters.sent_bytes + counters.received_bytes - HEADER_BYTES * packets
    needed = 2 * len(seen.steps) * config.workers * 4 * scenario.size
    return Outcome(
        name=scenario.name,
        what=scenario.what,
        broken=spell.over - spell.begun,
        first=first_after(seen, spell.begun),
        after=first_after(seen, spell.over),
        pause=longest_pause(seen, spell.begun),
        back=back(seen, scenario.hit, spell.over),
        steps=len(seen.steps),
        sent=moved / needed if needed else math.nan,
        wrong=tuple(wrong),
    )


# ---------------------------------------------------------------- how long it took


def _open_at(seen: Seen, at: float) -> int:
    """The step that was open at a time, or applied so shortly before that this was not seen yet."""
    return max((step for when, step in seen.steps if when <= at), default=-1) + 1


def first_after(seen: Seen, at: float) -> float:
    """Seconds from ``at`` until a step that was published after it was applied; nan if none was."""
    open_step = _open_at(seen, at)
    return next((when - at for when, step in seen.steps if when > at and step > open_step), math.nan)


def longest_pause(seen: Seen, at: float) -> float:
    """The longest time between two steps, from the last one before ``at`` on."""
    times = [when for when, _ in seen.steps]
    return max((later - earlier for earlier, later in pairwise(times) if later > at), default=math.nan)


def back(seen: Seen, workers: Collection[int], at: float) -> dict[int, float]:
    """Seconds from ``at`` until an answer to a step that was published after it was in, of those that are back."""
    open_step = _open_at(seen, at)
    found: dict[int, float] = {}
    for answer in seen.answers:
        if answer.worker in workers and answer.at > at and answer.step > open_step:
            found.setdefault(answer.worker, answer.at - at)
    return found


# ---------------------------------------------------------------- whether it was right


def _wrong_steps(site: Site) -> list[str]:
    """Each step is on record once and in order, and the weights are what comes of that."""
    steps = [record.step for record in read(site.run, StepRecord)]
    if steps != list(range(len(steps))):
        return ["steps are not on record once and in order"]
    return _wrong_weights(site, len(steps))


def _wrong_weights(site: Site, steps: int) -> list[str]:
    """Those that so many steps of gradient descent over all partitions lead to, in float64."""
    config = site.config
    saved = site.run / "checkpoints" / f"step_{steps:06d}" / plain.FILE
    if not saved.exists():
        return [f"there is no checkpoint of step {steps}"]
    expected = last = np.zeros(int(config.task.args["size"]))
    for step in range(steps):
        of_each = [
            plain.gradient(expected.astype(np.float32), seed=config.seed, partition=partition, step=step)
            for partition in range(config.workers)
        ]
        last = config.optimizer.lr * np.mean(of_each, axis=0)
        expected = expected - last
    off = float(np.linalg.norm(np.load(saved) - expected) / np.linalg.norm(last))
    return (
        [] if off <= STEP_TOLERANCE else [f"the weights after {steps} steps are off by {off:.2g} of what one changes"]
    )


def _wrong_words(seen: Seen, scenario: Scenario) -> list[str]:
    """What the run must say of itself; that it goes on it says only where no answer closes the step first."""
    if scenario.waits and "waiting" not in [kind for kind, _ in seen.events]:
        return ["the run did not say that it waits"]
    return []
