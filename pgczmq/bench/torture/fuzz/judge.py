"""Whether anything has come of it, from what a run leaves: its log, its records and its weights."""

import re
from collections import Counter
from pathlib import Path

import numpy as np

from pgczmq.config import RunConfig
from pgczmq.net.limits import PEERS_NAMED_AT_MOST
from pgczmq.runlog import EventRecord, StepRecord, read, read_result
from pgczmq.train import plain

_NAMED = re.compile(r"refused a message of peer (b'.*?'|b\".*?\"): ")
_REFUSED = re.compile(r"(\d+) messages were refused in this run")
INTERRUPTED = 75
MEMORY_BYTES = 20_000_000
"""So much more than before may a process hold."""
DESCRIPTORS = 8
"""So many more files may be open, of connections that are just being made."""


def named(log: Path) -> list[str]:
    """The peers that a log names, as often as it does."""
    return _NAMED.findall(log.read_text(errors="replace", encoding="utf-8"))


def refused(directory: Path) -> int:
    """The messages that a master says it refused."""
    found = [_REFUSED.fullmatch(event.text) for event in _events(directory)]
    return sum(int(match[1]) for match in found if match)


def findings(directory: Path, config: RunConfig, log: Path, *, honest: int) -> list[str]:
    """What should not be, in words, after a run that was interrupted.

    Args:
        directory: of the run.
        log: the master's.
        honest: workers 0 to this one are the only ones that count.
    """
    steps: list[StepRecord] = list(read(directory, StepRecord))
    wrong = _of_log(log)
    wrong += [f"worker {each.worker} left: {each.text}" for each in _events(directory) if _is_loss(each, honest)]
    if [step.step for step in steps] != list(range(len(steps))):
        wrong.append("the steps are not each made once, in order")
    strange = [step.step for step in steps if sorted(step.used) != list(range(honest))]
    if strange:
        wrong.append(f"{len(strange)} steps used other workers' gradients than those of the honest, first {strange[0]}")
    result = read_result(directory)
    if result.exit != INTERRUPTED or result.steps != len(steps):
        wrong.append(f"the run ended with exit code {result.exit} after {result.steps} steps: {result.reason}")
    if result.weights_sha256 != undisturbed(config, len(steps), honest=honest):
        wrong.append("the weights are not those of an undisturbed run")
    return wrong


def grown(memory: tuple[int, int], descriptors: tuple[int, int]) -> list[str]:
    """Whether a process holds more than before."""
    wrong = []
    if memory[1] - memory[0] > MEMORY_BYTES:
        wrong.append(f"memory grew from {memory[0]:,} to {memory[1]:,} bytes")
    if descriptors[1] - descriptors[0] > DESCRIPTORS:
        wrong.append(f"there are {descriptors[1]} open files, {descriptors[0]} before")
    return wrong


def undisturbed(config: RunConfig, steps: int, *, honest: int) -> str:
    """Hash of the parameters after so many steps of which each is the mean of what the honest send."""
    args = plain.Arguments.of(config.task.args)
    params = np.zeros(args.size, np.float32)
    for step in range(steps):
        sent = [plain.gradient(params, seed=config.seed, partition=number, step=step) for number in range(honest)]
        terms = [(1 / honest, plain.coded([vector], [1.0])) for vector in sent]
        params -= np.float32(config.optimizer.lr) * plain.estimate(terms, marks=args.marks)
    return plain.digest(params)


def _of_log(log: Path) -> list[str]:
    wrong = []
    counts = Counter(named(log))
    twice = [peer for peer, count in counts.items() if count > 1]
    if twice:
        wrong.append(f"{len(twice)} peers are named more than once in the log, such as {twice[0]}")
    if len(counts) > PEERS_NAMED_AT_MOST:
        wrong.append(f"the log names {len(counts)} peers: at most {PEERS_NAMED_AT_MOST} are to be")
    text = log.read_text(errors="replace", encoding="utf-8")
    wrong += [f"the log has {what!r}" for what in ("Traceback", "\x1b") if what in text]
    return wrong


def _events(directory: Path) -> list[EventRecord]:
    return list(read(directory, EventRecord))


def _is_loss(event: EventRecord, honest: int) -> bool:
    return event.kind == "left" and event.worker is not None and event.worker < honest
