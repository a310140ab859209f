"""Hosts made of network namespaces: what they are like to programs, that nothing of them stays, and a run on them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from pgczmq.bench.hosts import guard
from pgczmq.bench.hosts.lab import Lab
from pgczmq.bench.hosts.link import HEADER_BYTES, Sample, transfers
from pgczmq.bench.hosts.measure import measure
from pgczmq.bench.transport.work import Work
from pgczmq.cli.hosts import rates
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


def every_namespace() -> Iterator[str]:
    """Those of this process's children."""
    for pid in Path("/proc/self/task").glob("*/children"):
        yield from (guard.namespace_of(int(child)) for child in pid.read_text().split())


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
        before = set(every_namespace())
        with pytest.raises(ConfigError, match="refuses"), Lab(["a"], 0.0):
            pass
        assert set(every_namespace()) <= before


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
            assert 0 < step.percent < 200

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
        assert found.out.percent == pytest.approx(90)
        assert found.out.begin == pytest.approx(-0.001)
        assert found.out.end == pytest.approx(0.099)
        assert found.back.percent == pytest.approx(90)  # the last of its samples has less than the others
        assert found.idle_seconds == pytest.approx(0.05)
        assert found.percent == pytest.approx(90)

    def test_directions_that_overlap_carry_more_than_a_link(self) -> None:
        found = transfers(sampled(*[(9_000, 9_000)] * 10, (0, 0)), 0.0, 0.105, 90_000, 8e6)
        assert found.percent == pytest.approx(180)

    def test_what_is_sent_twice_takes_time_and_counts_once(self) -> None:
        moves = [*[(10_000, 0)] * 20, *[(0, 10_000)] * 10, (0, 0)]
        found = transfers(sampled(*moves), 0.0, 0.305, 100_000, 8e6)
        assert found.percent == pytest.approx(100 * 2 / 3)

    def test_the_end_of_the_step_before_is_not_a_beginning(self) -> None:
        moves = [(0, 9_000), *[(10_000, 0)] * 10, *[(0, 10_000)] * 10, (0, 0)]
        found = transfers(sampled(*moves), 0.009, 0.215, 100_000, 8e6)
        assert found.back.begin == pytest.approx(0.101)


def test_a_step_that_is_too_short_to_be_seen() -> None:
    with pytest.raises(ClusterError, match="More parameters"):
        transfers(sampled(*[(10_000, 0)] * 3, *[(0, 10_000)] * 3), 0.0, 0.06, 30_000, 8e6)


def test_the_guard_spares_the_namespace_where_it_is_itself() -> None:
    assert not list(guard.members({guard.namespace_of(os.getpid())}))


def test_where_there_can_be_no_hosts_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"not possible here: .*(iproute2|Linux)"), Lab(["a"], RATE):
        pass


@pytest.mark.parametrize("given", ["", "fast", "1000,", "0.5"])
def test_rates_that_are_none(given: str) -> None:
    with pytest.raises(ConfigError, match="--mbits"):
        rates(given)
