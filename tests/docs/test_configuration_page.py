"""The page of settings is made from the models, and says something of each."""

import re
from pathlib import Path

import make_configuration
import pytest

import pgczmq
from pgczmq import config
from pgczmq.config import OTHER_VARIABLES, keys, slips
from pgczmq.described import Key, described

ALL = [key for table in described() for key in table.keys]


def test_the_page_is_up_to_date() -> None:
    assert make_configuration.PAGE.read_text() == make_configuration.page(), (
        "python tests/docs/make_configuration.py writes it anew"
    )


def test_every_variable_of_the_environment_is_on_the_page() -> None:
    package = Path(pgczmq.__file__).parent
    named = {name for path in package.rglob("*.py") for name in re.findall(r"\bPGC_[A-Z_]*[A-Z]\b", path.read_text())}
    rows = re.findall(r"^\| `(PGC_[A-Z_]+)` \|", make_configuration.page(), re.MULTILINE)
    assert {name for name in named if "__" not in name} == set(rows)
    assert set(OTHER_VARIABLES) | {"NO_COLOR"} >= set(rows) and not [*slips(dict.fromkeys(rows, ""))]


def test_every_key_is_described_once() -> None:
    names = [key.name.replace("[]", "") for key in ALL]
    assert sorted(names) == sorted(keys())


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_every_key_has_a_meaning(key: Key) -> None:
    assert key.meaning, f"give {key.name} a description in config.py"
    assert not key.meaning.endswith("."), "a meaning is a cell of a table, not a sentence"


def test_a_default_is_what_a_file_would_say() -> None:
    top = [key for key in ALL if "." not in key.name]
    text = "\n".join(f"{key.name} = {key.default}" for key in top if key.default)
    assert config.loads(text) == config.RunConfig()


def test_kinds_in_words() -> None:
    kinds = {key.name: key.kind for key in ALL}
    assert kinds["device"] == '"auto", "cpu" or "cuda"'
    assert kinds["workers"] == "whole number, at least 1, at most 4096"
    assert kinds["faults[].steps"] == "list: whole number, at least 0 each"
    assert kinds["threads"] == '"auto", or whole number'
    assert kinds["deterministic"] == "true or false"
