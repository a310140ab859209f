"""Key files: made for their owner's eyes alone, read only as such, and followed while a run goes on."""

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from pgczmq.app import keygen, keys
from pgczmq.app.keyfiles import ALLOWED_FILE, CONNECTION_FILE, MASTER_FILE
from pgczmq.app.keys import AllowList, Connection, access_of, access_of_local, connection
from pgczmq.app.worker import way_to_master
from pgczmq.config import load
from pgczmq.errors import ConfigError
from pgczmq.net.auth import PLAIN, CurveClient, CurveServer, new_pair, public_of

MASTER = "tcp://10.0.0.5:5555"


@pytest.fixture
def made(tmp_path):
    """A directory of keys with two workers of their own."""
    keygen.make(tmp_path / "keys", MASTER, ["vm-1", "vm-2"])
    return tmp_path / "keys"


def run_config(**net):
    return load(settings=[f"net.{key}={value}" for key, value in net.items()], environment={})


# ---------------------------------------------------------------- making them


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_a_key(tmp_path, umask):
    before = os.umask(umask)
    try:
        keygen.make(tmp_path / "keys", MASTER, [])
        keygen.add(tmp_path / "keys", "vm-1")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").rglob("*")
    }
    assert modes == {
        "keys/master.json": 0o600,
        "keys/workers.allow": 0o600,
        "keys/pgc-connect.json": 0o600,
        "keys/vm-1": 0o700,
        "keys/vm-1/pgc-connect.json": 0o600,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_a_key_file_is_private_from_its_first_moment(tmp_path, monkeypatch):
    seen = []
    opened = os.open

    def watching(path, flags, mode=0o777, **rest):
        descriptor = opened(path, flags, mode, **rest)
        seen.append((Path(path).name, stat.S_IMODE(os.fstat(descriptor).st_mode), bool(flags & os.O_EXCL)))
        return descriptor

    monkeypatch.setattr(os, "open", watching)
    before = os.umask(0)
    try:
        keygen.make(tmp_path / "keys", MASTER, [])
    finally:
        os.umask(before)
    secret = [entry for entry in seen if entry[0].endswith(".json")]
    assert secret == [("master.json", 0o600, True), ("pgc-connect.json", 0o600, True)]


def test_keys_are_never_overwritten(made):
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"keys are never overwritten: .*keys is there already"):
        keygen.make(made, MASTER, [])
    with pytest.raises(ConfigError, match=r"vm-1 is on the list .*workers.allow already"):
        keygen.add(made, "vm-1")
    text = (made / ALLOWED_FILE).read_text().splitlines()
    (made / ALLOWED_FILE).write_text("\n".join(line for line in text if not line.startswith("vm-1")))
    with pytest.raises(ConfigError, match=r"keys are never overwritten: .*vm-1 is there already"):
        keygen.add(made, "vm-1")
    before.pop(made / ALLOWED_FILE)
    assert {path: path.read_bytes() for path in before} == before


def test_what_cannot_be_made_leaves_nothing_behind(tmp_path):
    with pytest.raises(ConfigError, match=r"a worker's name is .*: got 'vm 2'"):
        keygen.make(tmp_path / "keys", MASTER, ["vm-1", "vm 2"])
    with pytest.raises(ConfigError, match="every worker has a name of its own"):
        keygen.make(tmp_path / "keys", MASTER, ["vm-1", "vm-1"])
    with pytest.raises(ConfigError, match=r"a worker's name is .*: got 'master.json'"):
        keygen.make(tmp_path / "keys", MASTER, ["master.json"])
    with pytest.raises(ConfigError, match=r"cannot write .*: No such file or directory"):
        keygen.make(tmp_path / "no" / "keys", MASTER, [])
    with pytest.raises(ConfigError, match="Make the master's keys first"):
        keygen.add(tmp_path / "keys", "vm-1")
    assert list(tmp_path.iterdir()) == []


def test_a_line_is_added_to_a_list_that_was_edited_by_hand(made):
    (made / ALLOWED_FILE).write_text("# no newline at the end")
    keygen.add(made, "vm-3")
    assert [line.split()[0] for line in (made / ALLOWED_FILE).read_text().splitlines()] == ["#", "vm-3"]


