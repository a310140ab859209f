"""The messages: one msgpack map of plain scalars as header, validated on arrival; tensors are raw frames behind it.

control:    worker -> Hello, Prepared, Heartbeat, Leaving     master -> Welcome, Rejected, Beat, Again, Refused, Bye
gradients:  worker -> Gradient (+ payload), Pull, Query        master -> Params (+ payload)
broadcast:  master -> Beacon, Bye, Params (+ payload)
metrics:    master -> Metrics

A payload is one frame, vector and packed buffers; or it is in shared memory, and the header names the ``block``.

``run`` is the run's id, ``master`` and ``incarnation`` one life of the master's and of a worker's process.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import msgpack
import msgspec
from msgspec import Meta

from pgczmq.errors import WireError
from pgczmq.picture import EVENTS, HISTORY, RECENT, Numbers, Picture

PROTOCOL = 5
"""Raised with every change of what a message may hold: peers refuse keys that they do not know."""
HEADER_BYTES_AT_MOST = 4 * 2**20
WATCHED_AT_MOST = 10_000
"""Workers in a picture; each takes half a kilobyte of its header."""
WORDS_AT_MOST = 4096
"""Of a reason; ``pack`` cuts off what is longer."""
DROPPED_AT_MOST = 1000
"""Of the steps that a worker gave up between two answers, the last so many are told."""

_LARGEST = 1e300  # neither infinite nor NaN
_Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
_Seconds = Annotated[float, Meta(ge=0, le=_LARGEST)]
_Natural = Annotated[int, Meta(ge=0)]
# What is written into logs and on screens must not be able to do anything there.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_Text = Annotated[str, Meta(max_length=255, pattern=_PRINTABLE)]
_Life = Annotated[str, Meta(max_length=64, pattern=_PRINTABLE)]  # of a master's or a worker's process
_Words = Annotated[str, Meta(max_length=WORDS_AT_MOST)]
_Port = Annotated[int, Meta(ge=1, le=65535)]


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all messages; ``v`` is the protocol's version, which ``pack`` fills in and nobody may leave out."""

    v: int = 0

    @property
    def type(self) -> str:
        """What kind of message it is."""
        return str(self.__struct_config__.tag)


DOCTOR = "doctor"
"""The run that ``pgc doctor`` asks for, which is nobody's: a master says what it runs, admits and records nobody."""


class Hello(Header, frozen=True, kw_only=True, tag="hello"):
    """A worker wants to join; ``worker`` is None for the lowest free number, ``run`` None for any run.

    ``away`` are the seconds since a worker that was in a run before last heard its master; None in a first life.
    """

    worker: int | None
    incarnation: Annotated[_Life, Meta(min_length=1)]
    run: _Text | None = None
    away: _Seconds | None = None
    package: _Text
    host: _Text
    pid: int


class Welcome(Header, frozen=True, kw_only=True, tag="welcome"):
    """The master takes the worker, and this is what it is to do; both say something every ``heartbeat`` seconds.

    ``incarnation`` is the worker's own, as it said hello.
    ``process`` is the master's where memory can be shared with workers of its host, else None. Then ``card`` is the
    descriptor of what it shows there and ``nonce`` what that says, ``block`` the descriptor of the memory for this
    worker's gradients, and headers of shared payloads go over sockets of this host that begin with ``local``.
    """

    run: _Text
    master: _Life
    worker: _Natural
    config: str
    gradients_port: _Port
    params_port: _Port
    metrics_port: _Port
    held: list[int]
    coefficients: list[float]
    heartbeat: Annotated[float, Meta(gt=0, le=3600)]
    payload: Literal["auto", "shm", "tcp"]
    wire_dtype: Literal["float32", "bfloat16"]
    process: int | None = None
    card: int = -1
    nonce: _Text = ""
    block: int = -1
    local: _Text = ""
    incarnation: _Life = ""

    def __post_init__(self) -> None:
        """What a type cannot say: there is one coefficient for each partition."""
        if len(self.held) != len(self.coefficients):
            raise ValueError("every partition held has one coefficient")


class Rejected(Header, frozen=True, kw_only=True, tag="rejected"):
    """The master does not take the worker, or does not know it any more.

    ``again`` tells the worker to begin a new life and to say hello; without it the answer is final.
    ``fingerprint`` is that of the run, for whoever asked for run DOCTOR, see there.
    """

    reason: _Words
    again: bool = False
    fingerprint: dict[str, str] = {}


