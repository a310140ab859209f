"""Hosts made of network namespaces: what they are like to programs, that nothing of them stays, and a run on them."""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from pgczmq.bench.hosts import guard
from pgczmq.bench.hosts.lab import Counters, Direction, Lab
from pgczmq.bench.hosts.link import HEADER_BYTES, Phase, Sample, Transfers, Watch, transfers
from pgczmq.bench.hosts.measure import Row, line_of, measure
from pgczmq.bench.transport.work import Work
from pgczmq.cli.hosts import rates, verdict
from pgczmq.errors import ClusterError, ConfigError

needs_hosts = pytest.mark.skipif(bool(Lab.why_not()), reason=Lab.why_not() or "not skipped")

RATE = 2e8
NBYTES = 3_000_000
SINK = """
import socket
server = socket.create_server(("0.0.0.0", 9000))
print("open", flush=True)
stream, _ = server.accept()
total = 0
while block := stream.recv(65536):
    total += len(block)
print(total, flush=True)
"""
SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], 9000), timeout=20) as stream:
    stream.sendall(bytes(int(sys.argv[2])))
"""
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9000), timeout=float(sys.argv[2]))
except OSError as error:
    print(type(error).__name__)
"""
FIRST_HEARD = """
import select, socket
server = socket.create_server(("0.0.0.0", 9000))
print("open", flush=True)
streams = {server.accept()[0]: "first"}
streams[server.accept()[0]] = "second"
ready, _, _ = select.select(list(streams), [], [])
print(*[streams[one] for one in ready], flush=True)
"""
TWICE = """
import socket, sys
first = socket.create_connection((sys.argv[1], 9000))
print("connected", flush=True)
sys.stdin.readline()
first.sendall(b"1")
second = socket.create_connection((sys.argv[1], 9000))
second.sendall(b"2")
sys.stdin.readline()
"""
OWNER = """
import sys, time
from pgczmq.bench.hosts.lab import Lab
with Lab(["a"], 1e8) as lab:
    lab.popen("a", ["sleep", "1000"])
    print(*lab.namespaces(), flush=True)
    time.sleep(1000)
"""


def start(lab: Lab, host: str, program: str, *argv: str) -> subprocess.Popen[bytes]:
    return lab.popen(host, [sys.executable, "-c", program, *argv], stdout=subprocess.PIPE)


def said(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def links() -> str:
    """Links, addresses and named namespaces of the machine itself."""
    commands = (["ip", "-br", "link"], ["ip", "-br", "address"], ["ip", "netns", "list"])
    return "".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands)


def children() -> Iterator[int]:
    for pid in Path("/proc/self/task").glob("*/children"):
        yield from map(int, pid.read_text().split())


def held_open(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(file.readlink()))
    return found


def nobody_is_in(namespaces: Sequence[str]) -> bool:
    return not list(guard.members(namespaces))


