"""The page about the wire has every message and every field of it, and no others."""

import re
from typing import get_args

import msgspec
from doc_pages import ROOT

from pgczmq.net import wire

PAGE = (ROOT / "examples" / "wire.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z]+)` \| .* \| .* \| (.*) \|$", PAGE, re.MULTILINE))
IN_ALL = {"v"} | set(wire.FromWorker.__struct_fields__)
VERDICT = set(wire.Verdict.__struct_fields__) - set(wire.FromMaster.__struct_fields__)
KINDS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in (*get_args(wire.ToMaster), *get_args(wire.ToWorker), wire.Metrics)
}


def fields_of(kind: type[msgspec.Struct]) -> set[str]:
    """Those that the table is to name: what all messages carry stands above it, the verdict below it."""
    own = set(kind.__struct_fields__) - VERDICT
    return own if kind is wire.Hello else own - (IN_ALL - ({"incarnation"} if kind is wire.Welcome else set()))


def test_every_message_has_a_row() -> None:
    assert set(ROWS) == set(KINDS)


def test_every_field_of_a_message_is_named_and_no_other() -> None:
    for name, kind in KINDS.items():
        said = set(re.findall(r"`([a-z_]+)`", ROWS[name]))
        assert said == fields_of(kind) - {"v"}, f"{name}: the page says {sorted(said)}"


def test_what_all_messages_carry_and_the_verdict_are_named() -> None:
    assert f"the version of the protocol ({wire.PROTOCOL})" in PAGE
    assert set(
        re.findall(r"`([a-z_]+)`", PAGE[PAGE.index("Every message carries") : PAGE.index("### From workers")])
    ) == (IN_ALL | {"type"})
    verdict = PAGE[PAGE.index("The verdict is") : PAGE.index("## The life of a step")]
    assert set(re.findall(r"`([a-z_]+)`", verdict)) == VERDICT
