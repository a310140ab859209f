"""Text files are UTF-8, whatever the locale is: whoever opens one says so."""

import ast
from pathlib import Path

import pgczmq

PACKAGE = Path(pgczmq.__file__).parent
NOT_TEXT = {"os", "Image", "place"}
"""Whose ``open`` opens something else."""


def _opens_text(call: ast.Call) -> bool:
    """Whether a call reads or writes a file as text."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in {"read_text", "write_text"}:
        return True
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return function.attr == "open" and owner not in NOT_TEXT and not any("b" in mode for mode in modes)


def silent(source: str) -> list[int]:
    """Lines on which a text file is opened in the locale's encoding."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _opens_text(node)]
    return [call.lineno for call in calls if not any(keyword.arg == "encoding" for keyword in call.keywords)]


def test_every_text_file_is_opened_as_utf8() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path, source in sources.items() for line in silent(source)]
    assert len(sources) > 100 and found == []


def test_one_in_the_locales_encoding_is_found() -> None:
    assert silent(
        'file.open("a")\nfile.open("rb")\nfile.read_text()\nos.open(file)\nfile.open(encoding="utf-8")\n'
    ) == [1, 3]
