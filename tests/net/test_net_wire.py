"""The header frames: every message there and back, and nothing but WireError for everything else."""

import hashlib
import itertools
import json

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgczmq.errors import WireError
from pgczmq.net import wire

MINE = {"run": "r", "master": "m"}
THEIRS = {**MINE, "worker": 3, "incarnation": "abc"}
VERDICT = {"closed_step": 4, "used": [0, 2], "spare": [1], "late": [[3, 2]]}
ANSWER = {"step": 5, "ages": [0, 1], "fresh": [3], "losses": [0.5], "wait": 0.1, "compute": 0.2, "delay": 0.0}
DROPPED = {
    "dropped": [2, 4],
    "dropped_received_at": [8.0, -9.0],
    "dropped_delay": [0.0, 0.5],
    "dropped_evaluated": [0, 2],
    "dropped_evaluations": [0.1, 0.0],
}
FROM_WORKERS = [
    wire.Hello(worker=None, incarnation="abc", package="1", host="h", pid=1),
    wire.Hello(worker=3, incarnation="abc", run="r", package="1", host="h", pid=1),
    wire.Prepared(fingerprint={"model": "x", "device": "cpu"}, payload="shm", **THEIRS),
    wire.Heartbeat(state="idle", step=-1, **THEIRS),
    wire.Leaving(reason="Ä ok", **THEIRS),
    wire.Gradient(norm=1.5, **ANSWER, **THEIRS),
    wire.Gradient(norm=None, **ANSWER, **THEIRS),
    wire.Gradient(norm=1.5, block=7, **ANSWER, **THEIRS),
    wire.Gradient(norm=float("inf"), **ANSWER, **THEIRS),
    wire.Pull(**THEIRS),
    wire.Query(step=5, sending=1, **THEIRS),
    wire.Gradient(norm=1.5, received_at=9.5, evaluations=[0.2], **DROPPED, **ANSWER, **THEIRS),
]
FROM_MASTERS = [
    wire.Welcome(
        worker=3,
        config="steps = 1\n",
        gradients_port=2,
        params_port=3,
        metrics_port=4,
        held=[3, 4],
        coefficients=[1.0, -0.5],
        heartbeat=2.0,
        payload="auto",
        wire_dtype="float32",
        **MINE,
    ),
    wire.Welcome(
        worker=3,
        config="steps = 1\n",
        gradients_port=2,
        params_port=3,
        metrics_port=4,
        held=[3, 4],
        coefficients=[1.0, -0.5],
        heartbeat=2.0,
        payload="shm",
        wire_dtype="bfloat16",
        process=4,
        card=5,
        nonce="abc",
        block=6,
        local="ipc://@here",
        **MINE,
    ),
    wire.Rejected(reason="no"),
    wire.Rejected(reason="who are you?", again=True),
    wire.Beacon(**MINE),
    wire.Beacon(step=5, **MINE),
    wire.Params(step=5, k=3, batch_fraction=1.0, **VERDICT, **MINE),
    wire.Params(step=5, k=3, batch_fraction=1.0, block=7, **VERDICT, **MINE),
    wire.Beat(ready=True, open_step=5, arrived=[1, 2], **VERDICT, **MINE),
    wire.Again(step=5, sending=1, **MINE),
    wire.Refused(step=5, reason="not finite", **MINE),
    wire.Bye(exit=75, reason="stopped", **MINE),
]
BOTH = [(wire.to_master, m) for m in FROM_WORKERS] + [(wire.to_worker, m) for m in FROM_MASTERS]
IDS = [f"{message.type}-{number}" for number, (_, message) in enumerate(BOTH)]


def table_of(message):
    """The map in a message's frame."""
    return msgpack.unpackb(wire.pack(message))


def packed(**table):
    return msgpack.packb(table)


@pytest.mark.parametrize(("read", "message"), BOTH, ids=IDS)
def test_every_message_comes_back_as_it_was(read, message):
    frame = wire.pack(message)
    assert read(frame) == read(memoryview(frame)) == msgspec.structs.replace(message, v=wire.PROTOCOL)
    assert len(frame) < wire.HEADER_BYTES_AT_MOST


def test_the_table_above_is_complete():
    known = {kind.__name__ for kind in (*wire.ToMaster.__args__, *wire.ToWorker.__args__)}
    assert {type(message).__name__ for _, message in BOTH} == known


@pytest.mark.parametrize(("read", "message"), BOTH, ids=IDS)
def test_a_missing_or_additional_key_is_refused(read, message):
    table = table_of(message)
    optional = {field.name for field in msgspec.structs.fields(message) if not field.required} - {"v"}
    for key in table.keys() - optional - {"v", "type"}:
        with pytest.raises(WireError, match=r"protocol: .*required"):
            read(msgpack.packb({name: value for name, value in table.items() if name != key}))
    for key in {"type", "v"}:
        with pytest.raises(WireError):
            read(msgpack.packb({name: value for name, value in table.items() if name != key}))
    with pytest.raises(WireError, match=r"protocol: .*unknown field `extra`"):
        read(msgpack.packb({**table, "extra": 1}))


