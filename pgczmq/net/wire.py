"""The messages: one msgpack map of plain scalars as header, validated on arrival; tensors are raw frames behind it.

control:    worker -> Hello, Prepared, Heartbeat, Leaving     master -> Welcome, Rejected, Beat, Refused, Bye
gradients:  worker -> Gradient (+ buffers, gradient), Pull     master -> Params (+ buffers, params)
broadcast:  master -> Beacon, Params (+ buffers, params)
metrics:    master -> Metrics

``run`` is the run's id, ``master`` and ``incarnation`` one life of the master's and of a worker's process.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import msgpack
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pgczmq.errors import WireError

PROTOCOL = 2
"""Raised with every change of what a message may hold: peers refuse keys that they do not know."""
HEADER_BYTES_AT_MOST = 4 * 2**20
DROPPED_AT_MOST = 1000
"""Of the steps that a worker gave up between two answers, the last so many are told."""

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Natural = Annotated[int, Field(ge=0)]


class Header(BaseModel):
    """Base of all messages; ``v`` is the protocol's version."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    v: int = PROTOCOL


class Hello(Header):
    """A worker wants to join; ``worker`` is None for the lowest free number, ``run`` None for any run."""

    type: Literal["hello"] = "hello"
    worker: int | None
    incarnation: str = Field(min_length=1, max_length=64)
    run: str | None = Field(default=None, max_length=255)
    package: str = Field(max_length=255)
    host: str = Field(max_length=255)
    pid: int


class Welcome(Header):
    """The master takes the worker, and this is what it is to do."""

    type: Literal["welcome"] = "welcome"
    run: str
    master: str
    worker: int
    config: str
    gradients_port: int
    params_port: int
    metrics_port: int
    held: list[int]
    coefficients: list[float]
    payload: Literal["tcp"] = "tcp"


class Rejected(Header):
    """The master does not take the worker."""

    type: Literal["rejected"] = "rejected"
    reason: str


class FromWorker(Header):
    """What every message of an admitted worker carries."""

    run: str
    master: str
    worker: int
    incarnation: str


class FromMaster(Header):
    """What every message to admitted workers carries."""

    run: str
    master: str


class Prepared(FromWorker):
    """The worker has built its model, holds its data and has heard the beacon: it is ready."""

    type: Literal["prepared"] = "prepared"
    fingerprint: dict[str, str]


class Heartbeat(FromWorker):
    """The worker lives, and what it is doing."""

    type: Literal["heartbeat"] = "heartbeat"
    state: str
    step: int


class Leaving(FromWorker):
    """The worker is about to go."""

    type: Literal["leaving"] = "leaving"
    reason: str


class Gradient(FromWorker):
    """An answer to a step; ``norm`` None is a bare report, without frames.

    ``fresh`` are the partitions evaluated at this step and ``losses`` their mean losses; durations in seconds.
    What follows ``delay`` is for the record alone: see ``runlog.LatencyRecord``. ``dropped`` are the earlier steps that
    the worker gave up, in order; the next two say of each what ``received_at`` and ``delay`` say of this step, and
    ``dropped_evaluated`` how many of ``dropped_evaluations`` are its own, those of the first one first.
    """

    type: Literal["gradient"] = "gradient"
    step: int = Field(ge=0)
    ages: list[_Natural]
    fresh: list[int]
    losses: list[float]
    norm: float | None
    wait: _Seconds
    compute: _Seconds
    delay: _Seconds
    received_at: _Number | None = None
    evaluations: list[_Seconds] = []
    dropped: list[_Natural] = Field(default=[], max_length=DROPPED_AT_MOST)
    dropped_received_at: list[_Number] = []
    dropped_delay: list[_Seconds] = []
    dropped_evaluated: list[_Natural] = []
    dropped_evaluations: list[_Seconds] = []

    @model_validator(mode="after")
    def _dropped_are_of_one_piece(self) -> Self:
        steps = [*self.dropped, self.step]
        if any(earlier >= later for earlier, later in pairwise(steps)):
            raise ValueError("dropped steps come in order and before the step itself")
        if not len(self.dropped) == len(self.dropped_received_at) == len(self.dropped_delay):
            raise ValueError("every dropped step has one dropped_received_at and one dropped_delay")
        evaluated = self.dropped_evaluated
        if len(evaluated) != len(self.dropped) or sum(evaluated) != len(self.dropped_evaluations):
            raise ValueError("every dropped step has as many dropped_evaluations as dropped_evaluated says")
        return self