class FromWorker(Header, frozen=True, kw_only=True):
    """What every message of an admitted worker carries."""

    run: _Text
    master: _Life
    worker: int
    incarnation: _Life


class FromMaster(Header, frozen=True, kw_only=True):
    """What every message to admitted workers carries."""

    run: _Text
    master: _Life


class Prepared(FromWorker, frozen=True, kw_only=True, tag="prepared"):
    """The worker has built its model, holds its data and has heard the beacon: it is ready."""

    fingerprint: dict[str, str]
    payload: Literal["shm", "tcp"]


class Heartbeat(FromWorker, frozen=True, kw_only=True, tag="heartbeat"):
    """The worker lives, and what it is doing."""

    state: _Text
    step: int


class Leaving(FromWorker, frozen=True, kw_only=True, tag="leaving"):
    """The worker is about to go."""

    reason: _Words


class Gradient(FromWorker, frozen=True, kw_only=True, tag="gradient"):
    """An answer to a step; ``norm`` None is a bare report, without frames.

    ``fresh`` are the partitions evaluated at this step and ``losses`` their mean losses; durations in seconds.
    What follows ``delay`` is for the record alone: see ``runlog.LatencyRecord``. ``dropped`` are the earlier steps that
    the worker gave up, in order; the next two say of each what ``received_at`` and ``delay`` say of this step, and
    ``dropped_evaluated`` how many of ``dropped_evaluations`` are its own, those of the first one first.
    """

    step: _Natural
    ages: list[_Natural]
    fresh: list[int]
    losses: list[float]
    norm: float | None
    block: int | None = None
    wait: _Seconds
    compute: _Seconds
    delay: _Seconds
    received_at: _Number | None = None
    evaluations: list[_Seconds] = []
    dropped: Annotated[list[_Natural], Meta(max_length=DROPPED_AT_MOST)] = []
    dropped_received_at: list[_Number] = []
    dropped_delay: list[_Seconds] = []
    dropped_evaluated: list[_Natural] = []
    dropped_evaluations: list[_Seconds] = []

    def __post_init__(self) -> None:
        """What a type cannot say: the lists about dropped steps are of one piece."""
        if not self.dropped and not self.dropped_evaluations:
            return
        steps = [*self.dropped, self.step]
        if any(earlier >= later for earlier, later in pairwise(steps)):
            raise ValueError("dropped steps come in order and before the step itself")
        if not len(self.dropped) == len(self.dropped_received_at) == len(self.dropped_delay):
            raise ValueError("every dropped step has one dropped_received_at and one dropped_delay")
        evaluated = self.dropped_evaluated
        if len(evaluated) != len(self.dropped) or sum(evaluated) != len(self.dropped_evaluations):
            raise ValueError("every dropped step has as many dropped_evaluations as dropped_evaluated says")


class Pull(FromWorker, frozen=True, kw_only=True, tag="pull"):
    """The worker has nothing to do and wants the parameters of the open step."""


class Query(FromWorker, frozen=True, kw_only=True, tag="query"):
    """Whether the answer to ``step`` is in, which went before this over the same socket, for the ``sending``-th time.

    One connection keeps their order, and loses both when it is lost: on a slow link the question waits with the answer.
    """

    step: _Natural
    sending: _Natural


class Beacon(FromMaster, frozen=True, kw_only=True, tag="beacon"):
    """A sign that the broadcast arrives; the parameters of ``step`` went before it over the same socket, unless -1."""

    step: int = -1


class Verdict(FromMaster, frozen=True, kw_only=True):
    """What became of the last closed step's messages; ``late`` are [worker, step] pairs."""

    closed_step: int = -1
    used: list[int] = []
    spare: list[int] = []
    late: list[list[int]] = []


class Params(Verdict, frozen=True, kw_only=True, tag="params"):
    """The parameters of a step."""

    step: _Natural
    k: int
    batch_fraction: float
    block: int | None = None


class Beat(Verdict, frozen=True, kw_only=True, tag="beat"):
    """The master's heartbeat: the open step (-1 before the first) and whose answers are in.

    ``ready`` says whether the worker that it is sent to has been heard to be prepared.
    """

    ready: bool
    open_step: int
    arrived: list[int]


class Again(FromMaster, frozen=True, kw_only=True, tag="again"):
    """No: the answer to the open step that went before the query is lost. Whoever has sent it again may ignore this."""

    step: _Natural
    sending: _Natural


class Refused(FromMaster, frozen=True, kw_only=True, tag="refused"):
    """A gradient was not taken. Unless beats list it as arrived, it may be asked after and sent again, a few times."""

    step: int
    reason: _Words


