"""What a run of the task "soak" left, gone through again: was every step made once, of what it should be made of?

From what master and workers wrote down (see ``train.marks``) and the run's records, nothing else: the weights are
computed from the schemes' formulas, not by the decoders, and the parameters from the gradients' formula.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pgczmq.app import build
from pgczmq.config import RunConfig
from pgczmq.core.schemes import Scheme
from pgczmq.errors import ConfigError
from pgczmq.runlog import EventRecord, LatencyRecord, StepRecord
from pgczmq.train import plain
from pgczmq.train.marks import Applied, Sent

EXAMPLES = 3
"""Findings of one kind that are told; the others are counted."""
WEIGHT_DIGITS = 1e-9


@dataclass(frozen=True)
class Evidence:
    """What a run left.

    Args:
        config: of the run.
        steps, answers, events: its records.
        applied: by all masters, in order of time.
        sent: by all workers, in order of time.
        weights_sha256: of the parameters at the end, as the result has it; empty where there is no result.
    """

    config: RunConfig
    steps: Sequence[StepRecord]
    answers: Sequence[LatencyRecord]
    events: Sequence[EventRecord]
    applied: Sequence[Applied]
    sent: Sequence[Sent]
    weights_sha256: str


@dataclass
class Findings:
    """What is wrong, as sentences; of each kind the first few."""

    told: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, text: str) -> None:
        """One more."""
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES:
            self.told.append(text)

    def sentences(self) -> list[str]:
        """All that are told, and how many more there are of a kind."""
        more = {kind: count - EXAMPLES for kind, count in self.counts.items() if count > EXAMPLES}
        return [*self.told, *(f"{count} more like this: {kind}" for kind, count in more.items())]


def audit(evidence: Evidence) -> list[str]:
    """Everything that is wrong with the steps of a run; empty when it is clean. Of another task the records alone tell.

    Raises:
        ConfigError: what was computed cannot be computed again.
    """
    scheme = build.scheme_of(evidence.config)
    findings = Findings()
    _check_order(evidence.steps, findings)
    _check_arrivals(evidence, findings)
    if scheme.name in AUDITED:
        _check_weights(scheme, evidence.steps, findings)
    if evidence.config.task.name != plain.NAME:
        return findings.sentences()
    if evidence.config.net.wire_dtype != "float32":
        raise ConfigError('what was rounded on the wire cannot be computed again: use net.wire_dtype="float32".')
    line = lineage(evidence.applied, findings)
    _check_records(evidence, line, findings)
    _check_marks(evidence, line, findings)
    _check_parameters(evidence, scheme, line, findings)
    return findings.sentences()


def lineage(applied: Sequence[Applied], findings: Findings) -> list[Applied]:
    """The updates that the parameters at the end consist of: what a master did that was killed is done again."""
    line: list[Applied] = []
    before: Applied | None = None
    ended: set[int] = set()
    for one in applied:
        if one.master in ended:
            findings.add("two masters", f"process {one.master} applied step {one.step} after another had taken over")
        if before is not None and before.master != one.master:
            ended.add(before.master)
        if not one.messages:
            line = _taken_up(line, one, findings)
        elif one.step != len(line):
            text = f"process {one.master} applied step {one.step} where step {len(line)} was next"
            findings.add("order of updates", text)
            line = line[: one.step]
        if one.messages:
            line.append(one)
        before = one
    return line


def _taken_up(line: list[Applied], one: Applied, findings: Findings) -> list[Applied]:
    """The updates up to the newest with just these parameters."""
    for steps in range(len(line), 0, -1):
        if line[steps - 1].sha256 == one.sha256:
            return line[:steps]
    findings.add("taken up", f"process {one.master} went on with parameters {one.sha256[:12]}, which no step had made")
    return line


# ---------------------------------------------------------------- records


def _check_order(steps: Sequence[StepRecord], findings: Findings) -> None:
    """Every step is recorded once and in order."""
    for earlier, later in pairwise([-1, *(record.step for record in steps)]):
        if later != earlier + 1:
            findings.add("order of records", f"steps.jsonl has step {later} after step {earlier}")


def _check_records(evidence: Evidence, line: Sequence[Applied], findings: Findings) -> None:
    """Every recorded step was applied with the messages and weights of its record."""
    if len(evidence.steps) != len(line):
        findings.add("counts", f"{len(evidence.steps)} steps are recorded and {len(line)} were applied")
    for record, one in zip(evidence.steps, line, strict=False):
        said = dict(zip(record.used, record.weights, strict=True))
        done = {worker: weight for worker, weight, _ in one.messages}
        if record.step != one.step or said != done:
            text = f"step {record.step} is recorded with {said}, and was applied as step {one.step} with {done}"
            findings.add("records and updates", text)
    last = line[-1].sha256 if line else ""
    if evidence.weights_sha256 not in ("", last):
        findings.add("result", f"the result says parameters {evidence.weights_sha256[:12]}, the last step {last[:12]}")


def _check_arrivals(evidence: Evidence, findings: Findings) -> None:
    """Who arrived is who answered in time; used, spare and missing say what became of everybody, once."""
    in_time = {(answer.worker, answer.step): answer for answer in evidence.answers if answer.outcome == "open"}
    twice = Counter((answer.incarnation, answer.step) for answer in evidence.answers)
    for (incarnation, step), count in twice.items():
        if count > 1:
            findings.add("counted twice", f"the answer of {incarnation} to step {step} counts {count} times")
    everybody = list(range(evidence.config.workers))
    for record in evidence.steps:
        unknown = [worker for worker in record.arrived if (worker, record.step) not in in_time]
        if unknown:
            findings.add("arrivals", f"step {record.step} has arrivals of {unknown} that latencies.jsonl does not know")
        sides = sorted([*record.used, *record.spare, *record.missing])
        if sides != everybody or sorted([*record.used, *record.spare]) != sorted(record.arrived):
            findings.add("sides", f"step {record.step} does not say of every worker once what became of its answer")


# ---------------------------------------------------------------- weights


def _check_weights(scheme: Scheme, steps: Sequence[StepRecord], findings: Findings) -> None:
    """The weights are those that the arrivals ask for, and no step closed before it could."""
    expected = _FORMULAS.get(scheme.name, _decoding)
    for record in steps:
        given = dict(zip(record.used, record.weights, strict=True))
        wanted = expected(record.arrived, given, scheme)
        if given.keys() != wanted.keys() or any(abs(given[w] - wanted[w]) > WEIGHT_DIGITS for w in wanted):
            text = f"step {record.step} of {scheme.name}: arrivals {record.arrived} ask for {wanted}, it has {given}"
            findings.add("weights", text)
        if len(record.arrived) < record.k and (scheme.takes_any_k or scheme.wait == "k"):
            text = f"step {record.step} closed with {len(record.arrived)} arrivals and asks for {record.k}"
            findings.add("arrivals that close", text)


Expected = Callable[[Sequence[int], Mapping[int, float], Scheme], dict[int, float]]
"""(arrived in order, weights given, scheme) -> the weights that count."""


def _uniform(arrived: Sequence[int], given: Mapping[int, float], scheme: Scheme) -> dict[int, float]:
    """The mean of what the arrivals hold. Pipelined Gradient Coding, Sec. III, V-B, VI-A."""
    return {worker: 1 / (len(arrived) * scheme.load) for worker in arrived}


def _first_of_group(arrived: Sequence[int], given: Mapping[int, float], scheme: Scheme) -> dict[int, float]:
    """The first of each group of ``load`` neighbours, 1/n each. Pipelined Gradient Coding, Sec. III, IV."""
    weights: dict[int, float] = {}
    for group in range(scheme.workers // scheme.load):
        mine = [worker for worker in arrived if worker // scheme.load == group]
        weights |= dict.fromkeys(mine[:1], 1 / scheme.workers)
    return weights


def _group_mean(arrived: Sequence[int], given: Mapping[int, float], scheme: Scheme) -> dict[int, float]:
    """Of each group the mean of its arrivals."""
    sizes = Counter(worker // scheme.load for worker in arrived)
    return {worker: 1 / (scheme.workers * sizes[worker // scheme.load]) for worker in arrived}


def _decoding(arrived: Sequence[int], given: Mapping[int, float], scheme: Scheme) -> dict[int, float]:
    """Any weights of arrivals that solve a^T B = 1/n are right; else the least-squares ones are wanted."""
    encode_NN = scheme.encode_NN()
    a_N = np.zeros(scheme.workers)
    a_N[list(given)] = list(given.values())
    if given.keys() <= set(arrived) and np.abs(a_N @ encode_NN - 1 / scheme.workers).max() < 1e-6:
        return dict(given)
    rows = encode_NN[list(arrived)]
    solution = np.linalg.lstsq(rows.T, np.full(scheme.workers, 1 / scheme.workers), rcond=None)[0]
    return dict(zip(arrived, solution.tolist(), strict=True))


_FORMULAS: Mapping[str, Expected] = {
    "dgd": _uniform,
    "is-sgd": _uniform,
    "fastest-k": _uniform,
    "pgc-cr": _uniform,
    "gc-fr": _first_of_group,
    "pgc-fr": _first_of_group,
    "pgc-fr-staggered": _group_mean,
}
AUDITED = ("gc-cr", *_FORMULAS)
"""Schemes whose weights can be checked."""

# ---------------------------------------------------------------- what was applied


def _check_marks(evidence: Evidence, line: Sequence[Applied], findings: Findings) -> None:
    """Every message that was used is what its worker sent for this step, in this run, to this life of the master."""
    sent = {(one.mark.incarnation, one.mark.step): one for one in evidence.sent}
    counted = {(answer.worker, answer.step, answer.incarnation) for answer in evidence.answers}
    ages = {(record.step, worker): age for record in evidence.steps for worker, age in _aged(record)}
    masters: dict[int, tuple[str, str]] = {}  # run and master that each process turned out to be
    for one in line:
        for worker, _, mark in one.messages:
            what = f"worker {worker}'s gradient in step {one.step}"
            if mark is None or (mark.worker, mark.step) != (worker, one.step):
                findings.add("foreign step or worker", f"{what} bears the mark {mark}")
                continue
            origin = sent.get((mark.incarnation, mark.step))
            if origin is None or origin.mark != mark or origin.at > one.at:
                findings.add("not sent", f"{what} bears the mark {mark}, which nobody had sent")
                continue
            whose = masters.setdefault(one.master, (origin.run, origin.master))
            if whose != (origin.run, origin.master):
                text = f"{what} was for run {origin.run} of master {origin.master}, not for {whose[0]} of {whose[1]}"
                findings.add("foreign run or master", text)
            if (worker, one.step, mark.incarnation) not in counted:
                findings.add("foreign incarnation", f"{what} is of {mark.incarnation}, whose answer was not counted")
            if tuple(one.step - at for at in mark.evaluated_at) != ages.get((one.step, worker)):
                text = f"{what} was evaluated at {mark.evaluated_at}, recorded ages {ages.get((one.step, worker))}"
                findings.add("ages", text)
    runs = {run for run, _ in masters.values()}
    if len(runs) > 1 or len(set(masters.values())) != len(masters):
        findings.add("masters", f"the masters' processes were {masters}: one run, and each a master of its own")


def _aged(record: StepRecord) -> list[tuple[int, tuple[int, ...]]]:
    return list(zip(record.used, record.ages, strict=True))


def _check_parameters(evidence: Evidence, scheme: Scheme, line: Sequence[Applied], findings: Findings) -> None:
    """The parameters after every step are what the marks and weights make of those before."""
    config = evidence.config
    args = plain.Arguments.of(config.task.args)
    lr = np.float32(config.optimizer.lr)
    history = [np.zeros(args.size, np.float32)]
    known: dict[tuple[int, int], plain.Floats] = {}  # (partition, step) -> gradient

    def gradient(partition: int, at: int) -> plain.Floats:
        if (partition, at) not in known:
            if len(known) > 64 * config.workers:
                known.clear()
            known[partition, at] = plain.gradient(history[at], seed=config.seed, partition=partition, step=at)
        return known[partition, at]

    for step, one in enumerate(line):
        terms = []
        for worker, weight, mark in one.messages:
            held = scheme.placement.held[worker]
            if mark is None or len(mark.evaluated_at) != len(held) or max(mark.evaluated_at) > step:
                return  # found already
            vectors = [gradient(partition, at) for partition, at in zip(held, mark.evaluated_at, strict=True)]
            terms.append((weight, plain.coded(vectors, scheme.coefficients_NC[worker].tolist())))
        history.append(history[step] - lr * plain.estimate(terms, marks=args.marks))
        if plain.digest(history[-1]) != one.sha256:
            findings.add("parameters", f"the parameters after step {step} are not what its messages and weights make")
            return
