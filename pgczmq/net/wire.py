"""The messages: one msgpack map of plain scalars as header, validated on arrival; tensors are raw frames behind it.

control:    worker -> Hello, Prepared, Heartbeat, Leaving     master -> Welcome, Rejected, Beat, Refused, Bye
gradients:  worker -> Gradient (+ payload), Pull               master -> Params (+ payload)
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

PROTOCOL = 3
"""Raised with every change of what a message may hold: peers refuse keys that they do not know."""
HEADER_BYTES_AT_MOST = 4 * 2**20
DROPPED_AT_MOST = 1000
"""Of the steps that a worker gave up between two answers, the last so many are told."""

_LARGEST = 1e300  # neither infinite nor NaN
_Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
_Seconds = Annotated[float, Meta(ge=0, le=_LARGEST)]
_Natural = Annotated[int, Meta(ge=0)]
_Text = Annotated[str, Meta(max_length=255)]


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all messages; ``v`` is the protocol's version, which ``pack`` fills in and nobody may leave out."""

    v: int = 0

    @property
    def type(self) -> str:
        """What kind of message it is."""
        return str(self.__struct_config__.tag)


class Hello(Header, frozen=True, kw_only=True, tag="hello"):
    """A worker wants to join; ``worker`` is None for the lowest free number, ``run`` None for any run."""

    worker: int | None
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]
    run: _Text | None = None
    package: _Text
    host: _Text
    pid: int


class Welcome(Header, frozen=True, kw_only=True, tag="welcome"):
    """The master takes the worker, and this is what it is to do.

    ``process`` is the master's where memory can be shared with workers of its host, else None. Then ``card`` is the
    descriptor of what it shows there and ``nonce`` what that says, ``block`` the descriptor of the memory for this
    worker's gradients, and headers of shared payloads go over sockets of this host that begin with ``local``.
    """

    run: str
    master: str
    worker: int
    config: str
    gradients_port: int
    params_port: int
    metrics_port: int
    held: list[int]
    coefficients: list[float]
    payload: Literal["auto", "shm", "tcp"]
    wire_dtype: Literal["float32", "bfloat16"]
    process: int | None = None
    card: int = -1
    nonce: str = ""
    block: int = -1
    local: str = ""


class Rejected(Header, frozen=True, kw_only=True, tag="rejected"):
    """The master does not take the worker."""

    reason: str


class FromWorker(Header, frozen=True, kw_only=True):
    """What every message of an admitted worker carries."""

    run: str
    master: str
    worker: int
    incarnation: str


class FromMaster(Header, frozen=True, kw_only=True):
    """What every message to admitted workers carries."""

    run: str
    master: str


class Prepared(FromWorker, frozen=True, kw_only=True, tag="prepared"):
    """The worker has built its model, holds its data and has heard the beacon: it is ready."""

    fingerprint: dict[str, str]
    payload: Literal["shm", "tcp"]


class Heartbeat(FromWorker, frozen=True, kw_only=True, tag="heartbeat"):
    """The worker lives, and what it is doing."""

    state: str
    step: int


class Leaving(FromWorker, frozen=True, kw_only=True, tag="leaving"):
    """The worker is about to go."""

    reason: str


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


class Refused(FromMaster, frozen=True, kw_only=True, tag="refused"):
    """A gradient was not taken and must not be sent again."""

    step: int
    reason: str


class Bye(FromMaster, frozen=True, kw_only=True, tag="bye"):
    """The run is over."""

    exit: int
    reason: str


class Metrics(FromMaster, frozen=True, kw_only=True, tag="metrics"):
    """A whole small picture of the run for viewers; never a difference to the one before."""

    step: int
    steps: int
    loss: float | None
    ready: list[int]
    late_fraction: float


Message = TypeVar("Message", bound=Header)
ToMaster = Hello | Prepared | Heartbeat | Leaving | Gradient | Pull
ToWorker = Welcome | Rejected | Beacon | Params | Beat | Refused | Bye
_TO_MASTER = msgspec.msgpack.Decoder(ToMaster)
_TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
_ENCODER = msgspec.msgpack.Encoder(enc_hook=float)  # of NumPy's numbers, X13


def pack(message: Header) -> bytes:
    """The header frame of a message."""
    return _ENCODER.encode(msgspec.structs.replace(message, v=PROTOCOL))


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
