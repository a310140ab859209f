"""A master that a worker should not have trusted: between messages that it may send it sends all others.

The worker has to refuse those and to go on answering steps.
"""

import contextlib
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgczmq import config as configs
from pgczmq.bench.torture.fuzz.hostile import Frames, Hostile
from pgczmq.bench.torture.fuzz.judge import grown
from pgczmq.bench.torture.fuzz.zmtp import Peer
from pgczmq.bench.torture.machine import Doors, free_port
from pgczmq.bench.torture.soak.troop import Program
from pgczmq.errors import ClusterError, WireError
from pgczmq.net import wire
from pgczmq.train import plain

HOST = "127.0.0.1"
MINE: dict[str, Any] = {"run": "run-of-a-liar", "master": "liar"}
BEAT_SECONDS = 0.3
SILENT_SECONDS = 5.0
"""So often it says that it will be heard: a connection that is broken off must not look like its end."""
PATIENCE_SECONDS = 60.0
BURST = 50
STEP_EVERY = 10
"""Bursts from one step that the worker has to answer to the next."""
STEPS_BEFORE = 20
BREAK_EVERY = 31
"""Bursts from one connection that is broken off in an odd way to the next."""
CONTROL, GRADIENTS, PARAMS = range(3)
_KINDS = ("ROUTER", "ROUTER", "PUB", "PUB")
_ENDS = (b"\x02" + (2**62).to_bytes(8), b"\x07\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x04\x05ERROR")
CONFIG = """
workers = 1
scheme = { name = "dgd" }
task = { name = "soak", args = { size = 1000 } }
net = { payload = "tcp", heartbeat = 1.0 }
"""


@dataclass
class WorkerOutcome:
    """What a worker was sent, and what came of it.

    Args:
        sent: messages, by kind.
        seconds: that it took.
        answered: steps.
        memory, descriptors: of the worker, before and after.
        wrong: what should not be, in words.
    """

    sent: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    answered: int = 0
    memory: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)
    wrong: list[str] = field(default_factory=list)


def deceive(messages: int, seed: int) -> WorkerOutcome:
    """Send a live worker so many hostile messages.

    Raises:
        ClusterError: it does not even begin.
    """
    outcome = WorkerOutcome()
    with tempfile.TemporaryDirectory(prefix="pgc-fuzz-") as name, ExitStack() as stack:
        master = stack.enter_context(FalseMaster(free_port(), seed))
        words = ["pgc-worker", "--id", "0", "--master", f"tcp://{HOST}:{master.port}"]
        worker = Program("worker 0", words, Path(name))
        stack.callback(_end, worker)
        worker.start()
        master.let_in()
        for _ in range(STEPS_BEFORE):
            master.ask()
        before, begun = worker.sample(), time.monotonic()
        try:
            outcome.answered = master.send(messages)
            outcome.seconds = time.monotonic() - begun
            after = worker.sample()
            master.say_goodbye()
        except (OSError, ClusterError) as error:
            outcome.wrong.append(f"{error}: {worker.log.read_text(errors='replace', encoding='utf-8')[-1000:]}")
            after = worker.sample()
        outcome.sent = master.sent
        if before is not None and after is not None:
            outcome.memory, outcome.descriptors = (before.memory, after.memory), (before.descriptors, after.descriptors)
        outcome.wrong += _findings(worker) + grown(outcome.memory, outcome.descriptors)
    return outcome


def _findings(worker: Program) -> list[str]:
    limit = time.monotonic() + PATIENCE_SECONDS
    while (life := worker.collect()) is None and time.monotonic() < limit:
        time.sleep(0.02)
    text = worker.log.read_text(errors="replace", encoding="utf-8")
    wrong = [f"the worker's log has {what!r}" for what in ("Traceback", "\x1b") if what in text]
    if text.count("refused a message") > 1:
        wrong.append(f"the worker tells {text.count('refused a message')} times what it has refused")
    if life is None or life.code != 0:
        wrong.append(f"the worker ended with {life and life.code} instead of 0: {text[-1000:]}")
    return wrong


def _end(program: Program) -> None:
    if program.pid is not None and program.collect() is None:
        program.end(signal.SIGKILL, "killed")
        while program.collect() is None:
            time.sleep(0.01)