@pytest.mark.parametrize(("read", "message"), BOTH, ids=IDS)
def test_a_value_of_another_type_is_refused(read, message):
    table = table_of(message)
    for key in table:
        for wrong in ({"a": 1}, b"bytes", [[[]]], msgpack.ExtType(3, b"x"), msgpack.Timestamp(1)):
            with pytest.raises(WireError):
                read(msgpack.packb({**table, key: wrong}))


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 1.0},
        {"step": True},
        {"step": "5"},
        {"ages": [-1]},
        {"received_at": float("nan")},
        {"received_at": float("inf")},
        {"evaluations": [float("inf")]},
        {"evaluations": [-0.1]},
        {"wait": float("nan")},
        {"compute": -0.1},
        {"delay": float("inf")},
    ],
)
def test_numbers_are_what_they_say(change):
    table = table_of(FROM_WORKERS[5]) | change
    with pytest.raises(WireError, match="not a message of this protocol"):
        wire.to_master(msgpack.packb(table))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dropped": [-7, 4]}, ">= 0"),
        ({"dropped": [2, -7.5]}, "Expected `int`"),
        ({"dropped": [2, 1e300]}, "Expected `int`"),
        ({"dropped": [2, 2**63]}, "before the step itself"),
        ({"dropped": [2, [4]]}, "Expected `int`"),
        ({"dropped": [[2, 8.0, 0.0], [4, 9.0, 0.0]]}, "Expected `int`"),  # as protocol version 1 had it for a while
        ({"dropped": [2, 5]}, "in order and before the step itself"),
        ({"dropped": [4, 2]}, "in order and before the step itself"),
        ({"dropped": [4, 4]}, "in order and before the step itself"),
        ({"dropped": [4]}, "one dropped_received_at and one dropped_delay"),
        ({"dropped_received_at": [8.0]}, "one dropped_received_at and one dropped_delay"),
        ({"dropped_received_at": [8.0, float("nan")]}, "Expected `float`"),
        ({"dropped_delay": []}, "one dropped_received_at and one dropped_delay"),
        ({"dropped_delay": [0.0, -0.5]}, ">= 0"),
        ({"dropped_delay": [0.0, float("inf")]}, "Expected `float`"),
        ({"dropped_evaluated": [2]}, "as dropped_evaluated says"),
        ({"dropped_evaluated": [0, 1]}, "as dropped_evaluated says"),
        ({"dropped_evaluated": [-1, 3]}, ">= 0"),
        ({"dropped_evaluations": [0.1] * 400_003}, "as dropped_evaluated says"),
        ({"dropped_evaluations": [0.1, -0.1]}, ">= 0"),
    ],
)
def test_what_a_worker_says_of_steps_that_it_gave_up_is_of_one_piece(change, sentence):
    with pytest.raises(WireError, match=sentence):
        wire.to_master(msgpack.packb(table_of(FROM_WORKERS[-1]) | change))


def test_so_many_dropped_steps_are_told_and_no_more():
    def told(count):
        many = {"step": count, "dropped": list(range(count)), "dropped_received_at": [9.0] * count}
        many |= {"dropped_delay": [0.0] * count, "dropped_evaluated": [3] * count}
        table = table_of(FROM_WORKERS[-1]) | many | {"dropped_evaluations": [0.1] * 3 * count}
        return wire.to_master(msgpack.packb(table))

    assert len(told(wire.DROPPED_AT_MOST).dropped) == wire.DROPPED_AT_MOST
    with pytest.raises(WireError, match="length <= 1000"):
        told(wire.DROPPED_AT_MOST + 1)


def test_headers_hold_scalars_and_lists_of_scalars_only():
    for message in (*FROM_WORKERS, *FROM_MASTERS):
        for key, value in table_of(message).items():
            if key != "late":  # [worker, step] pairs
                assert not any(isinstance(inner, list | dict) for inner in (value if isinstance(value, list) else ()))


def test_other_keys_are_another_version():
    """Peers refuse keys that they do not know: who changes them raises PROTOCOL, and then this table."""
    kinds = {type(message) for message in (*FROM_WORKERS, *FROM_MASTERS)}
    keys = {kind.__name__: sorted(field.name for field in msgspec.structs.fields(kind)) for kind in kinds}
    known = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:16]
    assert (wire.PROTOCOL, known) == (5, "1fdced8aebf9cacd")


