"""Where the time of each step went, by the records of its run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pgczmq.runlog import LatencyRecord, Record, StepRecord


@dataclass(frozen=True)
class Account:
    """One step, in seconds.

    The master's parts, from ``first`` to ``publishing``, follow each other on its clock and add up to ``seconds``. The
    workers' parts are by their own clocks, of all who answered, added up: they go on beside each other, and ``sending``
    goes on beside other work.

    Args:
        seconds: from its publication to that of the next step.
        evaluations: gradients that were evaluated for it, also for answers that came late or were given up.
        first: from its publication until the first answer came.
        rest: from then until the last one came that it was closed with.
        closing: from then until it was closed.
        adding: from then on, without the next three: adding up answers that were not through when the step closed, and
            going to the compute thread and back.
        combining: what was not added up before.
        updating: the parameters.
        writing: the parameters to where they are sent from.
        publishing: from having applied the update until the next publication.
        waiting: from having the parameters to beginning on them.
        evaluating: gradients, with their minibatches.
        encoding: to a coded gradient where it is sent from.
        delay: injected.
        sending: both ways: all between publication and arrival that is none of the other parts.
        master: processor seconds of the master's process, all threads, from the last update to this one.
    """

    step: int
    seconds: float
    evaluations: int
    first: float
    rest: float
    closing: float
    adding: float
    combining: float
    updating: float
    writing: float
    publishing: float
    waiting: float
    evaluating: float
    encoding: float
    delay: float
    sending: float
    master: float


MASTER_PARTS = ("first", "rest", "closing", "adding", "combining", "updating", "writing", "publishing")
WORKER_PARTS = ("waiting", "evaluating", "encoding", "delay", "sending")


def accounts(records: Iterable[Record], processor: Mapping[int, float]) -> list[Account]:
    """All steps but the first, before which nothing was applied, and the last, after which nothing is published.

    Args:
        records: of one real run that is not deterministic.
        processor: the master's processor seconds when each step had been applied.
    """
    records = list(records)
    steps = [record for record in records if isinstance(record, StepRecord)]
    answers: defaultdict[int, list[LatencyRecord]] = defaultdict(list)
    given_up: defaultdict[int, int] = defaultdict(int)
    for record in records:
        if isinstance(record, LatencyRecord):
            answers[record.step].append(record)
            for number, _, _, *evaluations in record.dropped:
                given_up[int(number)] += len(evaluations)
    found = []
    for step, after in list(pairwise(steps))[1:]:
        busy = processor[step.step] - processor[step.step - 1]
        found.append(_account(step, after.published_at, answers[step.step], given_up[step.step], busy))
    return found


def _account(
    step: StepRecord, published_at: float, answers: Sequence[LatencyRecord], given_up: int, master: float
) -> Account:
    """Of a step after which the next was published at that time."""
    first, last = min(step.arrived_at), max(step.arrived_at)
    evaluating = sum(sum(answer.evaluations) for answer in answers)
    known = step.combining + step.updating + step.writing
    return Account(
        step=step.step,
        seconds=published_at - step.published_at,
        evaluations=sum(answer.evaluated for answer in answers) + given_up,
        first=first - step.published_at,
        rest=last - first,
        closing=step.closed_at - last,
        adding=step.applied_at - step.closed_at - known,
        combining=step.combining,
        updating=step.updating,
        writing=step.writing,
        publishing=published_at - step.applied_at,
        waiting=sum(answer.wait for answer in answers),
        evaluating=evaluating,
        encoding=sum(answer.compute for answer in answers) - evaluating,
        delay=sum(answer.delay for answer in answers),
        sending=sum(answer.send for answer in answers),
        master=master,
    )
