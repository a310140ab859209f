"""A master or a worker of the bench, as a process on one host of a lab. ADDRESS is the master's.

master ADDRESS WORKERS PARAMS WIRE_DTYPE STEPS    prints "open", then the times of its steps as JSON
worker ADDRESS WORKERS PARAMS WIRE_DTYPE NUMBER   runs until the master says that the run is over
"""

import json
import sys
from collections.abc import Sequence

import numpy as np

from pgczmq.app import processes
from pgczmq.bench.transport.contenders.program import Listening, run_master, run_worker
from pgczmq.bench.transport.work import Work
from pgczmq.train import half

PORT = 5555


def main(argv: Sequence[str]) -> None:
    """Carry out the command line."""
    role, address, workers, params, wire_dtype, number = argv
    processes.keep_large_blocks()
    if wire_dtype == "bfloat16":
        _get_ready_to_round()
    work = Work(int(workers), int(params))
    if role == "master":
        master(address, work, int(number), wire_dtype)
    else:
        run_worker(work, address, PORT, int(number))


def master(address: str, work: Work, steps: int, wire_dtype: str) -> None:
    """Run to the end and print when each step was published and applied, on ``time.monotonic``.

    Raises:
        PgcError: the run ended early, or its result is wrong.
    """
    # Namespaces do not divide the memory: workers in others would find that they can share the master's.
    listening = Listening(bind=address, port=PORT, payload="tcp", wire_dtype=wire_dtype)
    served = run_master(work, steps, listening, opened=lambda port: print("open", flush=True))
    print(json.dumps(served.steps), flush=True)


def _get_ready_to_round() -> None:
    """Rounding loads torch, which takes seconds: better now than while the others of the run wait."""
    half.to_bfloat16(np.zeros(1, np.float32), np.zeros(1, np.uint16))


if __name__ == "__main__":
    main(sys.argv[1:])
