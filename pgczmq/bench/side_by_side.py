"""The same function of many arguments, in as many processes as there are cores: a fresh one for each."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeVar, cast

from pgczmq.app import processes
from pgczmq.errors import PgcError

A = TypeVar("A")
R = TypeVar("R")


def each(function: Callable[[A], R], arguments: Sequence[A], *, task: str = "") -> Iterator[tuple[A, R]]:
    """(argument, result) as they are known; no process is left when this ends, however it ends.

    Args:
        function: importable by name; its argument and result can be pickled.
        task: name of the task whose slow imports all of them share.

    Raises:
        PgcError: as the function raised it; or its process was killed.
        RuntimeError: the function has a defect.
    """
    context = processes.start_helper(task)
    waiting = list(reversed(arguments))
    running: dict[Connection, tuple[ForkServerProcess, A]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes.cores():
                receiver, process = _start(context, function, waiting[-1])
                running[receiver] = (process, waiting.pop())
            for ready in wait(list(running)):
                receiver = cast("Connection", ready)
                process, argument = running.pop(receiver)
                yield argument, _result(receiver, process)
    finally:
        for process, _ in running.values():
            process.kill()


def _start(context: ForkServerContext, function: Callable[[A], R], argument: A) -> tuple[Connection, ForkServerProcess]:
    receiver, sender = context.Pipe(duplex=False)
    process = processes.spawn(context, _work, sender, function, argument)
    sender.close()  # so that the process's end is the pipe's
    return receiver, process


def _work(sender: Connection, function: Callable[[Any], Any], argument: Any) -> None:
    """In the process: the result, or what went wrong, goes into the pipe."""
    try:
        sender.send((function(argument), None))
    except PgcError as error:
        sender.send((None, error))
    except Exception:
        sender.send((None, RuntimeError(traceback.format_exc())))


def _result(receiver: Connection, process: ForkServerProcess) -> Any:
    try:
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise PgcError(
            f"a process was killed (exit code {process.exitcode}), perhaps for lack of memory. Start the same again."
        ) from None
    finally:
        receiver.close()
    process.join()
    if error is not None:
        raise error
    return result
