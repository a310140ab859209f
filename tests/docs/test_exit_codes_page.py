"""The page of exit codes has every code that the programs end with, and no other."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from doc_pages import ROOT, without_blocks

from pgczmq import errors

PAGE = (ROOT / "examples" / "exit-codes.md").read_text()
ENDING = {"Finish", "_end", "_stop", "stop", "leave", "SystemExit"}
"""Functions that are given the code a process is to end with."""
NAMED = {"exit_code", "code", "INTERRUPTED"}
SIGNALS = {129, 130, 143}
"""Of SIGHUP, SIGINT and SIGTERM, which the package writes as 128 + number."""
EVERYWHERE = {0, 1}
CODES = range(2, 256)


def numbers(node: ast.AST | None) -> set[int]:
    found = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} if node else set()
    return {value for value in found if type(value) is int and value in CODES and value != 128}


def written_in(tree: ast.AST) -> Iterator[set[int]]:
    """The numbers in places of the code that decide how a process ends."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ENDING:
                yield from (numbers(argument) for argument in node.args if not isinstance(argument, ast.JoinedStr))
            yield from (numbers(keyword.value) for keyword in node.keywords if keyword.arg in NAMED)
        elif isinstance(node, ast.Assign):
            if {getattr(target, "id", getattr(target, "attr", "")) for target in node.targets} & NAMED:
                yield numbers(node.value)
        elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in NAMED:
            yield numbers(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name == "exit_code_of":
            yield from (numbers(part.value) for part in ast.walk(node) if isinstance(part, ast.Return))


def codes_of(kind: type[errors.PgcError]) -> set[int]:
    return {kind.exit_code}.union(*(codes_of(inner) for inner in kind.__subclasses__()))


def in_the_table() -> set[int]:
    rows = re.findall(r"^\| ([\d, ]+) \|", without_blocks(PAGE), re.MULTILINE)
    return {int(code) for row in rows for code in row.split(",")}


def test_the_table_has_the_codes_of_the_package() -> None:
    files = [path for path in Path(errors.__file__).parent.rglob("*.py") if "bench" not in path.parts]
    found = {code for path in files for codes in written_in(ast.parse(path.read_text())) for code in codes}
    assert in_the_table() == found | codes_of(errors.PgcError) | SIGNALS | EVERYWHERE


def test_every_command_is_said_to_end_with_codes_of_the_table() -> None:
    rows = re.findall(r"^\| (?:`pgc|the others).* \| (.*) \|$", PAGE, re.MULTILINE)
    named = {int(code) for row in rows for code in re.findall(r"\b\d+\b", row)}
    assert named == in_the_table()


def test_a_reader_that_goes_away_is_not_a_check_that_failed(tmp_path: Path) -> None:
    pgc = Path(sys.executable).parent / "pgc"
    with subprocess.Popen([pgc, "explain", "--set", "workers=40"], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 141