class Bye(FromMaster, frozen=True, kw_only=True, tag="bye"):
    """The run is over."""

    exit: Annotated[int, Meta(ge=0, le=255)]
    reason: _Words


class Metrics(FromMaster, frozen=True, kw_only=True, tag="metrics"):
    """A whole picture of the run for viewers, in one frame; ``now`` is the time on the run's clock."""

    now: _Number
    picture: Picture

    def __post_init__(self) -> None:
        """What a type cannot say: a picture is no larger than its run needs."""
        picture, workers = self.picture, self.picture.workers
        if any(len(numbers.history) > HISTORY for numbers in vars(picture).values() if isinstance(numbers, Numbers)):
            raise ValueError(f"a history has at most {HISTORY} points")
        if any(len(worker.recent) > RECENT or len(worker.outcomes) > RECENT for worker in workers):
            raise ValueError(f"at most {RECENT} latencies of a worker are recent")
        if len(picture.events) > EVENTS or len(workers) > WATCHED_AT_MOST:
            raise ValueError(f"a picture has at most {EVENTS} events and {WATCHED_AT_MOST} workers")


Message = TypeVar("Message", bound=Header)
ToMaster = Hello | Prepared | Heartbeat | Leaving | Gradient | Pull | Query
ToWorker = Welcome | Rejected | Beacon | Params | Beat | Again | Refused | Bye
_WITH_REASON = (Rejected, Leaving, Refused, Bye)
_TO_MASTER = msgspec.msgpack.Decoder(ToMaster)
_TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
_TO_VIEWER = msgspec.msgpack.Decoder(Metrics)
_ENCODER = msgspec.msgpack.Encoder(enc_hook=float)  # of NumPy's numbers, X13


def pack(message: Header) -> bytes:
    """The header frame of a message."""
    if isinstance(message, _WITH_REASON):
        message = msgspec.structs.replace(message, reason=message.reason[:WORDS_AT_MOST])
    msgspec.structs.force_setattr(message, "v", PROTOCOL)  # a copy would be checked once more
    return _ENCODER.encode(message)


class OtherVersion(WireError):
    """The peer speaks another version of this protocol."""


def to_master(frame: bytes | memoryview) -> ToMaster:
    """What a worker sent.

    Raises:
        WireError: it is not a message of this protocol version; says what is wrong with it.
    """
    return _decoded(_TO_MASTER, frame)


def to_worker(frame: bytes | memoryview) -> ToWorker:
    """What a master sent; errors as ``to_master``."""
    try:
        return _decoded(_TO_WORKER, frame)
    except OtherVersion:
        table = unpack(frame)
        kinds = [type(table.get(key)) for key in ("v", "reason")]
        if table.get("type") != "rejected" or kinds != [int, str]:
            raise
        return Rejected(reason=table["reason"])  # understood in any version: it is how one is told of the other


def to_viewer(frame: bytes | memoryview) -> Metrics:
    """What a master sent to whoever watches; errors as ``to_master``."""
    return _decoded(_TO_VIEWER, frame)


def _decoded(decoder: msgspec.msgpack.Decoder[Message], frame: bytes | memoryview) -> Message:
    if len(frame) > HEADER_BYTES_AT_MOST:
        raise WireError(f"a header has at most {HEADER_BYTES_AT_MOST} bytes: got {len(frame)}")
    try:
        message = decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        _check_version(unpack(frame).get("v"))
        raise WireError(f"not a message of this protocol: {error}") from None
    _check_version(message.v)
    return message


def _check_version(version: Any) -> None:
    if version != PROTOCOL or isinstance(version, bool):
        raise OtherVersion(f"the peer speaks protocol version {version!r}, this program version {PROTOCOL}")


def unpack(frame: bytes | memoryview) -> Mapping[str, Any]:
    """The map in a header frame, whatever it says.

    Raises:
        WireError: it is too large or not a msgpack map with string keys.
    """
    if len(frame) > HEADER_BYTES_AT_MOST:
        raise WireError(f"a header has at most {HEADER_BYTES_AT_MOST} bytes: got {len(frame)}")
    try:
        table = msgpack.unpackb(frame)
    except Exception as error:  # msgpack raises a dozen kinds on hostile bytes; each means the same here
        raise WireError(f"the header is not msgpack: {type(error).__name__}") from None
    if not isinstance(table, dict):
        raise WireError(f"the header is not a map but {type(table).__name__}")
    return table
