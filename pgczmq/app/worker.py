"""One worker process: find the master, join, compute until the run is over."""

import asyncio
import faulthandler
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgczmq.app.build import delay_of, partitions_of, scheme_of
from pgczmq.app.processes import cores, keep_large_blocks, long_slices
from pgczmq.config import RunConfig, loads, reason
from pgczmq.core.delays import NoDelay
from pgczmq.core.pipeline import Pipeline
from pgczmq.errors import ConfigError, MasterUnreachable, PgcError
from pgczmq.net import wire
from pgczmq.net.sockets import Sockets
from pgczmq.net.workbench import Prepared
from pgczmq.net.worker import Worker

log = logging.getLogger("pgczmq.worker")

DEFAULT_MASTER = "tcp://127.0.0.1:5555"
CONNECTION_FILE = "pgc-connect.json"
PATIENCE_SECONDS = 120.0
_ID_SOURCES = ("PGC_WORKER_ID", "RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True)
class Identity:
    """A worker's number, and where it was found."""

    number: int | None
    source: str


def identity(given: int | None, environment: Mapping[str, str]) -> Identity:
    """The worker's number: ``--id``, else the first of the launchers' variables that is set, else the master's choice.

    Raises:
        ConfigError: a variable is not a number, or two of them disagree.
    """
    if given is not None:
        return Identity(given, "--id")
    found: dict[str, int] = {}
    for name in _ID_SOURCES:
        text = environment.get(name, "")
        if not text or (name == "SLURM_PROCID" and environment.get("SLURM_NTASKS", "1") == "1"):
            continue  # Slurm numbers a lone interactive task 0 too
        if not text.isdecimal():
            raise ConfigError(f"{name} must be a worker number: got {text!r}. Set --id instead.")
        found[name] = int(text)
    if "PGC_WORKER_ID" in found:
        return Identity(found["PGC_WORKER_ID"], "PGC_WORKER_ID")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name}={number}" for name, number in found.items())
        raise ConfigError(f"the environment names different worker numbers: {listed}. Set --id or PGC_WORKER_ID.")
    if found:
        name, number = next(iter(found.items()))
        return Identity(number, name)
    return Identity(None, "the master")


def master_address(given: str | None, environment: Mapping[str, str], directory: Path) -> str:
    """Where the master is: ``--master``, else PGC_MASTER, else ./pgc-connect.json, else this host.

    Raises:
        ConfigError: the connection file cannot be used.
    """
    if given or environment.get("PGC_MASTER"):
        return given or environment["PGC_MASTER"]
    file = directory / CONNECTION_FILE
    if not file.exists():
        return DEFAULT_MASTER
    try:
        return str(json.loads(file.read_text())["master"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'{file} must hold {{"master": "tcp://HOST:PORT"}}: {type(error).__name__} {error}.'
        ) from None


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``; scheme and port may be left out.

    Raises:
        ConfigError: it is no such address.
    """
    rest = address.removeprefix("tcp://")
    host, _, port = rest.rpartition(":") if ":" in rest and not rest.endswith("]") else (rest, "", "5555")
    bare = host.strip("[]")
    bracketed = host == f"[{bare}]"
    valid = bare and bracketed == (":" in bare) and "/" not in bare and port.isdecimal() and 0 < int(port) < 65536
    if not valid:
        raise ConfigError(f"a master's address is tcp://HOST:PORT, for example tcp://10.0.0.5:5555: got {address!r}.")
    return bare, int(port)


def resolve(host: str, port: int) -> str:
    """The numeric address of a host; ZeroMQ would stall all sockets while it looks one up.

    Raises:
        MasterUnreachable: the name is not known.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # IPv4 first: "localhost" is both, and a master listens on 127.0.0.1 unless told otherwise.
        return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
    except OSError as error:
        raise MasterUnreachable(f"the master's host {host} cannot be found: {error.strerror}.") from None


def prepare(welcome: wire.Welcome, threads: int) -> Prepared:
    """Build model, data and pipeline of an admitted worker; imports torch.

    Args:
        threads: torch threads when the run leaves it to the worker.
    """
    import torch

    from pgczmq.train.data import hold
    from pgczmq.train.gradient import Gradients, resolve_device
    from pgczmq.train.task import load_task

    config = loads(welcome.config)
    long_slices()
    torch.set_num_threads(_threads(config, threads))
    scheme = scheme_of(config)
    task = load_task(config.task.name, config.task.args, config.seed)
    partitions = partitions_of(config, task)
    compute = Gradients(
        task,
        held=welcome.held,
        coefficients=welcome.coefficients,
        partitions=partitions,
        seed=config.seed,
        device="cpu" if config.deterministic else resolve_device(config.device),
    )
    hold(task.train, partitions, welcome.held)
    pipeline = Pipeline(
        welcome.worker,
        welcome.held,
        schedule=scheme.schedule,
        on_new_step=scheme.on_new_step,
        delay=NoDelay().seconds if config.deterministic else delay_of(config).seconds,
    )
    return Prepared(compute, pipeline, config.net.heartbeat)


def _threads(config: RunConfig, otherwise: int) -> int:
    if config.threads != "auto":
        return config.threads
    return 1 if config.deterministic else otherwise


async def serve(
    host: str, port: int, number: int | None, *, threads: int | None = None, patience: float = PATIENCE_SECONDS
) -> wire.Bye:
    """Run one worker until the run is over; SIGTERM and SIGINT make it say goodbye and leave.

    Args:
        host, port: the master's control address.
        number: this worker's, None for the lowest free.
        threads: torch threads; all cores unless set here or in the run.
        patience: seconds to wait for a silent master.

    Raises:
        JoinRefused, MasterUnreachable: as net.worker.Worker.run.
    """
    address = await asyncio.get_running_loop().run_in_executor(None, resolve, host, port)
    with Sockets() as sockets:
        sockets.farewell = 0.5
        worker = Worker(
            sockets,
            host=address,
            port=port,
            number=number,
            prepare=lambda welcome: prepare(welcome, threads or cores()),
            patience=patience,
        )
        _leave_on_signals(worker)
        try:
            return await worker.run()
        except Exception as error:
            worker.leave(f"{type(error).__name__}: {error}")
            raise


def _leave_on_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()

    def leave(number: int) -> None:
        loop.add_signal_handler(number, os._exit, 128 + number)
        worker.leave(f"signal {signal.Signals(number).name}", 128 + number)

    loop.add_signal_handler(signal.SIGTERM, leave, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGHUP, leave, signal.SIGHUP)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a local worker leaves Ctrl+C to its master
        loop.add_signal_handler(signal.SIGINT, leave, signal.SIGINT)


def local(host: str, port: int, number: int, log_file: str) -> None:
    """A worker of ``pgc local``, in a process of its own; writes to a log file and ends with an exit code."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    os._exit(run_to_exit_code(host, port, number, threads=1))


def run_to_exit_code(
    host: str, port: int, number: int | None, *, threads: int | None = None, patience: float = PATIENCE_SECONDS
) -> int:
    """``serve`` with its errors as one logged sentence and an exit code.

    The caller must end the process with it: a compute thread may still be busy.
    """
    keep_large_blocks()
    faulthandler.enable()  # a model that writes to parameters it shares ends here, and this says where
    try:
        bye = asyncio.run(serve(host, port, number, threads=threads, patience=patience))
    except PgcError as error:
        log.error("%s", error)
        return error.exit_code
    except Exception as error:
        log.exception("the worker failed")
        log.error("%s", reason(error))
        return 70
    log.info("the run is over: %s", bye.reason)
    return bye.exit if bye.exit >= 128 else 0