def test_messages_are_read_by_those_they_are_for():
    for message in FROM_MASTERS:
        with pytest.raises(WireError, match="protocol"):
            wire.to_master(wire.pack(message))
    for message in FROM_WORKERS:
        with pytest.raises(WireError, match="protocol"):
            wire.to_worker(wire.pack(message))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4.0, True, "4", None, [4]])
def test_another_version_is_told_in_a_sentence(version):
    table = table_of(FROM_WORKERS[0]) | {"v": version}
    with pytest.raises(WireError, match=r"protocol"):
        wire.to_master(msgpack.packb(table))
    if version in (0, 1, 2, 3) and version is not True:
        with pytest.raises(WireError, match=f"the peer speaks protocol version {version}, this program version 5"):
            wire.to_master(msgpack.packb(table))


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (b"", "the header is not msgpack"),
        (b"\xc1", "the header is not msgpack"),
        (b"\x81\x01\x02", "the header is not msgpack"),  # an int as key, X13
        (b"\x81\xa1\xff\x02", "the header is not msgpack"),  # not UTF-8
        (wire.pack(FROM_WORKERS[0]) + b"\x00", "the header is not msgpack: ExtraData"),
        (b"\x91" * 2000, "the header is not msgpack"),
        (msgpack.packb([1, 2]), "the header is not a map but list"),
        (msgpack.packb(None), "the header is not a map but NoneType"),
        (msgpack.packb({}), "protocol version None"),
        (packed(v=5), "missing required field `type`"),
        (packed(v=5, type="exec"), "Invalid value 'exec'"),
        (packed(v=5, type=["hello"]), "protocol"),
        (bytes(wire.HEADER_BYTES_AT_MOST + 1), "a header has at most 4194304 bytes: got 4194305"),
        (b"\xdd\xff\xff\xff\xff", "the header is not msgpack"),  # an array of four thousand million
    ],
)
def test_what_is_not_a_header_is_refused_in_a_sentence(frame, sentence):
    for read in (wire.to_master, wire.to_worker):
        with pytest.raises(WireError, match=sentence):
            read(frame)


@pytest.mark.parametrize(("read", "message"), BOTH, ids=IDS)
def test_a_truncated_message_is_refused(read, message):
    frame = wire.pack(message)
    for length in range(len(frame)):
        with pytest.raises(WireError):
            read(frame[:length])


@pytest.mark.parametrize("scalar", [np.float32(0.5), np.float64(0.5)])
def test_numpy_scalars_become_plain_numbers_in_a_header(scalar):
    """X13: msgpack cannot pack them."""
    message = wire.Gradient(norm=scalar, **{**ANSWER, "losses": [scalar]}, **THEIRS)
    back = wire.to_master(wire.pack(message))
    assert (back.norm, back.losses) == (0.5, [0.5])
    assert type(back.norm) is float


def test_numpy_is_refused_where_whole_numbers_belong():
    with pytest.raises(TypeError):
        wire.pack(wire.Gradient(norm=1.0, **{**ANSWER, "losses": np.ones(2)}, **THEIRS))
    with pytest.raises(WireError, match=r"Expected `int`"):
        wire.to_master(wire.pack(wire.Gradient(norm=1.0, **{**ANSWER, "step": np.int64(1)}, **THEIRS)))


# ---------------------------------------------------------------- fuzz


def only_wire_errors(frame):
    for read in (wire.to_master, wire.to_worker):
        try:
            read(frame)
        except WireError as error:
            assert len(str(error)) > 10


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=4))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.integers(0, 9), inner)
)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_fuzz_bytes(frame):
    only_wire_errors(frame)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(VALUES)
def test_fuzz_values(value):
    only_wire_errors(msgpack.packb(value))


TABLES = [table_of(message) for _, message in BOTH]
KEYS = sorted({*itertools.chain(*TABLES), "other"})


@settings(derandomize=True, max_examples=250, deadline=None)
@given(st.sampled_from(TABLES), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3))
def test_fuzz_almost_messages(table, changes):
    only_wire_errors(msgpack.packb(table | changes))


@settings(derandomize=True, max_examples=250, deadline=None)
@given(st.sampled_from(BOTH), st.integers(0, 400), st.integers(0, 255))
def test_fuzz_one_byte_flipped(pair, place, value):
    frame = bytearray(wire.pack(pair[1]))
    frame[place % len(frame)] = value
    only_wire_errors(bytes(frame))


def test_a_refusal_is_understood_whatever_the_version() -> None:
    frame = msgpack.packb({"v": 7, "type": "rejected", "reason": "this master speaks version 7", "more": 1})
    assert wire.to_worker(frame) == wire.Rejected(reason="this master speaks version 7")
    with pytest.raises(wire.OtherVersion):
        wire.to_worker(msgpack.packb({"v": 7, "type": "bye", "reason": "x"}))
