"""A worker that was let in, and then sends everything that an answer must not be."""

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.errors import ClusterError, WireError
from pgczmq.net import wire

HOST = "127.0.0.1"
BEAT_SECONDS = 0.2
FAR = 10**6


class Liar:
    """One worker, under a number of its own; use as a context manager.

    Args:
        port: the master's control port.
        number: which worker it is.
        fingerprint: of the model, so that it is let in.
        size: numbers of a gradient.
        seed: of all lies.
    """

    def __init__(self, port: int, number: int, fingerprint: Mapping[str, str], *, size: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._number = number
        self._good = np.ones(size, np.float32).tobytes()
        self._bad = np.full(size, np.nan, np.float32).tobytes()
        self._life = uuid.uuid4().hex[:16]
        self._identity = f"{number}:{self._life}".encode()
        self._control = Peer.of(HOST, port, self._identity)
        self._fingerprint = dict(fingerprint)
        self._step = 0
        self._beaten_at = 0.0
        welcome = self._join()
        self._held = list(welcome.held)
        self._mine: dict[str, Any] = {"run": welcome.run, "master": welcome.master}
        self._mine |= {"worker": number, "incarnation": self._life}
        self._gradients = Peer.of(HOST, welcome.gradients_port, self._identity)
        self._params = Peer.subscriber(HOST, welcome.params_port)
        self._lies: Mapping[str, Callable[[], list[bytes]]] = {
            "a payload of another size": self._sized,
            "not finite, and it says so": lambda: self._answer(self._bad, norm=self._draw.choice((np.nan, np.inf))),
            "not finite, and it denies it": lambda: self._answer(self._bad, norm=1.0),
            "ages that cannot be": lambda: self._answer(ages=self._draw.choice(([], [0, 0], [1], [2**40]))),
            "partitions of others, or twice": self._of_others,
            "a step to come": lambda: self._answer(step=self._step + self._draw.choice((50_000, FAR, 2**63))),
            "a step long closed": lambda: self._answer(self._bad, step=self._draw.randrange(max(1, self._step - 100))),
            "a block that is not its own": lambda: self._answer(None, block=self._draw.choice((0, 5, -1))),
            "durations that cannot be": lambda: self._answer(evaluations=[0.1] * 3),
            "questions": lambda: [wire.pack(self._draw.choice(self._questions()))],
        }

    def __enter__(self) -> "Liar":
        """Let in."""
        return self

    def __exit__(self, *error: object) -> None:
        """Gone."""
        self._control.__exit__()
        self._gradients.__exit__()
        self._params.__exit__()

    def live(self) -> None:
        """Say what a worker says, and hear which step is open."""
        if time.monotonic() - self._beaten_at > BEAT_SECONDS:
            self._beaten_at = time.monotonic()
            self._control.send([wire.pack(wire.Heartbeat(state="lying", step=self._step, **self._mine))])
        for frames in [*self._control.drain(), *self._gradients.drain(), *self._params.drain()]:
            with contextlib.suppress(WireError):
                message = wire.to_worker(frames[0])
                if isinstance(message, wire.Beat):
                    self._step = max(self._step, message.open_step)
                elif isinstance(message, wire.Params):
                    self._step = max(self._step, message.step)

    def lie(self) -> str:
        """One more; returns its kind. Raises OSError when the master has closed the connection."""
        kind = self._draw.choice([*self._lies])
        self._gradients.send(self._lies[kind]())
        return kind

    # ------------------------------------------------------------ what it says

    def _join(self) -> wire.Welcome:
        hello = wire.Hello(worker=self._number, incarnation=self._life, package="0", host="elsewhere", pid=1)
        self._control.send([wire.pack(hello)])
        welcome = self._hear(wire.Welcome)
        mine: dict[str, Any] = {"run": welcome.run, "master": welcome.master}
        mine |= {"worker": self._number, "incarnation": self._life}
        self._control.send([wire.pack(wire.Prepared(fingerprint=self._fingerprint, payload="tcp", **mine))])
        return welcome

    def _hear(self, kind: type[wire.Welcome]) -> wire.Welcome:
        while True:
            for frames in self._control.receive():
                message = wire.to_worker(frames[0])
                if isinstance(message, kind):
                    return message
                if isinstance(message, wire.Rejected):
                    raise ClusterError(f"the liar was not let in: {message.reason}")

    def _answer(self, payload: bytes | None = b"", **changes: Any) -> list[bytes]:
        said = {"step": self._step, "ages": [0], "fresh": self._held, "losses": [0.5]}
        durations = {"wait": 0.0, "compute": 0.0, "delay": 0.0}
        header = wire.Gradient(**{**said, "norm": 1.0, **durations, **changes, **self._mine})
        return [wire.pack(header)] if payload is None else [wire.pack(header), payload or self._good]

    def _sized(self) -> list[bytes]:
        made = self._draw.choice(([self._good[1:]], [self._good + b"\0"], [b"x", self._good], [b""], [self._good[::2]]))
        return self._answer(None) + made

    def _of_others(self) -> list[bytes]:
        other = self._held[0] + 1
        fresh, ages = self._draw.choice((([other], [0]), ([*self._held, *self._held], [0]), ([], [0]), ([2**63], [0])))
        return self._answer(fresh=fresh, ages=ages, losses=[0.5] * len(fresh))

    def _questions(self) -> list[wire.FromWorker]:
        return [
            wire.Pull(**self._mine),
            wire.Query(step=self._step, sending=0, **self._mine),
            wire.Query(step=FAR, sending=2**63, **self._mine),
        ]
