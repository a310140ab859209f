"""What ``pgc doctor`` says about keys."""

import socket

import pytest

from pgczmq.app import keygen
from pgczmq.app.doctor import way_to, who_may_join, workers_key
from pgczmq.app.keyfiles import ALLOWED_FILE, CONNECTION_FILE, MASTER_FILE
from pgczmq.app.keys import read_connection, server
from pgczmq.config import load
from pgczmq.net.auth import PLAIN
from pgczmq.net.sockets import Sockets


@pytest.fixture
def made(tmp_path):
    keygen.make(tmp_path / "keys", "tcp://10.0.0.5:5555", ["vm-1", "vm-2"])
    return tmp_path / "keys"


def joined(**net):
    return who_may_join(load(settings=[f"net.{key}={value}" for key, value in net.items()], environment={}))


def test_who_may_join_a_run(made):
    assert joined().verdict == "ok" and "whoever is on this machine" in joined().text
    unsafe = joined(bind="0.0.0.0", security="insecure")
    assert unsafe.verdict == "warning" and "whoever reaches 0.0.0.0" in unsafe.text
    keyed = joined(bind="0.0.0.0", keys=made)
    assert keyed.verdict == "ok" and "2 keys on the list" in keyed.text and "vm-1, vm-2" in keyed.text
    (made / ALLOWED_FILE).write_text("")
    assert joined(bind="0.0.0.0", keys=made).verdict == "warning"
    (made / MASTER_FILE).chmod(0o644)
    open_to_all = joined(bind="0.0.0.0", keys=made)
    assert open_to_all.verdict == "problem" and "chmod 600" in open_to_all.text
    assert joined(bind="0.0.0.0", keys=made / "nowhere").verdict == "problem"


def test_the_key_that_a_worker_has_here(made, tmp_path, monkeypatch):
    monkeypatch.delenv("PGC_CONNECT", raising=False)
    monkeypatch.chdir(tmp_path)
    security, check = workers_key()
    assert (security, check.verdict) == (PLAIN, "ok")
    monkeypatch.chdir(made / "vm-1")
    security, check = workers_key()
    assert check.verdict == "ok" and "tcp://10.0.0.5:5555" in check.text
    assert security == read_connection(made / "vm-1" / CONNECTION_FILE).security
    (made / "vm-1" / CONNECTION_FILE).chmod(0o640)
    security, check = workers_key()
    assert (security, check.verdict) == (PLAIN, "problem") and "chmod 600" in check.text


@pytest.mark.parametrize(("who", "text"), [("nobody", "wants a key"), ("unlisted", "does not know this worker's key")])
def test_a_master_that_lets_nobody_in_says_so(made, who, text):
    security = PLAIN if who == "nobody" else read_connection(made / "vm-1" / CONNECTION_FILE).security
    (made / ALLOWED_FILE).write_text("")
    with Sockets(security=server(made)) as sockets:
        _, port = sockets.control_router("127.0.0.1", 0)
        checks = list(way_to(f"tcp://127.0.0.1:{port}", security, {}))
    assert [check.verdict for check in checks] == ["ok", "ok", "problem"]
    assert text in checks[-1].text


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        checks = list(way_to(f"tcp://127.0.0.1:{taken.getsockname()[1]}", PLAIN, {}))
    assert [check.verdict for check in checks] == ["ok", "problem"]
