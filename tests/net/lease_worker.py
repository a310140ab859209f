"""A worker process of a NumPy run that can be stopped in an evaluation: ``lease_worker.py PORT NUMBER STEP``.

At that step it has loaded the parameters, says ["pauses", step], and waits for a line, or to be stopped. It says
["lost", step] for each evaluation that came to nothing, and ["answers", step] for what it sends.
"""

import asyncio
import json
import os
import sys

import numpy as np
from numpy_task import NumpyWorker

from pgczmq.core.delays import NoDelay
from pgczmq.core.pipeline import Answer, Lost, Pipeline, WorkerCommand, WorkerEvent
from pgczmq.core.schemes import Settings, build
from pgczmq.net import wire
from pgczmq.net.sockets import Sockets
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker

SIZE = 20_000
HEARTBEAT = 0.2
SCHEME = Settings("pgc-cr", 4, stragglers=1)


def say(*what: object) -> None:
    """One line in one piece, from whichever thread."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Sleeper(NumpyWorker):
    """Pauses once between loading the parameters and reading them."""

    pauses_at = -1

    def evaluate(self, step: int, place: int, batch_fraction: float, room: np.ndarray) -> float:
        if step >= self.pauses_at >= 0:
            self.pauses_at = -1
            say("pauses", step)
            sys.stdin.readline()
        return super().evaluate(step, place, batch_fraction, room)


class Telling(Pipeline):
    """Tells what was lost and what is answered."""

    def handle(self, event: WorkerEvent) -> list[WorkerCommand]:
        if isinstance(event, Lost):
            say("lost", self.step)
        commands = super().handle(event)
        for command in commands:
            if isinstance(command, Answer):
                say("answers", command.step)
        return commands


async def main(port: int, number: int, pauses_at: int) -> None:
    def prepare(welcome: wire.Welcome) -> Prepared:
        scheme = build(SCHEME)
        compute = Sleeper(SIZE, welcome.held, welcome.coefficients)
        compute.pauses_at = pauses_at
        pipeline = Telling(
            welcome.worker,
            welcome.held,
            schedule=scheme.schedule,
            on_new_step=scheme.on_new_step,
            delay=NoDelay().seconds,
        )
        return Prepared(compute, pipeline)

    with Sockets() as sockets:
        bye = await Worker(
            sockets, host="127.0.0.1", port=port, number=number, prepare=prepare, master_timeout=60.0
        ).run()
    say("bye", bye.exit)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
