"""``pgc keygen`` as a command; the files themselves are tested in tests/app."""

from pathlib import Path

import pytest

from pgczmq.app.keys import read_connection
from pgczmq.cli.keygen import make
from pgczmq.errors import ConfigError


def test_it_says_what_each_file_is_for_and_shows_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    make(keys, "10.0.0.5", [])
    make(keys, None, ["vm-1"])
    said = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{keys}/").split(",")[0] for line in said] == [
        "master.json: the master's key",
        "workers.allow: who may join; delete a line to shut its key out",
        "pgc-connect.json: copy it to every worker",
        "vm-1/pgc-connect.json: copy it to worker vm-1",
    ]
    assert read_connection(keys / "vm-1" / "pgc-connect.json").master == "tcp://10.0.0.5:5555"
    words = {word for file in keys.rglob("*") if file.is_file() for word in file.read_text().split()}
    assert not [word for word in words if len(word.strip('",')) == 40 and word.strip('",') in "\n".join(said)]


@pytest.mark.parametrize(
    ("master", "workers", "text"),
    [
        (None, [], "Say --master tcp://HOST:PORT, as its workers reach it, or --worker NAME"),
        ("0.0.0.0:5555", [], r"workers cannot reach 0\.0\.0\.0"),
        ("tcp://[::]:5555", [], "workers cannot reach ::"),
        ("10.0.0.5:x", [], "a master's address is tcp://HOST:PORT"),
        (None, ["vm-1"], r"there is no .*master\.json"),
    ],
)
def test_what_does_not_make_sense_is_a_sentence(
    master: str | None, workers: list[str], text: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=text):
        make(tmp_path / "keys", master, workers)
    assert not (tmp_path / "keys").exists()
