"""``pgc doctor``: is everything there that a run needs, and can a master be reached?"""

import asyncio
import errno
import os
import socket
import sys
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgczmq.app import fitness, master
from pgczmq.app.check import Check
from pgczmq.app.keyfiles import ALLOWED_FILE, read_allowed
from pgczmq.app.keys import access_of, connection, is_loopback
from pgczmq.app.software import installed
from pgczmq.app.worker import parse_address
from pgczmq.config import RunConfig
from pgczmq.errors import PgcError
from pgczmq.net import memory, wire
from pgczmq.net.auth import PLAIN, Handshakes, Security
from pgczmq.net.sockets import Sockets, endpoint
from pgczmq.net.worker import resolve
from pgczmq.train import plain

PACKAGES = ("pyzmq", "msgpack", "numpy", "torch", "torchvision", "scikit-learn", "pydantic", "typer", "rich")
_ANSWER_SECONDS = 3.0
RUNS = Path("runs")
_START = "Is pgc-master running, with net.bind an address that this machine reaches, and are its four ports open?"
_PORT = "The address is that of net.port, the first of its four."


def examine(config: RunConfig, address: str | None) -> Iterator[Check]:
    """All checks, in order; those of a master only when its ``address`` is given.

    A worker's machine needs no configuration: where nobody gave one, there is no run to compare with the master's.
    """
    yield Check("python", "ok", f"{sys.version.split()[0]} on {sys.platform}")
    yield _packages()
    yield _run(config)
    built = yield from _of_the_task(config)
    yield fitness.threads(config)
    yield fitness.files(config)
    yield _ports(config, address)
    yield _shared_memory()
    yield _clock()
    yield who_may_join(config)
    security, check = workers_key()
    yield check
    if address is not None:
        ours = built.fingerprint if built is not None and config.model_fields_set else {}
        yield from way_to(address, security, ours)


def _packages() -> Check:
    versions = {name: installed(name) for name in PACKAGES}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        return Check("packages", "problem", f"not installed: {', '.join(missing)}; run: pip install pgczmq")
    return Check("packages", "ok", ", ".join(f"{name} {found}" for name, found in versions.items()))


def _run(config: RunConfig) -> Check:
    try:
        scheme = master.check(config)
    except PgcError as error:
        return Check("run", "problem", str(error))
    text = f"{config.scheme.name} with workers={config.workers}: a step closes with {scheme.k} of them"
    return Check("run", "ok", text)


def _of_the_task(config: RunConfig) -> Generator[Check, None, fitness.Built | None]:
    """Torch, and what a run of this task takes; without torch, nothing can be said of it."""
    torch_works = _torch()
    yield torch_works
    if torch_works.verdict == "problem":
        return None
    yield _device(config)
    checks, built = fitness.task(config)
    yield from checks
    if built is not None:
        yield fitness.memory(config, built, fitness.available_memory())
        yield fitness.disk(config, built, RUNS)
    return built


def _torch() -> Check:
    try:
        import torch
        import torchvision  # noqa: F401  # a build that does not fit torch fails here
    except Exception as error:
        text = f"{type(error).__name__}: {error}. Install torch and torchvision of the same release, see pytorch.org"
        return Check("torch", "problem", text)
    product = float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())
    device = "CUDA available" if torch.cuda.is_available() else "CPU only"
    if product != 64.0**3:
        return Check("torch", "problem", f"a product came out wrong; {device}. Install torch again")
    return Check("torch", "ok", f"a product came out right; {device}")


def _device(config: RunConfig) -> Check:
    """Whether this machine has the device that the run asks for; imports torch."""
    from pgczmq.train.gradient import resolve_device

    asked = "cpu" if config.deterministic or config.task.name == plain.NAME else config.device
    try:
        return Check("device", "ok", f"device={config.device}: gradients are computed on {resolve_device(asked)}")
    except PgcError as error:
        return Check("device", "problem", str(error))


def _ports(config: RunConfig, address: str | None) -> Check:
    """Whether a master of this run could listen.

    Args:
        address: of a master; if it is that of this very run, on this machine, the ports are its own.
    """
    base, bind = config.net.port, config.net.bind
    if base == 0:
        return Check("ports", "ok", "net.port=0: any free ones")
    taken: dict[str, list[int]] = {}
    for port in range(base, base + 4):
        if why := _why_taken(bind, port):
            taken.setdefault(why, []).append(port)
    if not taken:
        return Check("ports", "ok", f"{base} to {base + 3} are free on {bind} for a pgc-master")
    if address is not None and _is_here(address, base):
        return Check("ports", "ok", f"{base} to {base + 3} are those of the master at {address}, on this machine")
    text = "; ".join(f"{', '.join(map(str, ports))}: {why}" for why, ports in taken.items())
    return Check("ports", "warning", f"{text}. Choose another net.port, or 0 for free ones, as pgc local does")


def _why_taken(bind: str, port: int) -> str:
    with socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET) as probe:
        try:
            probe.bind((bind.strip("[]"), port))
        except OSError as error:
            busy = f"in use on {bind}, by another master perhaps"
            return busy if error.errno == errno.EADDRINUSE else f"{bind}: {error.strerror or error}"
    return ""


def _is_here(address: str, port: int) -> bool:
    """Whether an address is one of this machine, with this port."""
    try:
        host, its_port = parse_address(address)
        return its_port == port and not _why_taken(resolve(host, its_port), 0)
    except PgcError:
        return False