# ---------------------------------------------------------------- what a run uses


def test_every_worker_has_the_masters_key_and_one_of_its_own_on_the_list(made):
    server = keys.server(made)
    named = {}
    for name in ("vm-1", "vm-2"):
        said = keys.read_connection(made / name / CONNECTION_FILE)
        assert said.master == MASTER
        assert isinstance(said.security, CurveClient)
        assert said.security.server == public_of(server.secret)
        named[name] = server.name_of(public_of(said.security.secret))
    assert named == {"vm-1": "vm-1", "vm-2": "vm-2"}
    assert server.name_of(new_pair()[0]) is None


def test_all_workers_may_share_a_key(tmp_path):
    assert keygen.make(tmp_path / "keys", MASTER, []) == [tmp_path / "keys" / CONNECTION_FILE]
    shared = keys.read_connection(tmp_path / "keys" / CONNECTION_FILE).security
    assert keys.server(tmp_path / "keys").name_of(public_of(shared.secret)) == "shared"


@pytest.mark.parametrize(
    ("bind", "security", "secured"),
    [
        ("127.0.0.1", "auto", False),
        ("::1", "auto", False),
        ("127.0.0.1", "curve", True),
        ("127.0.0.1", "insecure", False),
        ("0.0.0.0", "auto", True),
        ("10.0.0.5", "auto", True),
        ("::", "auto", True),
        ("0.0.0.0", "curve", True),
        ("0.0.0.0", "insecure", False),
    ],
)
def test_other_addresses_than_this_machines_need_keys(made, tmp_path, bind, security, secured):
    access = access_of(run_config(bind=bind, security=security, keys=made))
    assert isinstance(access.master, CurveServer) == secured
    if secured:
        with pytest.raises(ConfigError, match=r"Make keys with pgc keygen --master tcp://.*--insecure.*SSH tunnel"):
            access_of(run_config(bind=bind, security=security, keys=tmp_path / "none"))


def test_an_address_to_listen_on_is_numeric():
    with pytest.raises(ConfigError, match=r"net.bind is the numeric address to listen on.*got 'localhost'"):
        access_of(run_config(bind="localhost"))


def test_a_local_run_makes_its_own_keys_and_keeps_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert access_of_local(run_config(bind="0.0.0.0")).master == PLAIN
    access = access_of_local(run_config(security="curve"))
    other = access_of_local(run_config(security="curve"))
    assert access.master.name_of(public_of(access.local.secret)) == "this machine"
    assert access.local.server == public_of(access.master.secret)
    assert other.master.name_of(public_of(access.local.secret)) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o620])
def test_a_key_that_others_can_read_or_write_is_refused(made, mode):
    for file in (made / MASTER_FILE, made / "vm-1" / CONNECTION_FILE):
        file.chmod(mode)
    with pytest.raises(ConfigError, match=f"but others can read or write it. Run: chmod 600 {made / MASTER_FILE}"):
        keys.server(made)
    with pytest.raises(ConfigError, match=r"chmod 600 .*pgc-connect.json"):
        keys.read_connection(made / "vm-1" / CONNECTION_FILE)
    for file in (made / MASTER_FILE, made / "vm-1" / CONNECTION_FILE):
        file.chmod(0o400)
    assert isinstance(keys.server(made), CurveServer)
    assert isinstance(keys.read_connection(made / "vm-1" / CONNECTION_FILE).security, CurveClient)


def test_a_list_that_others_can_write_is_refused(made):
    (made / ALLOWED_FILE).chmod(0o644)
    keys.server(made)
    (made / ALLOWED_FILE).chmod(0o664)
    with pytest.raises(ConfigError, match=r"only you may decide who joins.*chmod 600"):
        keys.server(made)


@pytest.mark.parametrize("line", ["vm-3", "vm-3 short", "vm-3 secret secret", "vm/3 " + "a" * 40, "vm-3 " + "~" * 40])
def test_a_line_that_is_no_key_is_named_by_its_number_and_not_shown(made, line):
    with (made / ALLOWED_FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match="see line 4") as info:
        keys.server(made)
    assert line.split()[-1] not in str(info.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"secret_key": "ab"}', '{"secret_key": 5}', "\xff\xfe"])
