"""The commands in the first lines of the example programs work, too.

``pgc local`` with each configuration and the programs themselves are run by tests/e2e/test_examples.py; what else the
headers name is run here.
"""

import ast
import re
from pathlib import Path

import pytest
from doc_pages import ROOT, Block
from doc_shell import run

RUN_ELSEWHERE = re.compile(r"cd examples && (pgc local --config \w+\.toml|python \w+\.py \w+)|python examples/api\.py")


def header(path: Path) -> list[str]:
    """The commands: what is indented behind the first paragraph."""
    text = ast.get_docstring(ast.parse(path.read_text()), clean=False) or ""
    lines = [line.partition(" # ")[0].strip() for line in text.splitlines()[1:] if line.startswith("    ")]
    return [line for line in lines if re.match(r"cd |pgc|python ", line)]


HEADERS = {path.stem: header(path) for path in sorted((ROOT / "examples").glob("*.py"))}
RUN_HERE = {
    name: [line for line in lines if not RUN_ELSEWHERE.fullmatch(line)]
    for name, lines in HEADERS.items()
    if not all(RUN_ELSEWHERE.fullmatch(line) for line in lines)
}


def test_every_example_says_how_it_is_run() -> None:
    assert all(HEADERS.values()), HEADERS


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_commands_of_a_header_work(name: str, tmp_path: Path) -> None:
    each = "".join(f"({line})\n" for line in RUN_HERE[name])  # all of them from the checkout's top
    code, printed = run([Block(1, "sh", "", each, ("PGC_STEPS=20",))], tmp_path)
    assert code == 0, printed