def _shared_memory() -> Check:
    """Whether two processes of this user can share memory the way master and workers do."""
    why_not = memory.why_not_here()
    if why_not:
        return Check("sharing", "warning", f"{why_not}: payloads go over TCP, which takes four times as long")
    return Check("sharing", "ok", "parameters and gradients pass through it between processes of this machine")


def _clock() -> Check:
    """Whether the monotonic clock is fine enough and sleeping keeps to it."""
    begun = time.monotonic()
    time.sleep(0.05)
    off = time.monotonic() - begun - 0.05
    resolution = time.get_clock_info("monotonic").resolution
    verdict = "ok" if off < 0.05 and resolution <= 1e-3 else "warning"
    text = f"resolution {resolution:.0e} s; a sleep of 50 ms took {off * 1000:.1f} ms longer"
    busy = "" if verdict == "ok" else ". A run's times would be off by as much: is something else busy here?"
    return Check("clock", verdict, text + busy)


def who_may_join(config: RunConfig) -> Check:
    """Who may join the run, were it started here."""
    net = config.net
    try:
        if access_of(config).master == PLAIN:
            if is_loopback(net.bind):
                return Check("who may join", "ok", f"whoever is on this machine: net.bind={net.bind}, no keys")
            text = f"whoever reaches {net.bind}, unseen: no keys, nothing encrypted (insecure was asked for). "
            text += "For keys: pgc keygen, and leave net.security out"
            return Check("who may join", "warning", text)
        names = read_allowed(Path(net.keys) / ALLOWED_FILE).values()
    except PgcError as error:
        return Check("who may join", "problem", str(error))
    if not names:
        text = f"nobody: no key is on the list in {net.keys}. pgc keygen {net.keys} --worker NAME makes one"
        return Check("who may join", "warning", text)
    text = f"{len(names)} keys on the list in {net.keys}: {', '.join(names)}; nobody else can read the secret one"
    return Check("who may join", "ok", text)


def workers_key() -> tuple[Security, Check]:
    """How a worker started here would connect."""
    try:
        said = connection(os.environ, Path.cwd())
    except PgcError as error:
        return PLAIN, Check("worker's key", "problem", str(error))
    if said is None or said.security == PLAIN:
        return PLAIN, Check("worker's key", "ok", "none here, so a worker joins only a master that asks for none")
    return said.security, Check("worker's key", "ok", f"for the master at {said.master}; nobody else can read it")


def way_to(address: str, security: Security, ours: Mapping[str, str]) -> Iterator[Check]:
    """Whether a worker of this machine could join the master there.

    Args:
        ours: fingerprint of the run that was named here; empty where there is none.
    """
    try:
        host, port = parse_address(address)
        found = resolve(host, port)
    except PgcError as error:
        yield Check("address", "problem", str(error))
        return
    yield Check("address", "ok", f"{host} is {found}, port {port}")
    begun = time.monotonic()
    try:
        socket.create_connection((found, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        yield Check("connection", "problem", f"nobody answers there: {error.strerror or error}. {_START}")
        return
    yield Check("connection", "ok", f"open after {(time.monotonic() - begun) * 1000:.1f} ms")
    yield from asyncio.run(_ask(found, port, security, ours))


async def _ask(address: str, port: int, security: Security, ours: Mapping[str, str]) -> list[Check]:
    """Ask for a run that does not exist: a master answers by naming its own, and admits nobody."""
    incarnation = uuid.uuid4().hex[:16]
    hello = wire.Hello(
        worker=None,
        incarnation=incarnation,
        run=wire.DOCTOR,
        package="doctor",
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    begun = time.monotonic()
    with Sockets(security=security) as sockets:
        dealer = sockets.control_dealer(endpoint(address, port), f"?:{incarnation}")
        heard: asyncio.Future[wire.ToWorker] = asyncio.get_running_loop().create_future()

        def take(frames: Sequence[Any]) -> None:
            if not heard.done():
                heard.set_result(wire.to_worker(frames[0].buffer))

        dealer.listen(take, heard.set_exception)
        handshakes = asyncio.ensure_future(sockets.watch(dealer, Handshakes(address, port, security)))
        waited_for: list[asyncio.Future[Any]] = [heard, handshakes]
        while not (heard.done() or handshakes.done()) and time.monotonic() - begun < _ANSWER_SECONDS:
            dealer.send_now([wire.pack(hello)])
            await asyncio.wait(waited_for, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        try:
            if handshakes.done():
                handshakes.result()
            if not heard.done():
                return [Check("master", "problem", f"something listens there, but not a pgc-master. {_PORT}")]
            answer = heard.result()
        except PgcError as error:
            return [Check("master", "problem", str(error))]
        finally:
            handshakes.cancel()
    return _heard(answer, ours, seconds=time.monotonic() - begun)


def _heard(answer: wire.ToWorker, ours: Mapping[str, str], *, seconds: float) -> list[Check]:
    said = answer.reason if isinstance(answer, wire.Rejected) else answer.type
    checks = [Check("master", "ok", f"answered after {seconds * 1000:.0f} ms: {said}")]
    if isinstance(answer, wire.Rejected) and answer.fingerprint and ours:
        checks.append(fitness.same_as(answer.fingerprint, ours))
    return checks