class FalseMaster:
    """Listens like a master, for one worker; use as a context manager.

    Args:
        port: control port; the three after it are taken, too.
        seed: of all that it should not send.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.sent: Counter[str] = Counter()
        self._seed = seed
        self._size = plain.Arguments.of(configs.loads(CONFIG).task.args).size
        self._peers: dict[int, Peer] = {}
        self._change = threading.Condition()
        self._step = -1
        self._beaten_at = 0.0
        self._doors = Doors(HOST, port, self._welcome)

    def __enter__(self) -> "FalseMaster":
        """Open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close everything."""
        self._doors.close()
        for peer in self._peers.values():
            peer.__exit__()

    def _welcome(self, offset: int, stream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer = Peer(stream, _KINDS[offset])
            with self._change:
                self._peers[offset] = peer
                self._change.notify_all()

    def _at(self, offset: int) -> Peer:
        with self._change:
            if not self._change.wait_for(lambda: offset in self._peers, PATIENCE_SECONDS):
                raise ClusterError(f"the worker does not connect to port {offset}")
            return self._peers[offset]

    # ------------------------------------------------------------ what it may say

    def let_in(self) -> None:
        """Until the worker is ready."""
        self._until(CONTROL, wire.Hello)
        ports: dict[str, Any] = {
            "gradients_port": self.port + 1,
            "params_port": self.port + 2,
            "metrics_port": self.port + 3,
        }
        self._tell(CONTROL, _welcome_of(ports))
        self._at(GRADIENTS)
        self._at(PARAMS)
        time.sleep(0.2)  # its subscription is on its way
        self._tell(PARAMS, wire.Beacon(**MINE))
        self._until(CONTROL, wire.Prepared)

    def ask(self) -> None:
        """One step, and wait for the answer to it.

        Raises:
            ClusterError: none comes.
        """
        self._step += 1
        self._beat()
        params = wire.Params(step=self._step, k=1, batch_fraction=1.0, **MINE)
        limit = time.monotonic() + PATIENCE_SECONDS
        self._say(PARAMS, [wire.pack(params), bytes(4 * self._size)])
        while time.monotonic() < limit:
            for message in self._hear(GRADIENTS):
                if isinstance(message, wire.Gradient) and message.step == self._step:
                    return
                if isinstance(message, wire.Pull):
                    self._say(GRADIENTS, [wire.pack(params), bytes(4 * self._size)])
                if isinstance(message, wire.Query):
                    self._tell(CONTROL, wire.Again(step=message.step, sending=message.sending, **MINE))
            self._hear(CONTROL)
            if time.monotonic() - self._beaten_at > BEAT_SECONDS:
                self._beat()
                self._tell(PARAMS, wire.Beacon(step=self._step, **MINE))
            time.sleep(0.001)
        raise ClusterError(f"the worker does not answer step {self._step}")

    def say_goodbye(self) -> None:
        """The run is over."""
        self._tell(CONTROL, wire.Bye(exit=0, reason="done", **MINE))

    def _beat(self) -> None:
        self._beaten_at = time.monotonic()
        self._tell(CONTROL, wire.Beat(ready=True, open_step=self._step, arrived=[], **MINE))

    # ------------------------------------------------------------ what it may not

    def send(self, messages: int) -> int:
        """So many; returns the steps that were answered meanwhile."""
        hostile = Hostile(self._seed, control=self._right(), gradients=self._right(), workers=1)
        answered = bursts = 0
        while self.sent.total() < messages:
            offset = (CONTROL, GRADIENTS, PARAMS)[bursts % 3]
            made = [hostile.message("control" if offset == CONTROL else "gradients") for _ in range(BURST)]
            made = [(kind, frames) for kind, frames in made if not _counts(frames)]
            self._say(offset, *(frames for _, frames in made))
            self.sent.update(kind for kind, _ in made)
            bursts += 1
            if bursts % BREAK_EVERY == 0:
                self._break_off(offset, _ENDS[(bursts // BREAK_EVERY - 1) % len(_ENDS)])
            if bursts % STEP_EVERY == 0:
                self.ask()
                answered += 1
        return answered

    def _right(self) -> list[Frames]:
        """Messages to be spoilt: one of each kind."""
        ports: dict[str, Any] = {"gradients_port": 1, "params_port": 2, "metrics_port": 3}
        headers: list[wire.Header] = [
            _welcome_of(ports),
            wire.Beacon(step=3, **MINE),
            wire.Beat(ready=True, open_step=3, arrived=[0], **MINE),
            wire.Again(step=3, sending=1, **MINE),
            wire.Refused(step=3, reason="why not", **MINE),
            wire.Bye(exit=0, reason="done", **MINE),
            wire.Rejected(reason="no"),
        ]
        params = wire.Params(step=10**6, k=1, batch_fraction=1.0, **MINE)
        return [[wire.pack(header)] for header in headers] + [[wire.pack(params), bytes(4 * self._size)]] * 3

    def _break_off(self, offset: int, last: bytes) -> None:
        with self._change:
            peer = self._peers.pop(offset)
        with contextlib.suppress(OSError):
            peer.send_raw(last)
            time.sleep(0.05)
        peer.__exit__()
        self.sent["connections broken off"] += 1
        limit = time.monotonic() + PATIENCE_SECONDS
        while offset != CONTROL and offset not in self._peers and time.monotonic() < limit:
            self._beat()
            time.sleep(BEAT_SECONDS)
        self._at(offset)
        if offset == PARAMS:
            time.sleep(0.2)  # its subscription is on its way

    # ------------------------------------------------------------ to and from the worker

    def _tell(self, offset: int, message: wire.Header) -> None:
        self._say(offset, [wire.pack(message)])

    def _say(self, offset: int, *messages: Frames) -> None:
        """Over the connection that there is now: the worker may have closed the one before."""
        while True:
            peer = self._at(offset)
            try:
                peer.send(*messages)
            except OSError:
                with self._change:
                    if self._peers.get(offset) is peer:
                        del self._peers[offset]
            else:
                return

    def _hear(self, offset: int) -> list[wire.ToMaster]:
        return [wire.to_master(frames[0]) for frames in self._at(offset).drain()]

    def _until(self, offset: int, kind: type[Any]) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while not any(isinstance(message, kind) for message in self._hear(offset)):
            if time.monotonic() > limit:
                raise ClusterError(f"the worker says no {kind.__name__}")
            time.sleep(0.01)


def _welcome_of(ports: dict[str, Any]) -> wire.Welcome:
    return wire.Welcome(
        worker=0,
        config=CONFIG,
        held=[0],
        coefficients=[1.0],
        heartbeat=SILENT_SECONDS,
        payload="tcp",
        wire_dtype="float32",
        **ports,
        **MINE,
    )


def _counts(frames: Frames) -> bool:
    """Whether a master may say this, so that it is right to obey."""
    try:
        message = wire.to_worker(frames[0])
    except WireError:
        return False
    if isinstance(message, wire.FromMaster):
        return (message.run, message.master) == (MINE["run"], MINE["master"])
    return isinstance(message, wire.Rejected)
