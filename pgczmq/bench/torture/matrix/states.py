"""States of a worker and of a master, and how to bring one of them there and keep it until something has happened.

Nothing is timed: gates hold up what is computed, traps what is sent, and files and log lines tell the rest.
"""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pgczmq.bench.torture.matrix.links import Trap, Way
from pgczmq.bench.torture.matrix.stage import Program, Stage
from pgczmq.train import gates

End = Literal["worker", "master"]

STRUCK = 1
"""The worker that things happen to."""
STEP = 5
"""The step at which they do: so early that no call counts as so short yet that it is made on the event loop."""
CONTROL, GRADIENTS = 0, 1
_HELLO, _PREPARED, _GRADIENT, _DELAYED = b"\xa5hello", b"\xa8prepared", b"\xa8gradient", b"\xa7delayed"
_IDLE = b"\xa5state\xa4idle\xa4step" + bytes([STEP])


@dataclass(frozen=True)
class State:
    """One of them.

    Args:
        name: for the command line.
        end: whose.
        reach: starts programs and returns when the one in question is there.
        settings: keys of the run that it takes.
        finishes: the gate of what must be done before the process may leave on request.
        last: it is on its way out anyway.
    """

    name: str
    end: End
    reach: Callable[[Stage], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    finishes: str = ""
    last: bool = False

    def struck(self, stage: Stage) -> Program:
        """The program that is in this state."""
        return stage.master if self.end == "master" else stage.workers[STRUCK]


# ---------------------------------------------------------------- of a worker


def _connecting(stage: Stage) -> None:
    stage.start_worker(STRUCK)
    stage.until(lambda: stage.links[STRUCK].refused, "a connection")


def _hello(stage: Stage) -> None:
    _start_trapped(stage, Trap(Way(CONTROL, True), _HELLO, holds=Way(CONTROL, False)))


def _preparing(stage: Stage) -> None:
    _start_gated(stage, f"prepare-{STRUCK}", 0)


def _prepared(stage: Stage) -> None:
    _start_trapped(stage, Trap(Way(CONTROL, True), _PREPARED, holds=Way(CONTROL, True)))


def _idle(stage: Stage) -> None:
    gates.close(stage.gates, "evaluate-0", STEP)
    _start_trapped(stage, Trap(Way(CONTROL, True), _IDLE))


def _computing(stage: Stage) -> None:
    _start_gated(stage, f"evaluate-{STRUCK}", STEP)


def _delayed(stage: Stage) -> None:
    _start_trapped(stage, Trap(Way(CONTROL, True), _DELAYED, count=3))


def _sending(stage: Stage) -> None:
    answers = Way(GRADIENTS, True)
    _start_trapped(stage, Trap(answers, _GRADIENT, count=STEP, holds=answers))


def _orphaned(stage: Stage) -> None:
    _start_gated(stage, "evaluate-0", STEP)
    stage.master.send(signal.SIGKILL)
    stage.until(lambda: stage.master.collect() is not None, "the end of the master")
    stage.until(lambda: "is silent" in stage.workers[STRUCK].said(), "the worker noticing that")


def _start_trapped(stage: Stage, trap: Trap) -> None:
    stage.links[STRUCK].set(trap)
    stage.start_all()
    stage.until(trap.sprung.is_set, str(trap.pattern))


def _start_gated(stage: Stage, place: str, step: int) -> None:
    gates.close(stage.gates, place, step)
    stage.start_all()
    stage.until(lambda: gates.is_reached(stage.gates, place), place)


# ---------------------------------------------------------------- of a master


def _starting(stage: Stage) -> None:
    stage.start_master()
    stage.start_worker(0)
    stage.until(lambda: stage.noted("ready"), "worker 0")


def _applying(stage: Stage) -> None:
    _start_gated(stage, "apply", STEP)


def _checkpointing(stage: Stage) -> None:
    gates.close(stage.gates, "evaluate-0", STEP + 1)  # or the run would be over first
    _start_gated(stage, "checkpoint", STEP)


def _below(stage: Stage) -> None:
    _start_gated(stage, f"evaluate-{STRUCK}", STEP)
    stage.workers[STRUCK].send(signal.SIGKILL)
    stage.until(lambda: stage.workers[STRUCK].collect() is not None, "the end of the worker")
    gates.open_again(stage.gates, f"evaluate-{STRUCK}")
    stage.until(lambda: stage.noted("waiting", "cannot close"), "the master noticing that")


def _finishing(stage: Stage) -> None:
    _start_gated(stage, "checkpoint", stage.steps)


def _evaluating(stage: Stage) -> None:
    gates.close(stage.gates, "evaluation")
    stage.start_master()
    stage.until(lambda: "listening on" in stage.master.said(), "a master with torch")
    for number in range(len(stage.workers)):
        stage.start_worker(number)
    stage.until(lambda: gates.is_reached(stage.gates, "evaluation"), "an evaluation")


SLOW = {"delay.model": "constant", "delay.mean": 1, "delay.workers": [STRUCK], "steps": 5}
IN_TORCH = {"task.name": "pgczmq.bench.torture.matrix.slow_evaluation:task", "eval.every": STEP}
EVALUATED_MIDWAY = IN_TORCH | {"delay.model": "constant", "delay.mean": 0.3}
LARGE = {"net.payload": "tcp", "task.args.size": 300_000}

STATES = {
    state.name: state
    for state in (
        State("connecting", "worker", _connecting),
        State("hello", "worker", _hello),
        State("preparing", "worker", _preparing),
        State("prepared", "worker", _prepared),
        State("idle", "worker", _idle),
        State("computing", "worker", _computing),
        State("delayed", "worker", _delayed, SLOW),
        State("sending", "worker", _sending, LARGE),
        State("orphaned", "worker", _orphaned),
        State("starting", "master", _starting),
        State("open", "master", _computing),
        State("applying", "master", _applying, finishes="apply"),
        State("checkpointing", "master", _checkpointing, finishes="checkpoint"),
        State("below", "master", _below),
        State("evaluating", "master", _evaluating, EVALUATED_MIDWAY),
        State("evaluating-last", "master", _evaluating, IN_TORCH | {"steps": STEP}, last=True),
        State("finishing", "master", _finishing, finishes="checkpoint", last=True),
    )
}
