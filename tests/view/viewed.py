"""A process with a view on its terminal, for tests: records go in at once, then it does what it is told.

    python viewed.py DESCRIPTOR [COMMAND...]     a byte on DESCRIPTOR, or its end, is the sign for the next command

Commands: ``step`` (20 more steps), ``say`` (print and log), ``raise``, ``leave`` (as cli.common does), ``deaf`` (to
SIGHUP), ``mute``. At its end it prints "the end", unless it is mute.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from made_up_run import records, result, step_record
from rich.console import Console

from pgczmq.runlog import Sink
from pgczmq.view.live.screen import open_view
from pgczmq.view.live.terminal import give_back


def step(sink: Sink) -> None:
    for number in range(60, 80):
        sink(step_record(number))


def say(sink: Sink) -> None:
    print("from [/tag] a library")
    logging.getLogger("pgczmq.test").warning("the disk is %s", "full")
    logging.getLogger("pgczmq.test").info("all is well")


def fail(sink: Sink) -> None:
    raise RuntimeError("the run's own")


def leave(sink: Sink) -> None:
    give_back()
    os._exit(7)


def deaf(sink: Sink) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def mute(sink: Sink) -> None:
    pass


COMMANDS: dict[str, Callable[[Sink], None]] = {
    "step": step,
    "say": say,
    "raise": fail,
    "leave": leave,
    "deaf": deaf,
    "mute": mute,
}


def main() -> None:
    told, commands = int(sys.argv[1]), sys.argv[2:]
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    with open_view("auto", Console(stderr=True)) as sink:
        for record in records(4, done=60):
            sink(record)
        for command in commands:
            os.read(told, 1)
            COMMANDS[command](sink)
        os.read(told, 1)
        sink(result())
    if "mute" in commands:
        os._exit(0)  # nothing more is written, at the interpreter's end either
    print("the end")


main()
