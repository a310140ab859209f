"""examples/clusters/launch-ssh with a real sshd, on addresses of this machine that stand for hosts."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_site import CLUSTERS, SOAK, Site, settings
from conftest import BIN

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
PRIVILEGE_SEPARATION = Path("/run/sshd")
HOSTS = {"vm-0": "127.0.0.2", "vm-1": "127.0.0.3", "vm-2": "127.0.0.4"}


def why_not() -> str:
    """Why there can be no sshd here, "" when there can."""
    if SSHD is None or shutil.which("ssh") is None:
        return "needs ssh and sshd (package openssh-server)"
    if os.geteuid() == 0 and not PRIVILEGE_SEPARATION.is_dir():
        return f"sshd of root needs the directory {PRIVILEGE_SEPARATION}, which its service makes"
    return ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "not skipped")


class Hosts(Site):
    """Hosts with an sshd, keys for their workers, and launchers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        (directory / "ssh").mkdir()
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "ssh" / name)], check=True
            )
        self._sshd()
        self.connect = directory / "ssh" / "config"
        self.connect.write_text(
            f"Host *\n  Port {self.port + 4}\n  IdentityFile {directory}/ssh/user\n  IdentitiesOnly yes\n"
            f"  StrictHostKeyChecking no\n  UserKnownHostsFile {directory}/ssh/known\n  LogLevel ERROR\n"
            + "".join(
                f"Host {name}\n  HostName {address}\n" for name, address in (HOSTS | {"gone": "127.0.0.9"}).items()
            )
        )
        named = [word for name in HOSTS for word in ("--worker", name)]
        made = self.start("keygen", ["pgc", "keygen", "--master", f"tcp://127.0.0.1:{self.port}", *named])
        assert self.end_of(made, "keygen") == 0

    def _sshd(self) -> None:
        ssh = self.directory / "ssh"
        port = self.port + 4
        (ssh / "sshd_config").write_text(
            "".join(f"ListenAddress {address}:{port}\n" for address in HOSTS.values())
            + f"HostKey {ssh}/host\nAuthorizedKeysFile {ssh}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
            # The workers' copies of keys are made where this test sees them.
            + f"SetEnv TMPDIR={self.directory}/there\nPermitRootLogin yes\n"
        )
        (self.directory / "there").mkdir()
        assert SSHD is not None
        self.start("sshd", [SSHD, "-D", "-e", "-f", str(ssh / "sshd_config")])
        self.until(lambda: self.log("sshd").count("listening") == len(HOSTS))

    def master(self, *more: str) -> "subprocess.Popen[bytes]":
        options = settings(*SOAK, "workers=3", "name=run", "net.security=curve", f"net.port={self.port}", *more)
        return self.start("master", ["pgc-master", *options])

    def launch(self, *words: str, program: str = str(BIN / "pgc-worker")) -> "subprocess.Popen[bytes]":
        return self.start("launched", [str(CLUSTERS / "launch-ssh"), "-F", str(self.connect), "-w", program, *words])

    def nothing_is_left(self) -> bool:
        """No worker, and no copy of a key."""
        here = f"{self.directory}/there".encode()
        lives = [file for file in Path("/proc").glob("[0-9]*/environ") if here in _read(file)]
        return not lives and not list((self.directory / "there").iterdir())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    hosts.close()


def test_a_whole_run_with_a_key_for_each_host_of_which_nothing_stays_there(hosts: Hosts) -> None:
    master = hosts.master("steps=30")
    launched = hosts.launch(*HOSTS)
    assert hosts.end_of(launched, "launched") == 0, hosts.log("launched")
    assert hosts.end_of(master, "master") == 0
    assert all(f"let in the key of {name} " in hosts.log("master") for name in HOSTS)
    for number, name in enumerate(HOSTS):
        assert f"launch-ssh: worker {number} on {name} ended with exit code 0\n" in hosts.log("launched")
    hosts.until(hosts.nothing_is_left)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, 137)])
def test_however_the_launcher_ends_its_workers_end_too(number: signal.Signals, code: int, hosts: Hosts) -> None:
    hosts.master("steps=1000000")
    launched = hosts.launch(*HOSTS)
    hosts.until(lambda: hosts.steps("run") > 20)
    assert not hosts.nothing_is_left()
    if number == signal.SIGINT:
        os.killpg(launched.pid, number)  # as a terminal does
    else:
        launched.send_signal(number)
    assert hosts.end_of(launched, "launched") == code
    hosts.until(hosts.nothing_is_left)
    if number != signal.SIGKILL:
        assert hosts.log("launched").count("the run is over: signal SIGTERM") == len(HOSTS)
        assert hosts.log("launched").count("ended with exit code 143") == len(HOSTS)


def test_the_worst_exit_code_is_the_launchers(hosts: Hosts) -> None:
    program = hosts.directory / "program"
    program.write_text('#!/bin/sh\necho "$@" in "$PGC_MASTER"\nexit "$2"\n')
    program.chmod(0o755)
    address = ("-m", "tcp://10.0.0.5:5555")
    launched = hosts.launch(*address, *["vm-0"] * 3, "--", "--allow", 'it\'s: a "$(b)"', program=str(program))
    assert hosts.end_of(launched, "launched") == 2
    assert '2 vm-0: --id 2 --allow it\'s: a "$(b)" in tcp://10.0.0.5:5555\n' in hosts.log("launched")
    launched = hosts.launch(*address, "-k", "nowhere", "gone", "vm-1", program=str(program))
    assert hosts.end_of(launched, "launched") == 255
    assert "worker 1 on vm-1 ended with exit code 1\n" in hosts.log("launched")


def test_a_host_without_a_key_is_named_before_anything_starts(hosts: Hosts) -> None:
    assert hosts.end_of(hosts.launch("vm-0", "vm-9"), "launched") == 2
    assert "there is no key for vm-9 in pgc-keys" in hosts.log("launched")
    assert json.loads((hosts.directory / "pgc-keys" / "vm-0" / "pgc-connect.json").read_text())["name"] == "vm-0"
    assert "worker number" not in hosts.log("launched")
