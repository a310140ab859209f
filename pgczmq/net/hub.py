"""The master's sockets: who is behind which routing identity, and messages to and from them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import zmq

from pgczmq.core.values import value
from pgczmq.errors import WireError
from pgczmq.net import wire
from pgczmq.net.doorman import FRAME_BYTES, Doorman
from pgczmq.net.exchange import Exchange, Version
from pgczmq.net.guests import Guests
from pgczmq.net.limits import Blame, words
from pgczmq.net.line import Failed, Line
from pgczmq.net.payload import Sealed
from pgczmq.net.ports import Make, Ports, neighbours
from pgczmq.net.sockets import Sockets, listen_here
from pgczmq.picture import Seen

log = logging.getLogger("pgczmq.master")

SUBSCRIBED, UNSUBSCRIBED = b"\x01", b"\x00"
"""To everything."""


@value
class Peer:
    """Where a message came from; the identity is the peer's word, nothing more.

    ``descriptor`` is this process's of the connection, -1 where that is not known.
    """

    identity: bytes
    descriptor: int = -1


Take = Callable[[Peer, Sequence[zmq.Frame]], None]
"""Takes a message of a peer: header, payload."""


@dataclass(frozen=True)
class Assignment:
    """What a worker is told when it is admitted, beside the configuration."""

    held: tuple[int, ...]
    coefficients: tuple[float, ...]


class Hub:
    """All the master's sockets, bound.

    Args:
        sockets: makes and closes them.
        bind: address to listen on.
        port: control port, the other three follow; 0 for any four that are free.
        run: run id; ``master``: this process's incarnation.
        config: the run as TOML, for the workers.
        assignments: what each worker holds.
        exchange: knows the payloads' sizes, and which way each worker's go.

    Raises:
        ConfigError: a port cannot be bound.
    """

    def __init__(
        self,
        sockets: Sockets,
        *,
        bind: str,
        port: int,
        run: str,
        master: str,
        config: str,
        assignments: Sequence[Assignment],
        exchange: Exchange,
    ) -> None:
        message_bytes = exchange.sizes["tcp"].total
        makers: list[Make] = [
            partial(sockets.control_router, bind),
            partial(sockets.bulk_router, bind, message_bytes=message_bytes),
            partial(sockets.broadcast, bind, message_bytes=message_bytes),
            partial(sockets.showing, bind),
        ]
        (self._control, self._gradients, self._params, self._metrics), first = neighbours(sockets, port, makers)
        self.ports = Ports.from_first(first)
        self._local, self._local_name = None, f"ipc://@pgczmq-{master}"
        if exchange.shares:
            self._local = sockets.local_broadcast(self._local_name, self.ports.params)
            listen_here(self._gradients, self._local_name, self.ports.gradients)
        self.exchange = exchange
        self.mine: dict[str, Any] = {"run": run, "master": master}
        self.bye: wire.Bye | None = None  # once it is said
        self.watched = asyncio.Event()  # while somebody wants pictures
        self._config = config
        self._assignments = assignments
        self._guests = Guests(len(assignments))
        self._incarnations: dict[int, str] = {}  # of admitted workers
        self._unready: set[str] = set()
        self.blamed = Blame()
        self.doorman = Doorman(
            control=self.ports.control,
            gradients=self.ports.gradients,
            params=self.ports.params,
            metrics=self.ports.metrics,
            workers=len(assignments),
            message_bytes=message_bytes,
        )

    # ------------------------------------------------------------ who is who

    def note_hello(self, peer: Peer, hello: wire.Hello) -> None:
        """Remember where a worker that says hello can be answered.

        Raises:
            WireError: it wants another run, speaks for another worker, or is one of too many.
        """
        if not _is_of(peer, hello.incarnation):
            raise WireError(
                f"the hello claims to be of incarnation {hello.incarnation} but comes over another connection"
            )
        self._guests.note(peer.identity, hello)
        if hello.run is not None and hello.run != self.mine["run"]:
            reason = f"this master runs {self.mine['run']}, the worker asks for run {hello.run}"
            self._turn_away(hello.incarnation, reason)
            raise WireError(reason)

    def check_sender(self, peer: Peer, message: wire.FromWorker) -> None:
        """Whether a message comes from an admitted worker of this run, in its present life.

        Raises:
            WireError: it does not; the peer is told when it can be.
        """
        reason = self._stranger(peer, message)
        if not reason:
            self.doorman.is_workers(peer.descriptor)
            return
        if not isinstance(message, wire.Gradient | wire.Pull | wire.Query):
            self.answer(peer, wire.Rejected(reason=reason, again=_is_of(peer, message.incarnation)))
        raise WireError(reason)

    def _stranger(self, peer: Peer, message: wire.FromWorker) -> str:
        if message.run != self.mine["run"] or message.master != self.mine["master"]:
            return f"the message belongs to run {message.run} of master {message.master}, not to this one"
        if self._incarnations.get(message.worker) != message.incarnation:
            return f"worker {message.worker} of incarnation {message.incarnation} is not in this run"
        if not _is_of(peer, message.incarnation):
            return f"the message claims to be of worker {message.worker} but comes over another connection"
        return ""

    def admit(self, worker: int, incarnation: str, heartbeat: float) -> bool:
        """Welcome a worker under a number; False when it has been welcomed before and only asked again.

        Args:
            heartbeat: seconds between the master's signs of life.
        """
        before = self._incarnations.get(worker)
        if before is not None and before != incarnation:
            self._guests.forget(before)
            self._unready.discard(before)
            self.exchange.forget(before)
        self._guests.admit(incarnation)
        self._incarnations[worker] = incarnation
        self._unready.add(incarnation)
        mine = self._assignments[worker]
        welcome = wire.Welcome(
            worker=worker,
            incarnation=incarnation,
            config=self._config,
            gradients_port=self.ports.gradients,
            params_port=self.ports.params,
            metrics_port=self.ports.metrics,
            held=list(mine.held),
            coefficients=list(mine.coefficients),
            heartbeat=heartbeat,
            **self.exchange.offer(incarnation, self._local_name),
            **self.mine,
        )
        self.send_control(incarnation, welcome)
        return before != incarnation

    def reject(self, incarnation: str, reason: str) -> bool:
        """Turn a worker away that said hello; tells whether this is worth a record, as in ``Blame``."""
        identity = self._turn_away(incarnation, reason)
        return identity is not None and self.blamed.count(identity)

    def _turn_away(self, incarnation: str, reason: str) -> bytes | None:
        """Tell it why; returns its identity, None when it is not known any more."""
        stranger = self._guests.turn_away(incarnation)
        if stranger is None:
            self.send_control(incarnation, wire.Rejected(reason=reason))
            return self._guests.identity(incarnation)
        self.answer(Peer(stranger), wire.Rejected(reason=reason))
        return stranger

    def admitted(self) -> list[tuple[int, str]]:
        """(worker, incarnation) of all that were ever admitted, in their present life."""
        return list(self._incarnations.items())

    def incarnation(self, worker: int) -> str:
        """The present life of an admitted worker."""
        return self._incarnations[worker]

    def origin(self, incarnation: str) -> str:
        """Host and process of a worker, in its own words."""
        return self._guests.origin(incarnation)

    def away(self, incarnation: str) -> float | None:
        """For how many seconds a worker had no master when it said hello; None in its first life."""
        return self._guests.away(incarnation)

    def assignment(self, worker: int) -> Assignment:
        """What a worker holds."""
        return self._assignments[worker]

    def is_prepared(self, incarnation: str) -> None:
        """This worker has heard a beacon, and nothing is wrong with it."""
        self._unready.discard(incarnation)

    def has_unready(self) -> bool:
        """Somebody is admitted who has not heard a beacon yet."""
        return bool(self._unready)

    def is_unready(self, incarnation: str) -> bool:
        """This worker is admitted and has not heard a beacon yet, or what it says of that is still on its way."""
        return incarnation in self._unready

    # ------------------------------------------------------------ in

    def listen(self, control: Take, gradients: Take, failed: Failed) -> None:
        """Give messages to whoever takes those of either ROUTER, from now on, and hear who watches.

        Args:
            control, gradients: what they raise as WireError is the peer's fault.
            failed: told of any other error.
        """
        for line, take in ((self._control, control), (self._gradients, gradients)):
            line.listen(partial(self._on_message, take), failed)
        self._metrics.listen(self._on_viewer, failed)

    def ignore(self) -> None:
        """Hear nothing any more."""
        for line in (self._control, self._gradients, self._metrics):
            line.ignore()

    def _on_viewer(self, frames: Sequence[zmq.Frame]) -> None:
        """Hear who begins to watch, and when nobody does any more.

        Anybody can say that they cease, without having watched, and ZeroMQ takes them for the last one: then the others
        have no news, and begin again.
        """
        said = frames[0].bytes
        if said == SUBSCRIBED:
            self.watched.set()
        elif said == UNSUBSCRIBED:
            self.watched.clear()

    def _on_message(self, take: Take, frames: Sequence[zmq.Frame]) -> None:
        peer = Peer(frames[0].bytes, int(frames[0].get(zmq.SRCFD)))
        self.doorman.came_out(peer.descriptor, sum(map(len, frames)) + FRAME_BYTES * len(frames))
        try:
            if len(frames) < 2:
                raise WireError("a message has at least a header")
            take(peer, frames[1:])
        except WireError as error:
            self._blame(peer, error)

    def _blame(self, peer: Peer, error: WireError) -> None:
        """Count what is wrong with a peer's message, and name the peer once."""
        if self.blamed.count(peer.identity):
            said = words(str(error))
            log.warning("refused a message of peer %r: %s; more of its kind are only counted", peer.identity, said)

    # ------------------------------------------------------------ out

    def send_control(self, incarnation: str, message: wire.Header) -> bool:
        """Send a small message to a worker that said hello; False when it cannot be reached now.

        One that was not ready may still come back, and needs its beacon then.
        """
        identity = self._guests.identity(incarnation)
        return identity is not None and self._send_now(self._control, [identity, wire.pack(message)])

    def answer(self, peer: Peer, message: wire.Header) -> None:
        """Send a small message to whoever sent one on the control socket, unless too many are answered."""
        if self._guests.may_answer():
            self._send_now(self._control, [peer.identity, wire.pack(message)])

    def say_bye(self, peer: Peer) -> None:
        """Tell somebody who comes late that the run is over, once the others have been told."""
        if self.bye is not None:
            self.answer(peer, self.bye)

    def send_params(self, worker: int, incarnation: str, message: wire.Params, version: Version) -> None:
        """Send the parameters to one worker, the way its payloads go, if it can be reached."""
        identity = f"{worker}:{incarnation}".encode()
        self._send_now(self._gradients, [identity, *_frames(message, version.sealed[self.exchange.way(incarnation)])])

    def publish_params(self, message: wire.Params, version: Version) -> None:
        """Send the parameters to all workers that subscribe and keep up, each way that somebody's payloads go."""
        for way, sealed in list(version.sealed.items()):  # the compute thread may add one
            line = self._local if way == "shm" else self._params
            assert line is not None
            self._send_now(line, _frames(message, sealed))

    def publish(self, message: wire.Header) -> None:
        """Send a header alone to all workers that subscribe and keep up."""
        for line in filter(None, (self._local, self._params)):
            self._send_now(line, [wire.pack(message)])

    def show(self, seen: Seen) -> None:
        """Send a picture of the run to whoever watches and keeps up."""
        self._send_now(self._metrics, [wire.pack(wire.Metrics(now=seen.now, picture=seen.picture, **self.mine))])

    def _send_now(self, line: Line, frames: list[object]) -> bool:
        """Send without waiting. A full queue is a slow peer, not an error; a missing one is gone."""
        error = line.send_now(frames)
        if error is None or isinstance(error, zmq.Again):
            return True
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise error


def _frames(message: wire.Params, sealed: Sealed) -> list[Any]:
    """Header and payload."""
    if sealed.block is not None:
        message = msgspec.structs.replace(message, block=sealed.block)
    return [wire.pack(message), *sealed.frames]


def _is_of(peer: Peer, incarnation: str) -> bool:
    """Whether a message came over a connection of this worker's present life."""
    return peer.identity.endswith(b":" + incarnation.encode())