class Pull(FromWorker):
    """The worker has nothing to do and wants the parameters of the open step."""

    type: Literal["pull"] = "pull"


class Beacon(FromMaster):
    """Nothing but a sign that the broadcast arrives."""

    type: Literal["beacon"] = "beacon"


class Verdict(FromMaster):
    """What became of the last closed step's messages; ``late`` are [worker, step] pairs."""

    closed_step: int = -1
    used: list[int] = []
    spare: list[int] = []
    late: list[list[int]] = []


class Params(Verdict):
    """The parameters of a step."""

    type: Literal["params"] = "params"
    step: int = Field(ge=0)
    k: int
    batch_fraction: float


class Beat(Verdict):
    """The master's heartbeat: the open step (-1 before the first) and whose answers are in.

    ``ready`` says whether the worker that it is sent to has been heard to be prepared.
    """

    type: Literal["beat"] = "beat"
    ready: bool
    open_step: int
    arrived: list[int]


class Refused(FromMaster):
    """A gradient was not taken and must not be sent again."""

    type: Literal["refused"] = "refused"
    step: int
    reason: str


class Bye(FromMaster):
    """The run is over."""

    type: Literal["bye"] = "bye"
    exit: int
    reason: str


class Metrics(FromMaster):
    """A whole small picture of the run for viewers; never a difference to the one before."""

    type: Literal["metrics"] = "metrics"
    step: int
    steps: int
    loss: float | None
    ready: list[int]
    late_fraction: float


ToMaster = Hello | Prepared | Heartbeat | Leaving | Gradient | Pull
ToWorker = Welcome | Rejected | Beacon | Params | Beat | Refused | Bye
_TO_MASTER: TypeAdapter[ToMaster] = TypeAdapter(Annotated[ToMaster, Field(discriminator="type")])
_TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="type")])


def pack(message: Header) -> bytes:
    """The header frame of a message."""
    packed: bytes = msgpack.packb(message.model_dump())
    return packed


class OtherVersion(WireError):
    """The peer speaks another version of this protocol."""


def to_master(frame: bytes | memoryview) -> ToMaster:
    """What a worker sent.

    Raises:
        WireError: it is not a message of this protocol version; says what is wrong with it.
    """
    message: ToMaster = _validated(_TO_MASTER, frame)
    return message


def to_worker(frame: bytes | memoryview) -> ToWorker:
    """What a master sent; errors as ``to_master``."""
    try:
        message: ToWorker = _validated(_TO_WORKER, frame)
    except OtherVersion:
        table = unpack(frame)
        kinds = [type(table.get(key)) for key in ("v", "reason")]
        if table.get("type") != "rejected" or kinds != [int, str]:
            raise
        return Rejected(reason=table["reason"])  # understood in any version: it is how one is told of the other
    return message


def _validated(adapter: TypeAdapter[Any], frame: bytes | memoryview) -> Any:
    table = unpack(frame)
    version = table.get("v")
    if version != PROTOCOL:
        raise OtherVersion(f"the peer speaks protocol version {version!r}, this program version {PROTOCOL}")
    try:
        return adapter.validate_python(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise WireError(f"not a message of this protocol: {where or 'header'}: {first['msg']}") from None


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


def check_payload(frames: Sequence[Any], sizes: Sequence[int]) -> None:
    """Whether the frames behind a header have the sizes, in bytes, that they must have.

    Raises:
        WireError: they do not.
    """
    given = [len(frame) for frame in frames]
    if given != list(sizes):
        raise WireError(f"the frames behind the header must have {list(sizes)} bytes: got {given}")
