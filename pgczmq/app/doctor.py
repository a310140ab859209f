"""``pgc doctor``: is everything there that a run needs, and can a master be reached?"""

import asyncio
import errno
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pgczmq.app.keyfiles import ALLOWED_FILE, read_allowed
from pgczmq.app.keys import access_of, connection, is_loopback
from pgczmq.app.processes import cores
from pgczmq.app.worker import parse_address
from pgczmq.config import RunConfig
from pgczmq.errors import PgcError
from pgczmq.net import memory, wire
from pgczmq.net.auth import PLAIN, Handshakes, Security
from pgczmq.net.sockets import Sockets, endpoint, send_now
from pgczmq.net.worker import resolve

PACKAGES = ("pyzmq", "msgpack", "numpy", "torch", "torchvision", "scikit-learn", "pydantic", "typer", "rich")
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``verdict`` is ok, warning or problem."""

    name: str
    verdict: str
    text: str


def examine(config: RunConfig, master: str | None) -> Iterator[Check]:
    """All checks, in order; those of a master only when its address is given."""
    yield Check("python", "ok", f"{sys.version.split()[0]} on {sys.platform}")
    yield from _packages()
    yield from _torch()
    yield _threads(config)
    yield from _ports(config)
    yield _shared_memory()
    yield _clock()
    yield who_may_join(config)
    security, check = workers_key()
    yield check
    if master is not None:
        yield from way_to(master, security)


def _packages() -> Iterator[Check]:
    for name in PACKAGES:
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "problem", "not installed; run: pip install pgczmq")


def _torch() -> Iterator[Check]:
    try:
        import torch
        import torchvision  # noqa: F401  # a build that does not fit torch fails here
    except Exception as error:
        yield Check("torch works", "problem", f"{type(error).__name__}: {error}")
        return
    product = float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())
    verdict = "ok" if product == 64.0**3 else "problem"
    device = "CUDA available" if torch.cuda.is_available() else "CPU only"
    yield Check("torch works", verdict, f"a product came out {'right' if verdict == 'ok' else 'wrong'}; {device}")


def _threads(config: RunConfig) -> Check:
    have = cores()
    text = f"{have} cores for {config.workers} workers; a local worker runs one torch thread unless threads is set"
    return Check("cores", "ok", text)


def _ports(config: RunConfig) -> Iterator[Check]:
    base = config.net.port
    if base == 0:
        yield Check("ports", "ok", "net.port=0: any free ones")
        return
    for name, port in zip(("control", "gradients", "params", "metrics"), range(base, base + 4), strict=True):
        family = socket.AF_INET6 if ":" in config.net.bind else socket.AF_INET
        with socket.socket(family) as probe:
            try:
                probe.bind((config.net.bind.strip("[]"), port))
                yield Check(f"port {port}", "ok", f"free for {name} on {config.net.bind}")
            except OSError as error:
                busy = "in use: another master?" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
                yield Check(f"port {port}", "warning", f"{name}: {busy} Choose another net.port, or 0 for free ones.")


def _shared_memory() -> Check:
    """Whether two processes of this user can share memory the way master and workers do."""
    why_not = memory.why_not_here()
    if why_not:
        return Check("shared memory", "warning", f"{why_not}: payloads go over TCP")
    return Check("shared memory", "ok", "parameters and gradients pass through it between processes of this machine")


def _clock() -> Check:
    """Whether the monotonic clock is fine enough and sleeping keeps to it."""
    begun = time.monotonic()
    time.sleep(0.05)
    off = time.monotonic() - begun - 0.05
    resolution = time.get_clock_info("monotonic").resolution
    verdict = "ok" if off < 0.05 and resolution <= 1e-3 else "warning"
    return Check("clock", verdict, f"resolution {resolution:.0e} s; a sleep of 50 ms took {off * 1000:.1f} ms longer")


def who_may_join(config: RunConfig) -> Check:
    """Who may join the run, were it started here."""
    net = config.net
    try:
        if access_of(config).master == PLAIN:
            if is_loopback(net.bind):
                return Check("who may join", "ok", f"whoever is on this machine: net.bind={net.bind}, no keys")
            text = f"whoever reaches {net.bind}, unseen: no keys, nothing encrypted (insecure was asked for)"
            return Check("who may join", "warning", text)
        names = read_allowed(Path(net.keys) / ALLOWED_FILE).values()
    except PgcError as error:
        return Check("who may join", "problem", str(error))
    text = f"{len(names)} keys on the list in {net.keys}: {', '.join(names)}; nobody else can read the secret one"
    return Check("who may join", "ok" if names else "warning", text)


def workers_key() -> tuple[Security, Check]:
    """How a worker started here would connect."""
    try:
        said = connection(os.environ, Path.cwd())
    except PgcError as error:
        return PLAIN, Check("worker's key", "problem", str(error))
    if said is None or said.security == PLAIN:
        return PLAIN, Check("worker's key", "ok", "none here, so a worker joins only a master that asks for none")
    return said.security, Check("worker's key", "ok", f"for the master at {said.master}; nobody else can read it")


def way_to(master: str, security: Security) -> Iterator[Check]:
    try:
        host, port = parse_address(master)
        address = resolve(host, port)
    except PgcError as error:
        yield Check("address", "problem", str(error))
        return
    yield Check("address", "ok", f"{host} is {address}, port {port}")
    begun = time.monotonic()
    try:
        socket.create_connection((address, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        yield Check("connection", "problem", f"nobody answers there: {error.strerror or error}")
        return
    yield Check("connection", "ok", f"open after {(time.monotonic() - begun) * 1000:.1f} ms")
    yield asyncio.run(_ask(address, port, security))


async def _ask(address: str, port: int, security: Security) -> Check:
    """Ask for a run that does not exist: a master answers by naming its own, and admits nobody."""
    incarnation = uuid.uuid4().hex[:16]
    hello = wire.Hello(
        worker=None, incarnation=incarnation, run="doctor", package="doctor", host=socket.gethostname(), pid=os.getpid()
    )
    begun = time.monotonic()
    with Sockets(security=security) as sockets:
        dealer = sockets.control_dealer(endpoint(address, port), f"?:{incarnation}")
        reader = asyncio.ensure_future(dealer.recv_multipart())
        handshakes = asyncio.ensure_future(sockets.watch(dealer, Handshakes(address, port, security)))
        while not (reader.done() or handshakes.done()) and time.monotonic() - begun < _ANSWER_SECONDS:
            send_now(dealer, [wire.pack(hello)])
            await asyncio.wait({reader, handshakes}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        try:
            if handshakes.done():
                handshakes.result()
            if not reader.done():
                return Check("master", "problem", "something listens there, but it does not answer like a pgc-master")
            answer = wire.to_worker(reader.result()[0])
        except PgcError as error:
            return Check("master", "problem", str(error))
        finally:
            reader.cancel()
            handshakes.cancel()
    milliseconds = (time.monotonic() - begun) * 1000
    said = answer.reason if isinstance(answer, wire.Rejected) else answer.type
    return Check("master", "ok", f"answered after {milliseconds:.0f} ms: {said.split(', the worker')[0]}")
