"""Which worker a process is, and where its master is: arguments, environment, connection file."""

import json
import socket

import pytest

from pgczmq.app.identity import Identity, identity
from pgczmq.app.worker import DEFAULT_MASTER, parse_address, way_to_master
from pgczmq.errors import ConfigError, MasterUnreachable
from pgczmq.net.worker import resolve

# ---------------------------------------------------------------- identity


@pytest.mark.parametrize(
    ("given", "environment", "number", "source"),
    [
        (3, {}, 3, "--id"),
        (0, {"PGC_WORKER_ID": "5", "RANK": "6"}, 0, "--id"),
        (3, {"RANK": "nonsense"}, 3, "--id"),
        (None, {}, None, "the master"),
        (None, {"PGC_WORKER_ID": "5"}, 5, "PGC_WORKER_ID"),
        (None, {"PGC_WORKER_ID": "5", "RANK": "6"}, 5, "PGC_WORKER_ID"),
        (None, {"PGC_WORKER_ID": "", "RANK": "6"}, 6, "RANK"),
        (None, {"RANK": "0"}, 0, "RANK"),
        (None, {"JOB_COMPLETION_INDEX": "7"}, 7, "JOB_COMPLETION_INDEX"),
        (None, {"OMPI_COMM_WORLD_RANK": "1"}, 1, "OMPI_COMM_WORLD_RANK"),
    ],
)
def test_sources_of_a_number(given, environment, number, source):
    """Report 50."""
    assert identity(given, environment) == Identity(number, source)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", " 1", "0x1"])
@pytest.mark.parametrize("name", ["PGC_WORKER_ID", "RANK", "JOB_COMPLETION_INDEX"])
def test_what_is_no_number_is_an_error(name, text):
    with pytest.raises(ConfigError, match=f"{name} must be a worker's number, 0 or more: got {text!r}"):
        identity(None, {name: text})


# ---------------------------------------------------------------- where the master is


def test_sources_of_the_address(tmp_path):
    assert way_to_master(None, {}, tmp_path).master == DEFAULT_MASTER
    (tmp_path / "pgc-connect.json").write_text(json.dumps({"master": "tcp://file:1"}))
    assert way_to_master(None, {}, tmp_path).master == "tcp://file:1"
    assert way_to_master(None, {"PGC_MASTER": "tcp://env:1"}, tmp_path).master == "tcp://env:1"
    assert way_to_master("tcp://given:1", {"PGC_MASTER": "tcp://env:1"}, tmp_path).master == "tcp://given:1"
    assert way_to_master("", {"PGC_MASTER": ""}, tmp_path).master == "tcp://file:1"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '"x"', "null", "5"])
def test_a_connection_file_that_cannot_be_used_is_a_sentence(tmp_path, text):
    (tmp_path / "pgc-connect.json").write_text(text)
    with pytest.raises(ConfigError, match=r"pgc-connect\.json must hold"):
        way_to_master(None, {}, tmp_path)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("tcp://10.0.0.5:6000", "10.0.0.5", 6000),
        ("10.0.0.5:6000", "10.0.0.5", 6000),
        ("10.0.0.5", "10.0.0.5", 5555),
        ("tcp://node-3.example", "node-3.example", 5555),
        ("tcp://[::1]:6000", "::1", 6000),
        ("[::1]:6000", "::1", 6000),
        ("tcp://[fe80::1]", "fe80::1", 5555),
        ("[2001:db8::5]", "2001:db8::5", 5555),
    ],
)
def test_addresses(address, host, port):
    assert parse_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    ["", "tcp://", ":5555", "host:", "host:x", "host:0", "host:65536", "http://host:1", "host:-1"],
)
def test_what_is_no_address_is_a_sentence(address):
    with pytest.raises(ConfigError, match=r"a master's address is tcp://HOST:PORT"):
        parse_address(address)


def test_names_are_resolved_before_zeromq_sees_them(monkeypatch):
    """Report 19: a name that cannot be looked up would stall every socket of the context."""
    assert resolve("127.0.0.1", 5) == "127.0.0.1"
    assert resolve("::1", 5) == "::1"

    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(MasterUnreachable, match="the master's host nowhere cannot be found: Name or service not known"):
        resolve("nowhere", 5)