@needs_hosts
class TestLab:
    def test_what_one_host_sends_the_other_gets_and_the_counters_count(self) -> None:
        with Lab(["here", "there"], RATE) as lab:
            sink = start(lab, "there", SINK)
            said(sink)
            before = [lab.counters("here"), lab.counters("there")]
            assert start(lab, "here", SOURCE, lab.address("there"), str(NBYTES)).wait() == 0
            assert said(sink) == str(NBYTES)
            after = [lab.counters("here"), lab.counters("there")]
        sent = after[0].sent_bytes - before[0].sent_bytes
        payload = sent - HEADER_BYTES * (after[0].sent_packets - before[0].sent_packets)
        received = after[1].received_bytes - before[1].received_bytes
        assert abs(payload - NBYTES) < 0.01 * NBYTES
        assert abs(received - sent) < 0.01 * NBYTES

    def test_a_host_that_is_cut_off_hears_nothing_until_it_is_mended(self) -> None:
        with Lab(["here", "there"], RATE) as lab:
            lab.cut("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "0.3")) == "TimeoutError"
            lab.mend("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "60")) == "ConnectionRefusedError"

    @pytest.mark.parametrize("cut", ["to", "from"])
    def test_what_is_lost_in_one_direction_only(self, cut: Direction) -> None:
        other: Direction = "from" if cut == "to" else "to"
        with Lab(["here", "there"], RATE) as lab:
            assert said(start(lab, "here", KNOCK, lab.address("there"), "60")) == "ConnectionRefusedError"
            lab.cut("there", [cut])
            assert said(start(lab, "here", KNOCK, lab.address("there"), "0.3")) == "TimeoutError"
            received = lab.counters("there").received_packets
            said(start(lab, "here", KNOCK, lab.address("there"), "0.3"))
            assert (lab.counters("there").received_packets == received) == (cut == "to")
            lab.cut("there", [other])
            lab.cut("there", [other])
            lab.mend("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "60")) == "ConnectionRefusedError"

    def test_a_connection_that_is_lost_while_a_later_one_is_sound(self) -> None:
        with Lab(["here", "there"], RATE) as lab:
            server = start(lab, "there", FIRST_HEARD)
            said(server)
            client = lab.popen(
                "here",
                [sys.executable, "-c", TWICE, lab.address("there")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert said(client) == "connected"
            lab.lose_connections("here", 9000)
            assert client.stdin is not None
            client.stdin.write(b"go on\n")
            client.stdin.flush()
            assert said(server) == "second"

    def test_an_address_that_goes_and_comes_back(self) -> None:
        with Lab(["here", "there"], RATE) as lab:
            lab.take_address("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "0.3")) in {"TimeoutError", "OSError"}
            lab.give_address("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "60")) == "ConnectionRefusedError"

    def test_a_link_can_be_made_slower_also_while_it_is_cut(self) -> None:
        with Lab(["here", "there"], RATE) as lab:
            lab.cut("there")
            lab.limit("there", 8e6)
            lab.mend("there")
            assert said(start(lab, "here", KNOCK, lab.address("there"), "60")) == "ConnectionRefusedError"
            shown = subprocess.run(
                lab.command("there", ["tc", "qdisc", "show"]), capture_output=True, text=True, check=True
            )
            assert "rate 8Mbit" in shown.stdout

    def test_two_labs_use_the_same_addresses_and_do_not_meet(self) -> None:
        with Lab(["a"], RATE) as one, Lab(["a"], RATE) as other:
            assert one.address("a") == other.address("a")
            sink = start(one, "a", SINK)
            said(sink)
            assert said(start(other, "a", KNOCK, other.address("a"), "60")) == "ConnectionRefusedError"

    def test_nothing_is_left_of_it_and_the_machine_never_saw_it(self) -> None:
        before = links()
        with pytest.raises(KeyboardInterrupt), Lab(["a", "b"], RATE) as lab:
            process = lab.popen("a", ["sh", "-c", "sleep 1000 & sleep 1000"])
            assert links() == before
            namespaces = list(lab.namespaces())
            assert len(namespaces) == 3
            raise KeyboardInterrupt
        assert process.returncode == -signal.SIGKILL
        assert nobody_is_in(namespaces)
        assert links() == before

    def test_nothing_is_left_of_it_when_its_owner_is_killed(self) -> None:
        with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
            namespaces = said(owner).split()
            assert not nobody_is_in(namespaces)
            owner.kill()
        while not nobody_is_in(namespaces):
            os.sched_yield()

    def test_what_cannot_be_made_is_taken_away_again(self) -> None:
        before = set(children())
        with pytest.raises(ConfigError, match="refuses"), Lab(["a"], 0.0):
            pass
        assert set(children()) <= before

    def test_lab_and_guard_keep_the_namespaces_from_being_followed_by_others(self) -> None:
        """Without that, the number of one that is gone soon is another's, and so are the processes to be killed."""
        before = set(children())
        with Lab(["a"], RATE) as lab:
            namespaces = lab.namespaces()
            assert namespaces <= held_open(os.getpid())
            assert [namespaces <= held_open(child) for child in set(children()) - before].count(True) == 1
        assert not namespaces & held_open(os.getpid())

    def test_a_namespace_whose_process_ends_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = tmp_path / "unshare"
        fake.write_text(f"#!/bin/sh\nexec {shutil.which('unshare')} --net head -n 1\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        with pytest.raises(ConfigError, match=r"already gone|refuses"), Lab(["a"], RATE):
            pass


@needs_hosts
class TestBench:
    def test_a_run_of_this_program_moves_what_its_payload_is(self) -> None:
        work = Work(2, 1_000_000)
        row = measure(work, rate=RATE, wire_dtype="float32", steps=2)
        assert row.nbytes == 2 * 1_000_000 * 4
        assert len(row.seconds) == len(row.link) == 2
        assert 0 <= row.again_bytes < row.nbytes
        for step in row.link:
            assert step.out.begin < step.out.end <= step.back.end
            assert 0 < step.out.percent < 100
            assert 0 < step.back.percent < 100

    def test_the_command_prints_and_writes_rows(self, tmp_path: Path) -> None:
        file = tmp_path / "hosts.json"
        argv = ["bench", "hosts", "--workers", "1", "--mbits", "200", "--params", "20000000", "--steps", "1"]
        command = [sys.executable, "-c", "from pgczmq.cli.main import main; main()", *argv, "--json", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = json.loads(file.read_text())["rows"]
        assert [(row["rate"], row["wire_dtype"], row["params"]) for row in rows] == [
            (2e8, "float32", 4_000_000),
            (2e8, "bfloat16", 4_000_000),
        ]
        assert [line.split()[:2] for line in done.stdout.splitlines()[2:4]] == [
            ["200", "float32"],
            ["200", "bfloat16"],
        ]


def sampled(*moves: tuple[int, int]) -> list[Sample]:
    """A sample each 10 ms; what was sent and received between two of them."""
    sums = accumulate(moves, lambda before, moved: (before[0] + moved[0], before[1] + moved[1]), initial=(0, 0))
    return [Sample(number / 100, sent, received) for number, (sent, received) in enumerate(sums)]


class TestTransfers:
    """A link of 8 Mbit/s: 10,000 bytes each 10 ms at most."""

    def test_one_direction_after_the_other_with_a_pause(self) -> None:
        moves = [(0, 0), *[(9_000, 5)] * 10, *[(3, 3)] * 5, *[(6, 9_500)] * 10, (0, 0), (0, 0)]
        found = transfers(sampled(*moves), 0.011, 0.275, 90_000, 8e6)
        assert found.out.percent == pytest.approx(99 * 0.9)
        assert found.out.begin == pytest.approx(-0.001)
        assert found.out.end == pytest.approx(0.099)
        assert found.back.percent == pytest.approx(99 * 0.9)
        assert found.idle_seconds == pytest.approx(0.05)
        assert found.percent == pytest.approx((10 * 90 + 10 * 95) / 25, rel=1e-3)

    def test_directions_that_overlap_count_by_themselves(self) -> None:
        found = transfers(
            sampled(*[(9_000, 0)] * 5, *[(9_000, 6_000)] * 5, *[(0, 6_000)] * 10, (0, 0)), 0, 0.205, 90_000, 8e6
        )
        assert found.out.percent == pytest.approx(99 * 0.9)
        assert found.back.percent == pytest.approx(99 * 0.6)
        assert found.percent == pytest.approx((10 * 90 + 10 * 60) / 20), "a link 60 % full both ways is 60 % full"

    def test_the_last_segments_of_a_late_stream_are_not_waited_for(self) -> None:
        found = transfers(
            sampled(*[(9_950, 0)] * 10, *[(0, 0)] * 10, (500, 0), *[(0, 9_950)] * 10, (0, 0)), 0, 0.315, 99_500, 8e6
        )
        assert found.out.end == pytest.approx(0.1)
        assert found.out.percent == pytest.approx(99 * 0.995)

    def test_what_is_sent_twice_takes_time_and_counts_once(self) -> None:
        moves = [*[(10_000, 0)] * 20, *[(0, 10_000)] * 10, (0, 0)]
        found = transfers(sampled(*moves), 0.0, 0.305, 100_000, 8e6)
        assert found.out.percent == pytest.approx(99 / 2)
        assert found.back.percent == pytest.approx(99)

    def test_what_belongs_to_the_steps_before_and_after_is_no_part_of_this_one(self) -> None:
        moves = [(0, 9_000), *[(10_000, 0)] * 10, *[(0, 10_000)] * 10, (10_000, 0)]
        found = transfers(sampled(*moves), 0.009, 0.215, 100_000, 8e6)
        assert found.back.begin == pytest.approx(0.101)
        assert found.out.end == pytest.approx(0.101)


@pytest.mark.parametrize(("percent", "missed"), [(94.0, False), (92.9, True)])
def test_a_link_is_judged_by_its_fuller_direction(percent: float, missed: bool) -> None:
    step = Transfers(Phase(0, 1, 60.0), Phase(1, 2, 99.0), percent, 0)
    row = Row(1e9, "float32", 1, 1, 4, (2.0,), (step,), 0)
    assert row.percent == percent
    assert (": too little;" in verdict(row)) == missed


class Unplugged(Lab):
    """Its counters cannot be read."""

    def __init__(self) -> None:
        super().__init__(["a"], RATE)
        self.gone = threading.Event()

    def counters(self, host: str) -> Counters:
        self.gone.set()
        raise FileNotFoundError(host)


def test_counters_that_go_are_told_at_the_end() -> None:
    lab = Unplugged()
    with pytest.raises(ClusterError, match="counters of a "), Watch(lab, "a"):
        lab.gone.wait()


def test_counters_that_go_hide_no_other_error() -> None:
    lab = Unplugged()
    with pytest.raises(KeyboardInterrupt), Watch(lab, "a"):
        lab.gone.wait()
        raise KeyboardInterrupt


@pytest.fixture
def silent() -> Iterator[subprocess.Popen[bytes]]:
    """A master that says nothing."""
    with subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE) as master:
        yield master
        master.kill()


class TestLineOf:
    def test_a_master_that_is_stuck_is_not_waited_for(self, silent: subprocess.Popen[bytes]) -> None:
        with pytest.raises(ClusterError, match="stuck"):
            line_of(silent, [], time.monotonic())

    def test_without_a_worker_the_master_is_not_waited_for(self, silent: subprocess.Popen[bytes]) -> None:
        with subprocess.Popen(["true"]) as well, subprocess.Popen(["false"]) as failed:
            pass
        with pytest.raises(ClusterError, match="worker 1 "):
            line_of(silent, [well, failed], math.inf)

    def test_a_master_that_ends_says_nothing_more(self) -> None:
        with subprocess.Popen(["echo", "open"], stdout=subprocess.PIPE) as master:
            assert line_of(master, [], math.inf) == b"open\n"
            with pytest.raises(ClusterError, match="ended before"):
                line_of(master, [], math.inf)


def test_a_step_that_is_too_short_to_be_seen() -> None:
    with pytest.raises(ConfigError, match="More parameters"):
        transfers(sampled(*[(10_000, 0)] * 3, *[(0, 10_000)] * 3), 0.0, 0.06, 30_000, 8e6)


def test_the_guard_spares_the_namespace_where_it_is_itself() -> None:
    own = guard.namespace_of(os.getpid())
    assert own is not None
    assert not list(guard.members({own}))


def test_a_process_that_is_dead_but_not_waited_for_is_in_no_namespace() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert guard.namespace_of(process.pid) is None


def test_where_there_can_be_no_hosts_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"not possible here: .*(iproute2|Linux)"), Lab(["a"], RATE):
        pass


@pytest.mark.parametrize("given", ["", "fast", "1000,", "0.5"])
def test_rates_that_are_none(given: str) -> None:
    with pytest.raises(ConfigError, match="--mbits"):
        rates(given)
