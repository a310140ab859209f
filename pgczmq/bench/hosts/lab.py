"""Hosts made of network namespaces, on a bridge, each behind a link of limited rate.

Nothing of it is in the namespace that the machine itself uses: the bridge has one of its own, so addresses, names and
packet filters of the machine and of other labs neither see it nor stand in its way. No namespace has a name; each
lives as long as its processes, and a guard ends those when the lab is closed or its owner killed.

    host                                      switch
    eth0  --token bucket-->                   port0 \
          <--token bucket--                          bridge       void -- nowhere
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from pgczmq.bench.hosts import guard
from pgczmq.errors import ConfigError

MTU = 1500
BURST_SECONDS = 0.002
"""What a bucket holds, in seconds at full rate: timers come late on a busy machine, and what does not fit is lost."""
BURST_BYTES_AT_LEAST = 16 * 1024
QUEUE_SECONDS = 0.05
"""How long a packet waits at most in front of a bucket; a full queue drops."""
TOOLS = ("ip", "tc", "ss", "nsenter", "unshare")
_EVERYTHING = "protocol all u32 match u32 0 0"

Direction = Literal["to", "from"]
"""Of packets, as a host sees it: those that go to it, or come from it."""
BOTH: tuple[Direction, ...] = ("to", "from")

_SWITCH = ""


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted at a host's link, without what it has dropped.

    Several segments that travel as one packet count as one, with one header.
    """

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int


class Lab:
    """So many hosts, from ``with`` until its end.

    Args:
        hosts: their names.
        rate: of each link, bits a second, in each direction; Ethernet frames without checksums and gaps count.

    Raises:
        ConfigError: at the start, when this machine does not allow it; ``why_not`` says so before.
    """

    def __init__(self, hosts: Sequence[str], rate: float) -> None:
        self._rates = dict.fromkeys(hosts, rate)
        self._unreached: set[str] = set()  # hosts to which nothing comes through
        self._filtered: set[str] = set()  # and those from which something does not
        self._hosts = tuple(hosts)
        self._children: list[subprocess.Popen[bytes]] = []  # to be waited for
        self._holders: dict[str, int] = {}  # the process that keeps a host's namespace, or the switch's
        self._namespaces: dict[str, int] = {}  # and the open file that keeps each, see ``guard``

    @staticmethod
    def why_not() -> str:
        """Why there can be no lab here, as a sentence; "" when there can."""
        if not sys.platform.startswith("linux"):
            return "Network namespaces are a thing of Linux."
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            return f"This needs {', '.join(missing)} (packages iproute2 and util-linux)."
        if os.geteuid() != 0:
            return "Only root may make network namespaces."
        return _tried()

    def __enter__(self) -> "Lab":
        """Make namespaces, links and buckets."""
        reason = self.why_not()
        if reason:
            raise ConfigError(f"several hosts on one machine are not possible here: {reason}")
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes of the hosts; the kernel takes the rest away."""
        self._close()

    # ------------------------------------------------------------ use

    def address(self, host: str) -> str:
        """Under which the other hosts reach this one."""
        number = self._hosts.index(host) + 1
        return f"10.77.{number // 256}.{number % 256}"

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """What to run, so that ``argv`` runs on this host, as the same process; the lab's end kills it."""
        return ["nsenter", f"--net=/proc/{self._holders[host]}/ns/net", *argv]

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdin: IO[bytes] | int | None = None,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process on this host; Ctrl+C does not reach it, the end of the lab does."""
        process = subprocess.Popen(
            self.command(host, argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self._children.append(process)
        return process

    def cut(self, host: str, directions: Sequence[Direction] = BOTH) -> None:
        """From now on every packet to this host, from it, or both, is lost; nobody is told."""
        port = self._port(host)
        if "to" in directions:
            self._unreached.add(host)
            self._traffic(_SWITCH, [f"qdisc replace dev {port} root blackhole"])
        if "from" in directions:
            self._lose(host, [_EVERYTHING])

    def lose_connections(self, host: str, port: int) -> None:
        """What this host sends over its connections to this port elsewhere is lost; those made later are sound."""
        asked = self.command(host, ["ss", "--no-header", "--tcp", "--numeric", "dst", f":{port}"])
        shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        own = [line.split()[3].rpartition(":")[2] for line in shown.splitlines()]
        self._lose(host, [f"protocol ip u32 match ip sport {number} 0xffff" for number in own])

    def mend(self, host: str) -> None:
        """Undo ``cut`` and ``lose_connections``."""
        port = self._port(host)
        self._unreached.discard(host)
        self._traffic(_SWITCH, [_bucket(port, self._rates[host])])
        if host in self._filtered:
            self._filtered.remove(host)
            self._traffic(_SWITCH, [f"qdisc del dev {port} ingress"])

    def limit(self, host: str, rate: float) -> None:
        """From now on the host's link carries so many bits a second, in each direction, unless it is cut."""
        self._rates[host] = rate
        self._traffic(host, [_bucket("eth0", rate)])
        if host not in self._unreached:
            self._traffic(_SWITCH, [_bucket(self._port(host), rate)])

    def take_address(self, host: str) -> None:
        """From now on nobody has this host's address; its programs are not told."""
        _configure(self.command(host, ["ip"]), [f"address del {self.address(host)}/16 dev eth0"])

    def give_address(self, host: str) -> None:
        """Undo ``take_address``."""
        _configure(self.command(host, ["ip"]), [f"address add {self.address(host)}/16 dev eth0"])

    def counters(self, host: str) -> Counters:
        """What has passed this host's end of its link since the lab was opened."""
        _, _, line = Path(f"/proc/{self._holders[host]}/net/dev").read_text(encoding="utf-8").partition("eth0:")
        figures = [int(word) for word in line.split()[:10]]
        return Counters(figures[8], figures[9], figures[0], figures[1])

    def namespaces(self) -> frozenset[str]:
        """The lab's network namespaces, as the kernel calls them, the switch's included."""
        return frozenset(self._namespaces)

    # ------------------------------------------------------------ making and ending it

    def _open(self) -> None:
        for name in (_SWITCH, *self._hosts):
            self._holders[name] = self._hold()
        self._children.append(_start_guard(list(self._namespaces.values())))
        lines = ["link add bridge type bridge", "link set bridge up", "link add void type veth peer name nowhere"]
        lines += [f"link set {end} addrgenmode none up" for end in ("void", "nowhere")]
        _configure(self.command(_SWITCH, ["ip"]), lines)
        for host in self._hosts:
            self._connect(host)

    def _hold(self) -> int:
        """Make a namespace; it has a process that ends when this one does."""
        holder = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._children.append(holder)
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.write(b"made\n")
        holder.stdin.flush()
        if not holder.stdout.readline():
            raise ConfigError("unshare makes no network namespace; what it said is above.")
        try:
            pin = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY)
        except OSError as error:
            raise ConfigError("the process that is to keep a network namespace is already gone.") from error
        self._namespaces[guard.namespace_at(pin)] = pin
        return holder.pid

    def _connect(self, host: str) -> None:
        port, peer = self._port(host), self._holders[host]
        at_switch = [f"link add {port} type veth peer name eth0 netns {peer}"]
        at_switch += [f"link set {port} mtu {MTU} master bridge up"]
        _configure(self.command(_SWITCH, ["ip"]), at_switch)
        at_host = ["link set lo up", f"link set eth0 mtu {MTU} addrgenmode none"]
        at_host += [f"address add {self.address(host)}/16 dev eth0", "link set eth0 up"]
        _configure(self.command(host, ["ip"]), at_host)
        self.limit(host, self._rates[host])

    def _lose(self, host: str, patterns: Sequence[str]) -> None:
        """What comes from a host and is like one of these goes nowhere."""
        port = self._port(host)
        lines = [] if host in self._filtered else [f"qdisc add dev {port} ingress"]
        self._filtered.add(host)
        self._traffic(_SWITCH, [*lines, *(_to_void(port, pattern, "void") for pattern in patterns)])

    def _traffic(self, host: str, lines: Sequence[str]) -> None:
        _configure(self.command(host, ["tc"]), lines)

    def _port(self, host: str) -> str:
        return f"port{self._hosts.index(host)}"

    def _close(self) -> None:
        guard.end_all(self._namespaces)
        for child in self._children:
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # it had not read everything
                        stream.close()
            child.wait()
        for pin in self._namespaces.values():
            os.close(pin)