def test_a_key_file_that_is_damaged_is_a_sentence(made, text):
    (made / MASTER_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"master\.json (has no secret_key|must hold|is not text)") as info:
        keys.server(made)
    assert "\n" not in str(info.value)


def test_an_error_about_a_key_does_not_show_it(made):
    table = json.loads((made / MASTER_FILE).read_text())
    (made / MASTER_FILE).write_text(json.dumps(table | {"secret_key": table["secret_key"] + "x"}))
    with pytest.raises(ConfigError) as info:
        keys.server(made)
    assert table["secret_key"] not in str(info.value)


# ---------------------------------------------------------------- the list while a run goes on


def test_the_list_is_followed(made, caplog):
    caplog.set_level(logging.INFO)
    allowed = AllowList(made / ALLOWED_FILE)
    first, second = (public_of(keys.read_connection(made / name / CONNECTION_FILE).security.secret) for name in NAMES)
    assert [allowed.name_of(first), allowed.name_of(second)] == ["vm-1", "vm-2"]
    lines = (made / ALLOWED_FILE).read_text().splitlines()
    (made / ALLOWED_FILE).write_text("\n".join(line for line in lines if not line.startswith("vm-1")))
    assert [allowed.name_of(first), allowed.name_of(second)] == [None, "vm-2"]
    third = public_of(keys.read_connection(keygen.add(made, "vm-3")).security.secret)
    assert [allowed.name_of(key) for key in (first, second, third)] == [None, "vm-2", "vm-3"]
    assert [record.getMessage().split(": ")[-1] for record in caplog.records] == [
        "1 keys may join from now on",
        "2 keys may join from now on",
    ]


NAMES = ("vm-1", "vm-2")


def test_a_list_that_is_broken_while_a_run_goes_on_stays_as_it_was(made, caplog):
    allowed = AllowList(made / ALLOWED_FILE)
    first = public_of(keys.read_connection(made / "vm-1" / CONNECTION_FILE).security.secret)
    (made / ALLOWED_FILE).write_text("half a li")
    assert [allowed.name_of(first), allowed.name_of(first)] == ["vm-1", "vm-1"]
    (made / ALLOWED_FILE).unlink()
    assert allowed.name_of(first) == "vm-1"
    assert len([record for record in caplog.records if "stays as it was" in record.getMessage()]) == 2


# ---------------------------------------------------------------- a worker's way


def test_keys_are_those_of_the_connection_file_whatever_the_address(made, tmp_path):
    file = made / "vm-1" / CONNECTION_FILE
    said = keys.read_connection(file)
    assert way_to_master(None, {"PGC_CONNECT": str(file)}, tmp_path) == said
    assert way_to_master(None, {}, made / "vm-1") == said
    assert way_to_master("tcp://1.2.3.4:5", {}, made / "vm-1") == Connection("tcp://1.2.3.4:5", said.security)
    assert way_to_master(None, {"PGC_MASTER": "x"}, made / "vm-1") == Connection("x", said.security)
    assert way_to_master("x", {"PGC_CONNECT": str(file)}, made / "vm-2") == Connection("x", said.security)


def test_a_connection_file_that_is_named_must_be_there(tmp_path):
    assert connection({}, tmp_path) is None
    with pytest.raises(ConfigError, match=r"cannot read .*gone.json: No such file or directory"):
        connection({"PGC_CONNECT": str(tmp_path / "gone.json")}, tmp_path)


def test_an_address_alone_is_no_secret(tmp_path):
    (tmp_path / CONNECTION_FILE).write_text(json.dumps({"master": MASTER}))
    assert way_to_master(None, {}, tmp_path) == Connection(MASTER, PLAIN)


@pytest.mark.parametrize("missing", ["server_key", "secret_key"])
def test_half_a_connection_file_is_not_taken_for_one_without_keys(made, missing):
    file = made / "vm-1" / CONNECTION_FILE
    table = json.loads(file.read_text())
    del table[missing]
    file.write_text(json.dumps(table))
    with pytest.raises(ConfigError, match=f"has no {missing}"):
        keys.read_connection(file)
