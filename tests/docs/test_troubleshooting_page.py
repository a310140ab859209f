"""Every message that the troubleshooting page quotes is one that the package can print, word for word."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT

import pgczmq

PAGE = (ROOT / "examples" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^\* `(.+)`$", PAGE, re.MULTILINE)
_FORMATS = re.compile(r"%[.\d]*[a-z]|%r")


def strings(tree: ast.AST) -> Iterator[str]:
    """All texts of a file, what is put into them replaced by an ellipsis."""
    parts = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield _FORMATS.sub("…", node.value)


PRINTED = {text for path in Path(pgczmq.__file__).parent.rglob("*.py") for text in strings(ast.parse(path.read_text()))}


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_in_the_package(message: str) -> None:
    assert any(message in text for text in PRINTED), f"no message reads: {message}"


def test_there_are_enough_of_them_and_none_twice() -> None:
    assert len(QUOTED) >= 25
    assert len(set(QUOTED)) == len(QUOTED)
