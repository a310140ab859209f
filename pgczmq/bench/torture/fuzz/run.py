"""Real programs make steps while strangers send their master whatever there is; nothing must come of it."""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pgczmq import config as configs
from pgczmq.bench.torture.fuzz.crowd import Crowd
from pgczmq.bench.torture.fuzz.hostile import Hostile
from pgczmq.bench.torture.fuzz.judge import findings, grown, named, refused
from pgczmq.bench.torture.fuzz.liar import Liar
from pgczmq.bench.torture.fuzz.relay import Relay
from pgczmq.bench.torture.machine import free_port
from pgczmq.bench.torture.soak.troop import Program
from pgczmq.config import RunConfig
from pgczmq.errors import ClusterError
from pgczmq.train import plain

HONEST = 4
LIAR = HONEST
"""The number of the worker that lies; what it says never counts, so that each step closes with all others."""
LIES_A_BURST = 4
RELAYED = "127.0.0.2"
PATIENCE_SECONDS = 60.0
LOG_CHARACTERS = 3000
BEFORE_STEPS = 100
"""Made before the first hostile message: what is allocated once is."""
CONFIG = f"""
name = "run"
workers = {HONEST + 1}
steps = 10_000_000
scheme = {{ name = "is-sgd", stragglers = 1 }}
task = {{ name = "soak", args = {{ size = 1000, seconds = 0.003 }} }}
optimizer = {{ lr = 0.1 }}
net = {{ payload = "tcp", heartbeat = 1.0 }}
eval = {{ every = 0 }}
checkpoint = {{ every = 0 }}
ui = {{ mode = "none" }}
"""


@dataclass
class Outcome:
    """What was sent, and what came of it.

    Args:
        sent: messages and connections, by kind; ``lies`` those of the worker that lies.
        seconds: that it took to send them.
        refused: messages that the master says it refused.
        named: peers named in its log.
        steps: made meanwhile.
        steps_before: a second.
        memory, descriptors: of the master, before and after.
        wrong: what should not be, in words; empty when nothing came of it.
    """

    sent: Counter[str] = field(default_factory=Counter)
    lies: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    refused: int = 0
    named: int = 0
    steps: int = 0
    steps_before: float = 0.0
    memory: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)
    wrong: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All of them."""
        return self.sent.total() + self.lies.total()


def fuzz(messages: int, seed: int, said: Callable[[int], None] = lambda sent: None) -> Outcome:
    """Send a live master so many hostile messages.

    Args:
        said: told now and then how many have been sent.

    Raises:
        ClusterError: the run does not even begin.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="pgc-fuzz-") as name:
        with _run(Path(name)) as scene:
            _attack(scene, messages, seed, outcome, said)
        left = scene.directory / "runs" / "run"
        outcome.refused, outcome.named = refused(left), len(named(scene.master.log))
        outcome.wrong = findings(left, scene.config, scene.master.log, honest=HONEST)
        outcome.wrong += grown(outcome.memory, outcome.descriptors)
    return outcome


@dataclass
class _Scene:
    """The programs of a run that goes on."""

    port: int
    config: RunConfig
    master: Program
    workers: list[Program]
    relay: Relay
    directory: Path

    @property
    def step(self) -> int:
        """Steps that the records tell of."""
        path = self.directory / "runs" / "run" / "steps.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def until(self, condition: Callable[[], object], what: str, meanwhile: Callable[[], object] = float) -> None:
        """Wait for it, as long as everybody lives."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            meanwhile()
            ended = [life.role for one in (self.master, *self.workers) if (life := one.collect()) is not None]
            if ended or time.monotonic() > limit:
                raise ClusterError(f"{what} did not come, and {self.ends()}: {self.said()}")
            time.sleep(0.02)

    def ends(self) -> str:
        """Who has ended, and how."""
        for one in (self.master, *self.workers):
            one.collect()
        ends = [f"{life.role} with {life.code}" for one in (self.master, *self.workers) for life in one.lives]
        return f"these have ended: {', '.join(ends) or 'nobody'}"

    def said(self) -> str:
        """The end of the master's log."""
        return self.master.log.read_text(errors="replace", encoding="utf-8")[-LOG_CHARACTERS:]


@contextmanager
def _run(directory: Path) -> Iterator[_Scene]:
    """A master and its honest workers; the first step waits for the one that is missing."""
    port = free_port()
    text = CONFIG.replace("net = {", f"net = {{ port = {port},")
    (directory / "fuzz.toml").write_text(text, encoding="utf-8")
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(RELAYED, port))
        programs = [Program("master", ["pgc-master", "--config", "fuzz.toml"], directory)]
        for number in range(HONEST):
            address = f"tcp://{RELAYED if number == 0 else '127.0.0.1'}:{port}"
            words = ["pgc-worker", "--id", str(number), "--master", address]
            programs.append(Program(f"worker {number}", words, directory))
        for program in programs:
            stack.callback(_end, program)
            program.start()
        yield _Scene(port, configs.loads(text), programs[0], programs[1:], relay, directory)


def _end(program: Program) -> None:
    """Whatever it does."""
    if program.pid is not None and not program.collect():
        program.end(signal.SIGKILL, "killed")
        while program.collect() is None:
            time.sleep(0.01)


def _attack(scene: _Scene, messages: int, seed: int, outcome: Outcome, said: Callable[[int], None]) -> None:
    events = scene.directory / "runs" / "run" / "events.jsonl"
    scene.until(
        lambda: events.exists() and events.read_text(encoding="utf-8").count('"kind":"ready"') == HONEST, "the workers"
    )
    args = plain.Arguments.of(scene.config.task.args)
    fingerprint = plain.fingerprint_of(args, scene.config.seed)
    with Liar(scene.port, LIAR, fingerprint, size=args.size, seed=seed) as liar:
        ready_at = time.monotonic()
        scene.until(lambda: scene.step >= BEFORE_STEPS, "the first steps", liar.live)
        outcome.steps_before = scene.step / (time.monotonic() - ready_at)
        control, gradients, *_ = scene.relay.heard
        hostile = Hostile(seed, control=control, gradients=gradients, workers=HONEST + 1)
        crowd = Crowd(scene.port, hostile, seed)
        before, first = scene.master.sample(), scene.step
        begun = time.monotonic()
        try:
            _send(scene, crowd, liar, messages, outcome, said)
        except OSError as error:
            raise ClusterError(f"a connection broke off ({error}), {scene.ends()}: {scene.said()}") from None
        finally:
            crowd.leave()
        outcome.seconds = time.monotonic() - begun
        outcome.steps = scene.step - first
        last = scene.step
        scene.until(lambda: scene.step > last + BEFORE_STEPS, "a step after the last message", liar.live)
        after = scene.master.sample()
        if before is not None and after is not None:
            outcome.memory = (before.memory, after.memory)
            outcome.descriptors = (before.descriptors, after.descriptors)
        scene.master.end(signal.SIGINT, "interrupted")
        limit = time.monotonic() + PATIENCE_SECONDS
        while scene.master.collect() is None and time.monotonic() < limit:
            time.sleep(0.02)


def _send(
    scene: _Scene, crowd: Crowd, liar: Liar, messages: int, outcome: Outcome, said: Callable[[int], None]
) -> None:
    sent = 0
    while sent < messages:
        sent += crowd.burst()
        liar.live()
        outcome.lies.update(liar.lie() for _ in range(LIES_A_BURST))
        sent += LIES_A_BURST
        said(sent)
        if scene.master.collect() is not None:
            break
    outcome.sent = crowd.sent
