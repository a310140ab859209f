"""Whether a run with a model that was disturbed trains as well as runs that nobody disturbs."""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgczmq.bench.torture.soak.audit import Findings
from pgczmq.config import RunConfig
from pgczmq.errors import ClusterError
from pgczmq.runlog import Result, read_result

SEEDS = 5
"""Undisturbed runs; the first has the seed of the disturbed one."""
SPREADS = 2.0
"""So many times as far from the median as the farthest undisturbed run: nearer is within their spread.

A sixth run like the five would be nearer with a probability of about 95 %, and farther than the farthest with a third.
"""


def compared(config: RunConfig, directory: Path, result: Result | None, findings: Findings) -> Mapping[str, Any]:
    """The held-out losses, disturbed and undisturbed; one that is too large is a finding.

    Args:
        directory: of the soak; the undisturbed runs are simulated in it.
        result: of the disturbed run, if it came to its end.
    """
    seeds = range(config.seed, config.seed + SEEDS)
    losses = [_simulated(config, directory, seed).loss for seed in seeds]
    disturbed = None if result is None else result.loss
    text = verdict(disturbed, losses)
    if text:
        findings.add("loss", text)
    return {"disturbed": disturbed, "undisturbed": losses}


def verdict(disturbed: float | None, undisturbed: Sequence[float | None]) -> str:
    """What is wrong with the loss of the disturbed run; empty when nothing is."""
    known = [loss for loss in undisturbed if loss is not None]
    if disturbed is None or len(known) < len(undisturbed):
        return f"a run has no loss: the disturbed one {disturbed}, the undisturbed ones {list(undisturbed)}"
    median = statistics.median(known)
    limit = median + SPREADS * max(abs(loss - median) for loss in known)
    if disturbed <= limit:
        return ""
    losses = ", ".join(f"{loss:.4g}" for loss in sorted(known))
    return f"the disturbed run ends with a loss of {disturbed:.4g}, over {limit:.4g}; undisturbed runs with {losses}"


def _simulated(config: RunConfig, directory: Path, seed: int) -> Result:
    """The same run in virtual time, where nothing fails."""
    calm = config.model_copy(update={"seed": seed, "faults": (), "name": f"calm-{seed}"})
    (directory / "calm.toml").write_text(calm.to_toml(), encoding="utf-8")
    out = directory / f"calm-{seed}.json"
    command = [str(Path(sys.executable).with_name("pgc")), "sim", "--config", "calm.toml", "--json", str(out)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"pgc sim failed in {directory}: {done.stderr.strip() or json.dumps(done.args)}")
    return read_result(out)
