"""What workers say, checked and turned into the engine's events.

Whatever is wrong with a message is its sender's fault (WireError): it is counted, and the run goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import zmq

from pgczmq.core import events
from pgczmq.core.engine import Engine
from pgczmq.errors import WireError
from pgczmq.net import wire
from pgczmq.net.compute import MasterCompute
from pgczmq.net.hub import Hub, Peer
from pgczmq.net.incarnations import process_of
from pgczmq.net.limits import words
from pgczmq.net.payload import Lease
from pgczmq.runlog import EventRecord, LatencyRecord, Sink, WorkerRecord

PUBLICATIONS_KEPT = 1000


@dataclass
class Arrival:
    """A message that just came or is held for the open step."""

    header: wire.Gradient
    payload: Lease | None  # None when it is late and written over, or a bare report


class Reception:
    """Reads both ROUTERs' messages for one engine.

    Args:
        engine: asked what is open; told everything through ``feed``.
        hub: knows who is who.
        compute: tells what workers must agree on.
        feed: hands an event to the engine and carries out its commands.
        send_open: sends the open step to a worker (number, incarnation) that asks for it.
        send_beat: sends a worker the master's heartbeat now.
        sink: takes records.
        now: seconds since the run's start.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        *,
        compute: MasterCompute,
        feed: Callable[[events.Event], None],
        send_open: Callable[[int, str], None],
        send_beat: Callable[[int, str], None],
        sink: Sink,
        now: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._compute = compute
        self._feed = feed
        self._send_open = send_open
        self._send_beat = send_beat
        self._sink = sink
        self._now = now
        self._device: str | None = None
        self._published: dict[int, float] = {}
        self._at_fault: dict[int, str] = {}  # lives of which a refused gradient has been told, by worker
        self.incoming: Arrival | None = None

    def published(self, step: int, at: float) -> None:
        """Remember when a step was published, for the latencies of its answers."""
        self._published[step] = at
        self._published.pop(step - PUBLICATIONS_KEPT, None)

    def take_control(self, peer: Peer, frames: Sequence[zmq.Frame]) -> None:
        """A message came on the control socket.

        Raises:
            WireError: something is wrong with it.
        """
        if len(frames) > 1:
            raise WireError("a message on the control socket is a header alone")
        self._on_control(peer, self._understood(peer, frames[0]))

    def _understood(self, peer: Peer, frame: zmq.Frame) -> wire.ToMaster:
        try:
            return wire.to_master(frame.buffer)
        except wire.OtherVersion:
            reason = f"this master speaks protocol version {wire.PROTOCOL}; install the same pgczmq on both sides"
            self._hub.answer(peer, wire.Rejected(reason=reason))
            raise

    def take_gradients(self, peer: Peer, frames: Sequence[zmq.Frame]) -> None:
        """A message came on the gradients socket; errors as ``take_control``."""
        self._on_gradients(peer, wire.to_master(frames[0].buffer), frames[1:])

    def _on_control(self, peer: Peer, message: wire.ToMaster) -> None:
        if isinstance(message, wire.Hello):
            if message.run == wire.DOCTOR:
                reason = f"this master runs {self._hub.mine['run']}"
                self._hub.answer(peer, wire.Rejected(reason=reason, fingerprint=dict(self._compute.fingerprint)))
                return
            self._hub.note_hello(peer, message)
            if self._engine.phase == "finished":
                self._hub.say_bye(peer)
                return
            process = process_of(message.incarnation)
            self._feed(events.Joined(message.worker, message.incarnation, self._now(), process))
            return
        self._hub.check_sender(peer, message)
        worker, incarnation, at = message.worker, message.incarnation, self._now()
        self._feed(events.Heard(worker, incarnation, at))
        match message:
            case wire.Prepared():
                self._prepared(message)
            case wire.Heartbeat():
                self._sink(WorkerRecord(worker, at, message.state, message.step))
            case wire.Leaving():
                self._feed(events.Left(worker, incarnation, f"left: {words(message.reason)}", at, "left"))
                self._hub.exchange.forget(incarnation)
            case _:
                raise WireError(f"{message.type} does not belong on the control socket")

    def _prepared(self, message: wire.Prepared) -> None:
        reason = self._mismatch(message.fingerprint) or self._hub.exchange.why_not(message.incarnation, message.payload)
        if reason:
            text = f"worker {message.worker} was not let in: {reason}"
            self._sink(EventRecord(self._now(), "refused", text, message.worker))
            self._hub.send_control(message.incarnation, wire.Rejected(reason=reason))
            self._feed(events.Left(message.worker, message.incarnation, "was not let in", self._now(), "left"))
            return
        self._hub.exchange.agree(message.incarnation, message.payload)
        self._hub.is_prepared(message.incarnation)
        self._feed(events.Ready(message.worker, message.incarnation, self._now()))
        self._send_beat(message.worker, message.incarnation)  # it begins when it hears that it counts

    def _mismatch(self, theirs: dict[str, str]) -> str:
        """Why a worker would compute something else; empty when it would not."""
        ours = dict(self._compute.fingerprint)
        device = theirs.get("device", "")
        # The master updates on the CPU whatever the workers compute on: they must be alike among themselves.
        ours["device"] = self._device or device
        for key, expected in ours.items():
            if theirs.get(key) != expected:
                return f"its {key} differs: the run has {expected}, the worker {words(str(theirs.get(key)))}"
        self._device = device
        return ""

    def _on_gradients(self, peer: Peer, message: wire.ToMaster, frames: Sequence[zmq.Frame]) -> None:
        if isinstance(message, wire.Hello):
            raise WireError("hello does not belong on the gradients socket")
        self._hub.check_sender(peer, message)
        match message:
            case wire.Gradient():
                # "prepared" may come after an answer, over the other socket: the worker will send it again.
                if not self._hub.is_unready(message.incarnation):
                    self._on_gradient(message, frames)
            case wire.Pull():
                self._feed(events.Heard(message.worker, message.incarnation, self._now()))
                self._send_open(message.worker, message.incarnation)
            case wire.Query():
                self._feed(events.Heard(message.worker, message.incarnation, self._now()))
                self._on_query(message)
            case _:
                raise WireError(f"{message.type} does not belong on the gradients socket")

    def _on_query(self, query: wire.Query) -> None:
        """What is asked about would be in by now; it is wanted again if its step is still open."""
        engine = self._engine
        missing = engine.phase == "open" and query.step == engine.open_step and query.worker not in engine.arrived
        if missing and not self._hub.is_unready(query.incarnation):
            again = wire.Again(step=query.step, sending=query.sending, **self._hub.mine)
            self._hub.send_control(query.incarnation, again)

    def _on_gradient(self, header: wire.Gradient, frames: Sequence[zmq.Frame]) -> None:
        try:
            self._check_gradient(header)
            arrival = Arrival(header, self._payload(header, frames))
        except WireError as error:
            self._refuse(header, words(str(error)))
            raise
        at = self._now()
        engine = self._engine
        in_time = engine.phase == "open" and header.step == engine.open_step and header.norm is not None
        known = engine.messages
        self.incoming = arrival
        self._feed(
            events.Arrived(
                header.worker,
                header.incarnation,
                header.step,
                tuple(header.ages),
                tuple(zip(header.fresh, header.losses, strict=True)),
                header.norm,
                at,
            )
        )
        if self.incoming is not None and arrival.payload is not None:
            arrival.payload.release()  # nobody took it
        self.incoming = None
        if engine.messages > known:
            self._record_latency(header, at, "open" if in_time else "late")

    def _refuse(self, header: wire.Gradient, reason: str) -> None:
        """Tell the worker each time, and whoever watches once in its life."""
        self._hub.send_control(header.incarnation, wire.Refused(step=header.step, reason=reason, **self._hub.mine))
        if self._at_fault.get(header.worker) != header.incarnation:
            self._at_fault[header.worker] = header.incarnation
            text = f"worker {header.worker}: {reason}; more of its kind are only counted"
            self._sink(EventRecord(self._now(), "refused", text, header.worker, header.step))

    def _payload(self, header: wire.Gradient, frames: Sequence[zmq.Frame]) -> Lease | None:
        """What comes with a header; None for a bare report, or a late answer that is written over already."""
        if header.norm is None:
            return None
        payload = self._hub.exchange.lease(header.incarnation, header, frames)
        if payload is None and header.step == self._engine.open_step:
            raise WireError(f"the gradient of step {header.step} is not where its header says")
        return payload

    def take(self) -> Arrival:
        """The message that just arrived is the taker's from now on, to be released."""
        arrival, self.incoming = self.incoming, None
        assert arrival is not None and arrival.payload is not None
        return arrival

    def _check_gradient(self, header: wire.Gradient) -> None:
        """Whether a gradient is of partitions that its sender holds; WireError otherwise."""
        held = self._hub.assignment(header.worker).held
        if len(header.ages) > len(held) or (header.norm is not None and len(header.ages) != len(held)):
            raise WireError(f"a gradient of worker {header.worker} has {len(held)} ages: got {len(header.ages)}")
        fresh = set(header.fresh)
        if not len(fresh) == len(header.fresh) == len(header.losses) or not fresh <= set(held):
            raise WireError(f"a gradient of worker {header.worker} names one loss for each fresh partition it holds")
        if header.evaluations and len(header.evaluations) != len(header.fresh):
            raise WireError(f"a gradient of worker {header.worker} has one duration for each fresh partition")
        if header.dropped_evaluated and max(header.dropped_evaluated) > len(held):
            raise WireError(f"worker {header.worker} evaluates at most {len(held)} partitions at a step it drops")
        if header.ages.count(0) != len(header.fresh) or (header.ages and max(header.ages) > header.step):
            raise WireError(f"the ages {header.ages} at step {header.step} are not those of {len(header.fresh)} fresh")

    def _record_latency(self, header: wire.Gradient, at: float, outcome: str) -> None:
        published = self._published.get(header.step, at)
        spent = header.wait + header.compute + header.delay
        self._sink(
            LatencyRecord(
                worker=header.worker,
                step=header.step,
                published_at=published,
                wait=header.wait,
                compute=header.compute,
                delay=header.delay,
                send=max(0.0, at - published - spent),
                arrived_at=at,
                evaluated=len(header.fresh),
                partitions=tuple(header.fresh),
                outcome=outcome,
                newest_age=min(header.ages, default=0),
                incarnation=header.incarnation,
                received_at=header.received_at,
                evaluations=tuple(header.evaluations),
                dropped=_dropped(header),
            )
        )


def _dropped(header: wire.Gradient) -> tuple[tuple[float, ...], ...]:
    """The steps that a worker gave up, as ``LatencyRecord`` has them."""
    if not header.dropped:
        return ()
    durations = iter(header.dropped_evaluations)
    each = zip(header.dropped, header.dropped_received_at, header.dropped_delay, header.dropped_evaluated, strict=True)
    return tuple([(step, at, delay, *islice(durations, evaluated)) for step, at, delay, evaluated in each])
