"""A worker process in which every evaluation ends when the parent says so: ``gated_worker.py PORT NUMBER``.

It writes JSON lines: ["took", event, evaluates] when its pipeline has taken an event, and ["evaluates", step,
partition] when its compute begins to evaluate; the step is the one that the parameters in its hands are of, not what
it was told. Each line that it reads ends an evaluation.
"""

import asyncio
import json
import os
import sys

import numpy as np
from numpy_task import NumpyWorker

from pgczmq.core import schemes
from pgczmq.core.delays import ConstantDelay
from pgczmq.core.pipeline import EvaluatePlace, Opened, Pipeline, WorkerCommand, WorkerEvent
from pgczmq.core.schemes import Settings
from pgczmq.net import beside, wire
from pgczmq.net.sockets import Sockets
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker

SIZE = 8
beside.SHORT_SECONDS = 0.0  # whoever waits for a line does not do so on the event loop, however soon the last ones came


def say(*what: object) -> None:
    """One line in one piece, from whichever thread."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Gated(NumpyWorker):
    """Each evaluation waits for a line."""

    def evaluate(self, step: int, place: int, batch_fraction: float, room: np.ndarray) -> float:
        say("evaluates", int(self.params[0]), self.held[place])
        sys.stdin.readline()
        return super().evaluate(step, place, batch_fraction, room)


class Telling(Pipeline):
    """Tells what it has taken, so that the parent need not guess what has arrived."""

    def handle(self, event: WorkerEvent) -> list[WorkerCommand]:
        commands = super().handle(event)
        if not isinstance(event, Opened):
            say("took", type(event).__name__, any(isinstance(command, EvaluatePlace) for command in commands))
        return commands


def prepare(welcome: wire.Welcome) -> Prepared:
    settings = json.loads(welcome.config)
    delay = ConstantDelay(settings.pop("delay"))
    scheme = schemes.build(Settings(**settings))
    pipeline = Telling(
        welcome.worker,
        welcome.held,
        schedule=scheme.schedule,
        on_new_step=scheme.on_new_step,
        delay=delay.seconds,
    )
    return Prepared(Gated(SIZE, welcome.held, welcome.coefficients), pipeline)


async def main(port: int, number: int) -> None:
    with Sockets() as sockets:
        await Worker(sockets, host="127.0.0.1", port=port, number=number, prepare=prepare, master_timeout=600.0).run()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
    os._exit(0)  # a compute thread may still wait for a line