def _start_guard(pins: Collection[int]) -> subprocess.Popen[bytes]:
    command = [sys.executable, guard.__file__, *map(str, pins)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=pins, start_new_session=True)


def _bucket(device: str, rate: float) -> str:
    burst = max(BURST_BYTES_AT_LEAST, int(rate / 8 * BURST_SECONDS))
    return f"qdisc replace dev {device} root tbf rate {rate:.0f}bit burst {burst} latency {QUEUE_SECONDS * 1000:g}ms"


def _to_void(device: str, pattern: str, void: str) -> str:
    return f"filter add dev {device} ingress {pattern} action mirred egress redirect dev {void}"


def _configure(command: Sequence[str], lines: Sequence[str]) -> None:
    """Have ip or tc carry these out.

    Raises:
        ConfigError: it would not.
    """
    text = "\n".join(lines) + "\n"
    done = subprocess.run([*command, "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(f"{' '.join(command)} refuses {text.strip()!r}: {done.stderr.strip()}")


@cache
def _tried() -> str:
    """Make everything that a lab is made of, once, in a namespace that is gone afterwards."""
    lines = ["ip link add bridge type bridge", "ip link add port0 type veth peer name eth0"]
    lines += [f"tc {_bucket('port0', 1e9)}", "tc qdisc replace dev eth0 root blackhole"]
    lines += ["tc qdisc add dev port0 ingress", f"tc {_to_void('port0', _EVERYTHING, 'eth0')}"]
    trial = ["unshare", "--net", "sh", "-c", " && ".join(lines)]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"This machine does not allow it: {done.stderr.strip()}."
