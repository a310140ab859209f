"""What the engine is told (events) and what it asks for (commands). All frozen; times are seconds on the
driver's clock, and every event carries its own."""

from pgczmq.core.decoders import Weights
from pgczmq.core.policies import Statistics
from pgczmq.core.values import value

# ---------------------------------------------------------------- events


@value
class Joined:
    """A worker says hello; ``worker`` is None when it asks for the lowest free number.

    Lives of one ``process`` follow each other: who begins another one has ended the one before. Empty is not known.
    """

    worker: int | None
    incarnation: str
    at: float
    process: str = ""


@value
class Ready:
    """An admitted worker hears the broadcast and has the right model and data."""

    worker: int
    incarnation: str
    at: float


@value
class Heard:
    """Any sign of life of an admitted worker."""

    worker: int
    incarnation: str
    at: float


@value
class Left:
    """A worker is gone; ``state`` is "gone" when it can no longer be reached, "left" when it said goodbye."""

    worker: int
    incarnation: str
    reason: str
    at: float
    state: str = "gone"


@value
class Arrived:
    """A worker's answer to a step.

    Args:
        ages: steps since each place's gradient was evaluated, 0 = at this step.
        losses: (partition, mean loss) of everything evaluated at this step.
        norm: Euclidean norm of the coded gradient; None for a bare report, sent when the step is known to be closed.
    """

    worker: int
    incarnation: str
    step: int
    ages: tuple[int, ...]
    losses: tuple[tuple[int, float], ...]
    norm: float | None
    at: float


@value
class Tick:
    """Time passes; several a heartbeat.

    Args:
        deaf: seconds of those since the last tick in which the driver was held up and heard nobody: its loop was
            blocked, its process stopped, its machine asleep. They count for nobody's silence and no deadline.
    """

    at: float
    deaf: float = 0.0


@value
class Applied:
    """The update of a step is in the parameters.

    Args:
        statistics: of the estimates, as far as the scheme's policy needs them.
    """

    step: int
    at: float
    statistics: Statistics | None = None


@value
class Spoiled:
    """The combination was not finite and nothing was applied.

    Args:
        workers: whose message was not finite; empty when every message was and the run has diverged.
    """

    step: int
    workers: tuple[int, ...]
    at: float


@value
class Stop:
    """A person or the machine's owner wants the run to end, or the application cannot go on.

    While an update is being applied the run ends when that is done, so that a checkpoint is of the step it says.
    """

    reason: str
    at: float
    exit_code: int = 75


Event = Joined | Ready | Heard | Left | Arrived | Tick | Applied | Spoiled | Stop

# ---------------------------------------------------------------- commands


@value
class Admit:
    """Welcome this worker under this number."""

    worker: int
    incarnation: str


@value
class Reject:
    """Do not let this worker in; ``worker`` is None when its number is none of this run."""

    worker: int | None
    incarnation: str
    reason: str


@value
class Probe:
    """Find out at once whether this worker is still there."""

    worker: int
    incarnation: str


@value
class Outcome:
    """What became of the messages of a step: used, spare, and everything late since the last publication."""

    step: int = -1
    used: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()
    late: tuple[tuple[int, int], ...] = ()  # (worker, step)


@value
class Publish:
    """Broadcast the current parameters as those of ``step``."""

    step: int
    k: int
    batch_fraction: float
    outcome: Outcome


@value
class Send:
    """Send the open step to one worker, beside the broadcast."""

    worker: int
    step: int


@value
class Use:
    """The message that just arrived counts for the open step: hold it until the step is applied.

    Args:
        fold: its weight will be that of all others that fold: they can be added up before it is known.
    """

    step: int
    worker: int
    fold: bool = False


@value
class Refuse:
    """A message is not taken; its sender is told why."""

    worker: int
    incarnation: str
    step: int
    reason: str


@value
class ClosedStep:
    """Everything known about a step when it closes; one record of ``steps.jsonl``.

    Args:
        arrived: in order of arrival.
        arrived_at: aligned with ``arrived``; seconds, planned ones in deterministic mode.
        used: workers with a weight other than zero, by number; ``weights`` and ``ages`` are aligned with it.
        recovered: fraction of the partitions that are in the estimate at all: their share is not 0. 1.0 does not
            mean that every share is 1, as in exact decoding: the shares of pgc-cr differ, and those of a partial
            step of gc-cr may be far from 1.
        max_alpha: largest effective weight of one copy of a partition.
        fresh: distinct partitions evaluated at this step among the arrivals.
        loss: mean over these partitions; NaN when none has a number.
    """

    step: int
    published_at: float
    closed_at: float
    k: int
    batch_fraction: float
    loss: float
    arrived: tuple[int, ...]
    arrived_at: tuple[float, ...]
    used: tuple[int, ...]
    spare: tuple[int, ...]
    missing: tuple[int, ...]
    weights: tuple[float, ...]
    ages: tuple[tuple[int, ...], ...]
    recovered: float
    max_alpha: float
    fresh: int


@value
class Apply:
    """Combine the used messages with these weights and update the parameters."""

    step: int
    weights: Weights
    closed: ClosedStep


@value
class Evaluate:
    """Look at the held-out data with the current parameters, after ``step`` updates."""

    step: int


@value
class Checkpoint:
    """Save the run as it is after ``step`` updates."""

    step: int


@value
class Note:
    """Something for the record and for people.

    Args:
        kind: one word: ready, left, refused, late, waiting, enough, partial, starting.
        seconds: in which a worker that is ready again could not be counted on.
    """

    kind: str
    text: str
    worker: int | None = None
    step: int | None = None
    seconds: float | None = None


@value
class Finish:
    """The run is over."""

    exit_code: int
    reason: str
    diverged: bool = False


Command = Admit | Reject | Probe | Publish | Send | Use | Refuse | Apply | Evaluate | Checkpoint | Note | Finish
