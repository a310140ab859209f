"""What another process says of a task: its data, first parameters and a gradient there.

Replicas of a partition are in different processes. What depends on the process, such as hash(), id(), the time or the
system's random numbers, is the same within one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pgczmq.app.check import Check
from pgczmq.config import RunConfig, loads
from pgczmq.errors import ConfigError, PgcError

if TYPE_CHECKING:
    from pgczmq.train.trial import Trial

SECONDS = 120.0
"""How long the other process may take beside what this one does meanwhile."""


@dataclass(frozen=True)
class Testimony:
    """Hashes of the training data, of a minibatch, of the model's first parameters, and of a gradient there."""

    data: str
    minibatch: str
    params: str
    gradient: str


def trial_of(config: RunConfig, streams: int) -> "Trial":
    """The run's task, as a worker of it would have it; imports torch.

    Args:
        streams: what the global random streams begin with.

    Raises:
        ConfigError: something about the task does not work.
    """
    from pgczmq.app.build import partitions_of
    from pgczmq.train.gradient import resolve_device
    from pgczmq.train.trial import Trial

    return Trial(
        config.task.name,
        config.task.args,
        seed=config.seed,
        cut=lambda task: partitions_of(config, task),
        device="cpu" if config.deterministic else resolve_device(config.device),
        streams=streams,
    )


def testify(config: RunConfig, streams: int) -> Testimony:
    """What this process has to say; imports torch.

    Args:
        streams: what the global random streams begin with.

    Raises:
        ConfigError: something about the task does not work.
    """
    import torch

    from pgczmq.train.trial import sha256

    torch.set_num_threads(1)
    trial = trial_of(config, streams)
    params = trial.flat.params.cpu()
    evaluation = trial.evaluate(params, trial.gradient.base_buffers, step=0, partition=0)
    return Testimony(
        trial.gradient.fingerprint["data"],
        sha256(*trial.minibatch(0, 0)),
        sha256(params),
        sha256(evaluation.gradient),
    )


class Witness:
    """Another process that testifies; started at once, heard later."""

    def __init__(self, config: RunConfig) -> None:
        # Sets and dicts of strings are in another order under another seed; a file called random.py stays harmless.
        hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pgczmq.app.testimony", config.to_toml().encode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
        )

    def hear(self) -> Testimony:
        """Wait for what it says.

        Raises:
            ConfigError: it does not come to an end, or says why it has nothing to say.
        """
        try:
            said, complaint = self._process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"it is not done after {SECONDS:g} s.") from None
        finally:
            self.dismiss()
        lines = (said if self._process.returncode == 0 else complaint).strip().splitlines()
        last = lines[-1] if lines else f"it ended with exit code {self._process.returncode}"
        if self._process.returncode != 0:
            raise ConfigError(last)
        return Testimony(**json.loads(last))

    def dismiss(self) -> None:
        """End it, whatever it is doing."""
        with self._process:  # closes the pipes, and waits
            self._process.kill()


def other_process(trial: "Trial", hear: Callable[[], Testimony]) -> Check:
    """Whether another process has the same task: data, first parameters, gradient.

    Args:
        trial: of this process.
        hear: gives what the other one says; raises ConfigError where it says nothing.
    """
    from pgczmq.train.trial import sha256

    try:
        there = hear()
    except ConfigError as error:
        return Check("processes", "problem", f"in another process the task cannot be used: {error}")
    params = trial.flat.params.cpu()
    gradient = trial.evaluate(params, trial.gradient.base_buffers, step=0, partition=0).gradient
    hashes = sha256(*trial.minibatch(0, 0)), sha256(params), sha256(gradient)
    here = Testimony(trial.gradient.fingerprint["data"], *hashes)
    return _compared(here, there)


def _compared(here: Testimony, there: Testimony) -> Check:
    if (here.data, here.minibatch) != (there.data, there.minibatch):
        text = (
            "another process has other training data, so that workers would be refused: something depends on the "
            "process, such as the order of a set, hash() of a string, the time, os.urandom, or files that change. "
            "Sort names, and draw from the argument seed."
        )
        return Check("processes", "problem", text)
    if here.params != there.params:
        text = (
            "another process begins with other parameters, so that a run cannot be repeated: model() draws from "
            "something else than torch's global stream."
        )
        return Check("processes", "warning", text)
    if here.gradient != there.gradient:
        text = (
            "another process gets another gradient from the same data and parameters: the model or the loss depends on "
            "the process, such as the order of a set, hash() of a string, or the time."
        )
        return Check("processes", "problem", text)
    return Check("processes", "ok", "another process has the same data, first parameters and gradient, to the bit")


def main() -> int:
    """Testify about the run that is given as TOML, in a line of JSON."""
    try:
        testimony = testify(loads(os.fsencode(sys.argv[1]).decode()), streams=2)
    except PgcError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n" + json.dumps(asdict(testimony)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
