"""The ways on which the matrix of states and faults holds up, cuts and spoils what programs say."""

import contextlib
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pgczmq.bench.torture.machine import PORTS, free_port
from pgczmq.bench.torture.matrix import stage
from pgczmq.bench.torture.matrix.links import GREETING, Frames, Link, Trap, Way
from pgczmq.bench.torture.matrix.stage import Stage

HERE, LINKED = "127.0.0.1", "127.0.0.9"
WAIT_SECONDS = 20
_bases = itertools.count(32_000, PORTS)


@pytest.fixture
def port() -> int:
    """The first of four that are free at both addresses."""
    for base in _bases:
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for host, offset in itertools.product((HERE, LINKED), range(PORTS)):
                probes.enter_context(socket.create_server((host, base + offset)))
            return base
    raise AssertionError


@pytest.fixture
def ends(port: int) -> Iterator[tuple[Link, socket.socket, socket.socket]]:
    """A link, and the two ends of one connection over it, the worker's first."""
    with contextlib.ExitStack() as opened:
        door = opened.enter_context(socket.create_server((HERE, port)))
        link = opened.enter_context(Link(LINKED, port))
        worker = opened.enter_context(socket.create_connection((LINKED, port)))
        master, _ = door.accept()
        opened.enter_context(master)
        for end in (worker, master):
            end.settimeout(WAIT_SECONDS)
        yield link, worker, master


def test_frames_are_followed_byte_by_byte() -> None:
    short, last, long = b"\x01\x03abc", b"\x00\x02de", b"\x02" + (300).to_bytes(8) + bytes(300)
    stream = bytes(GREETING) + short + last + long
    ends = [GREETING, GREETING + len(short) + len(last), len(stream)]
    frames, found = Frames(), []
    for count, byte in enumerate(stream, start=1):
        frames.take(bytes([byte]))
        if frames.between:
            found.append(count)
    assert found == ends  # not between the two frames of the first message


def test_frames_are_followed_in_large_pieces_too() -> None:
    frames = Frames()
    frames.take(bytes(GREETING) + b"\x00\x05hello" + b"\x00\x05he")
    assert not frames.between
    frames.take(b"llo")
    assert frames.between


def test_a_trap_holds_up_the_rest_of_what_springs_it(ends: tuple[Link, socket.socket, socket.socket]) -> None:
    link, worker, master = ends
    trap = link.set(Trap(Way(0, True), b"gradient", count=1, holds=Way(0, True)))
    worker.sendall(b"gradient")
    assert master.recv(100) == b"gradient" and not trap.sprung.is_set()
    worker.sendall(b"gra")
    assert master.recv(100) == b"gra"
    worker.sendall(b"dient and more")
    assert trap.sprung.wait(WAIT_SECONDS)
    assert master.recv(100) == b"dient a"
    master.sendall(b"the other way")
    assert worker.recv(100) == b"the other way"
    link.release()
    assert master.recv(100) == b"nd more"


def test_a_trap_can_hold_up_the_answer(ends: tuple[Link, socket.socket, socket.socket]) -> None:
    link, worker, master = ends
    link.set(Trap(Way(0, True), b"hello", holds=Way(0, False)))
    worker.sendall(b"hello")
    assert master.recv(100) == b"hello"
    master.sendall(b"welcome")
    worker.setblocking(False)
    with pytest.raises(BlockingIOError):
        worker.recv(100)
    worker.settimeout(WAIT_SECONDS)
    link.release()
    assert worker.recv(100) == b"welcome"


def test_a_cut_link_is_silent_until_it_is_mended(ends: tuple[Link, socket.socket, socket.socket]) -> None:
    link, worker, master = ends
    link.cut()
    worker.sendall(b"one")
    master.setblocking(False)
    with pytest.raises(BlockingIOError):
        master.recv(100)
    master.settimeout(WAIT_SECONDS)
    link.mend()
    assert master.recv(100) == b"one"


def test_whoever_finds_no_master_is_counted(port: int) -> None:
    with Link(LINKED, port) as link, socket.create_connection((LINKED, port)) as worker:
        worker.settimeout(WAIT_SECONDS)
        assert worker.recv(1) == b""
        assert link.refused == 1


def test_garbage_comes_between_messages_and_reaches_the_program_as_one(port: int) -> None:
    with contextlib.ExitStack() as opened:
        context = opened.enter_context(zmq.Context())
        master, worker = (opened.enter_context(context.socket(kind)) for kind in (zmq.ROUTER, zmq.DEALER))
        for end in (master, worker):
            end.linger, end.rcvtimeo, end.maxmsgsize = 0, 1000 * WAIT_SECONDS, 1000
        master.bind(f"tcp://{HERE}:{port}")
        link = opened.enter_context(Link(LINKED, port))
        worker.setsockopt(zmq.ROUTING_ID, b"1")
        worker.connect(f"tcp://{LINKED}:{port}")
        worker.send(b"before")
        assert master.recv_multipart() == [b"1", b"before"]
        link.spoil(out=True)
        assert master.recv_multipart() == [b"1", b"\x93nonsens"]
        while True:  # the connection ends and is made again: what is sent meanwhile may be lost
            worker.send(b"after")
            with contextlib.suppress(zmq.Again):
                master.rcvtimeo = 100
                assert master.recv_multipart() == [b"1", b"after"]
                break


def test_a_port_that_somebody_has_taken_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    monkeypatch.setattr(stage, "_ports", itertools.count(taken, PORTS))
    with socket.create_server(("127.0.0.3", taken + 1)), Stage(tmp_path, {"workers": 2}, patience=1.0) as opened:
        assert opened.port > taken
